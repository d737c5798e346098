//! Renders the table as the page that people read, `docs/compatibility.md`.

use std::fmt::Write as _;

use super::table::{CLIENTS, OTHERS, PYTHON_SDK};
use super::{Behaviour, ChangedLists, OpenLimit};

const HEAD: &str = "\
# Compatibility

A test makes this page from what the program knows of clients, and from what came of driving real ones.

## Two eras of MCP

Clients and servers may each speak 2024-11-05 to 2025-11-25 (with `initialize`) or 2026-07-28 (stateless, with
`server/discover`), over stdio or HTTP, in any combination; the gateway finds out which, and translates. Questions of
a server (elicitation, sampling, roots) become `input_required` results for a modern client and real questions for an
older one.

The modern specification forbids lists that change because of a call. So a modern client always sees the same tools:
`open_toolbox` and `use_tool` under the workbench, where the answer to opening holds the definitions, resources and
prompts; under toolman `toolman_activate`, what is active from the start, and `toolman_call` for what was switched on
since.

## Conformance

The official [conformance suite](https://github.com/modelcontextprotocol/conformance) (0.2.0-alpha.12) is part of the
tests: as a server the gateway stands in front of an upstream built on rmcp, as a client in front of the suite's own
servers. Scored scenarios that pass:

| | 2025-11-25 | 2026-07-28 |
|---|---|---|
| server | 30 of 30 | 37 of 37 |
| client, without authorization | 4 of 4 | 7 of 7 |
| client, authorization (OAuth) | 14 of 14 | 25 of 25 |

`cargo test conformance` runs the suite (Linux x86_64).

## Clients

A client is recognised by the name that it gives itself in `clientInfo.name`; case does not matter, and `*` stands for any
end.

- **Changed list**: whether the client takes up tools that appear while it runs, and how long it needs after it has read them.
- **`auto`**: what `\"toolMode\": \"auto\"` gives it.
- **Longest answer**: what it hands to its model of the answer to an opening, in bytes.
- **Longest name** of a tool, in characters, with the **prefix** that the client puts before it; `{entry}` is what its
  file calls us.

| client | `clientInfo.name` | changed list | `auto` | longest answer | longest name | prefix |
|---|---|---|---|---|---|---|
";

const TAIL: &str = "
Clients of the modern era that come over HTTP with the same token share what is open, and so its names: these fit the
strictest of the clients that have asked for a list so far. Every client can call a tool by its full name, and by the short
name that any client has for it.

An answer that is too long for the client loses descriptions, then signatures, then tools from the end, which `more` counts.
The names of 80 tools of ordinary size fit every client of the table. With `\"metaTools\": \"classic\"` each entry has two
names, so that a tool takes about 120 bytes: of 80, Cline, Gemini CLI and Codex then see about 55, 64 and 72.

pydantic-ai, openai-agents and the AI SDK speak the modern era and see `open_toolbox` and `use_tool`. LangChain's
`get_tools()` starts the gateway anew for each call, so that nothing stays open: load the tools in a session
(`client.session(…)`), write `\"search\": true`, which lets `use_tool` open toolboxes by itself, or connect to
`/mcp/{toolbox}` of `serve --http`.
";

/// The whole page.
pub fn page() -> String {
    let known = CLIENTS.iter().map(|client| (client.title, &client.behaviour));
    let rows: Vec<_> = known.chain([("Python SDK 1.x", &PYTHON_SDK), ("all others", &OTHERS)]).collect();
    let mut page = HEAD.to_owned();
    rows.iter().for_each(|(title, behaviour)| row(title, behaviour, &mut page));
    let titles = |which: fn(&Behaviour) -> bool| {
        let titles: Vec<_> = rows.iter().filter(|(_, row)| which(row)).map(|(title, _)| *title).collect();
        titles.join(", ")
    };
    let strict = titles(|behaviour| behaviour.strict_uri_schemes);
    let _ = write!(page, "\nRefuses every resource over one URI whose scheme has `_`: {strict}.\n");
    let hosts = titles(|behaviour| behaviour.renders_apps);
    let _ = write!(page, "\nRenders [apps](apps.md) of tools in its list: {hosts}.\n");
    page.push_str(TAIL);
    page
}

fn row(title: &str, behaviour: &Behaviour, page: &mut String) {
    let names: Vec<_> = behaviour.names.iter().map(|name| format!("`{name}`")).collect();
    let changed = match behaviour.changed_lists {
        ChangedLists::TakenUp { settling } => format!("taken up, {} ms", settling.as_millis()),
        ChangedLists::Unreliable => "not relied on".to_owned(),
        ChangedLists::Unknown => "not known".to_owned(),
    };
    let mode = if behaviour.takes_up_changes() { "dynamic" } else { "proxy" };
    let names_of_tools = behaviour.tool_names;
    let prefix = match names_of_tools.prefix {
        "" => "none".to_owned(),
        prefix => format!("`{prefix}`"),
    };
    let _ = writeln!(
        page,
        "| {title} | {} | {changed} | {mode} | {} | {} | {prefix} |",
        names.join(", "),
        longest_answer(&behaviour.open_limit),
        names_of_tools.longest,
    );
}

fn longest_answer(limit: &OpenLimit) -> String {
    let bytes = |bytes: usize| format!("{},{:03}", bytes / 1000, bytes % 1000);
    let mut text = match (limit.legacy, limit.modern) {
        (None, None) => "no limit".to_owned(),
        (Some(legacy), Some(modern)) if legacy == modern => bytes(legacy),
        (legacy, modern) => {
            let [legacy, modern] = [legacy, modern].map(|limit| limit.map_or("no limit".to_owned(), bytes));
            format!("{legacy}; modern era {modern}")
        }
    };
    if !limit.structured_content {
        text.push_str(", `structuredContent` included");
    }
    text
}
