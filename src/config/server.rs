//! Turns an `mcpServers` entry of our own file into a server that can run, by the meanings that `entry.rs`
//! gives to its keys.

use super::detect::secrets_of_url;
use super::entry::{
    Field, HTTP_ELSEWHERE, Side, TRANSPORTS, TransportName, documented, instead_of, is_header_name,
    is_header_value, is_understood, is_url, is_variable_name, understood,
};
use super::oauth::oauth;
use super::read::{At, Table, nearest};
use super::{
    Command, Common, Http, Isolation, OAuth, Running, Secret, Server, ServerName, Start, Timeouts,
    ToolFilter, Transport, Unset, downloads, settings,
};
use std::path::{Component, Path, PathBuf};

/// Reads an entry; `common` holds for what the entry does not say. A disabled entry is checked all the same,
/// and gives `None`. With `skip`, an entry with unset variables becomes a server that cannot be reached.
pub(super) fn server(entry: &At<'_>, common: &Common, directory: &Path, skip: bool) -> Option<Server> {
    let name = ServerName::new(entry.key)
        .map_err(|wrong| entry.key_error(wrong, "give the server a readable name"))
        .ok();
    let table = entry.table()?;
    warn_of_unknown(&table);
    let transport = transport(entry, &table, directory);
    let filter = table.get("toolFilters").map_or(Some(ToolFilter::All), filter);
    let isolation = table.get("isolation").and_then(|at| at.one_of(&Isolation::NAMES));
    let timeouts = timeouts(&table, transport.as_ref());
    let running = running(&table).or(common.running);
    let offload_over = settings::offload_over(&table).unwrap_or(common.offload_over);
    let disabled = table.get("disabled").and_then(At::boolean).unwrap_or(false);
    let unset = unset(entry, &table, disabled, skip);
    if disabled {
        return None;
    }
    // Settings that an unset variable hides get defaults; they do not matter until there is a server.
    let filter = filter.or(unset.as_ref().map(|_| ToolFilter::All))?;
    let (name, transport) = (name?, unset.or(transport)?);
    Some(Server { name, transport, filter, timeouts, isolation, running, offload_over })
}

/// The placeholder transport of a server with unset variables; `None` if all are set.
pub(super) fn unset(entry: &At<'_>, table: &Table<'_>, disabled: bool, skip: bool) -> Option<Transport> {
    let variables = entry.report.unset_in(&entry.path, disabled, skip);
    if variables.is_empty() {
        return None;
    }
    let is_sse = spelled(Field::Transport).any(|key| entry.member(key) == Some("sse"));
    let transport = match table.get("command") {
        Some(_) => "stdio",
        None if is_sse => "sse",
        None => "http",
    };
    Some(Transport::Unset(Unset { variables, transport }))
}

fn warn_of_unknown(table: &Table<'_>) {
    for entry in table.entries().iter().filter(|entry| !is_understood(entry.key)) {
        let hint = match instead_of(entry.key) {
            Some(hint) => hint.to_owned(),
            None => match nearest(entry.key, &documented()) {
                Some(key) => format!("did you mean `{key}`?"),
                None => "it has no effect here; remove it if it is not for another client".to_owned(),
            },
        };
        entry.key_warning(format!("unknown key `{}` is ignored", entry.key), hint);
    }
}

/// The keys of our own file for this field.
fn spelled(field: Field) -> impl Iterator<Item = &'static str> {
    understood(move |other| other == field)
}

/// The keys of our own file that apply to one kind of server only.
fn of(side: Side) -> impl Iterator<Item = &'static str> {
    understood(move |field| field.side() == Some(side))
}

fn transport(entry: &At<'_>, table: &Table<'_>, directory: &Path) -> Option<Transport> {
    // Every key is read in any case, so that all problems of the entry are reported at once.
    let kind = declared_kind(table);
    let urls: Vec<_> = table.synonyms(spelled(Field::Url)).into_iter().map(|at| (at, url(at))).collect();
    let url = agreed(&urls, PartialEq::eq);
    let environments: Vec<_> =
        table.synonyms(spelled(Field::Env)).into_iter().map(|at| (at, environment(at))).collect();
    let env = agreed(&environments, |one, other| same_variables(one, other));
    let env = if environments.is_empty() { Some(Vec::new()) } else { env };
    let program = table.get("command").map(program);
    let args =
        table.get("args").map_or(Some(Vec::new()), |at| at.list().and_then(|items| all(&items, argument)));
    entry.report.secrets_of_words(args.iter().flatten().map(String::as_str));
    let cwd = table.get("cwd").map(|at| working_directory(at, directory));
    let inherit_env = table.get("inheritEnv").map_or(Some(Vec::new()), inherited);
    let headers = table.get("headers").map_or(Some(Vec::new()), headers);
    let oauth = table.get("oauth").map_or(Some(Some(OAuth::default())), oauth);

    match (table.get("command"), urls.first()) {
        (None, None) => {
            entry.key_error(
                "the server has neither `command` nor `url`",
                "add `command` for a program to start, or `url` for a server that runs already",
            );
            None
        }
        (Some(_), Some((url, _))) => {
            let hint = "keep `command` for a program to start, or `url` for a server that runs already";
            url.key_error(format!("the server has both `command` and `{}`", url.key), hint);
            None
        }
        (Some(_), None) => {
            fits(table, kind, "command")?;
            warn_of_useless(table, of(Side::Remote), "command");
            Some(Transport::Stdio(Command {
                program: program??,
                args: args?,
                env: env?,
                cwd: match cwd {
                    Some(cwd) => Some(cwd?),
                    None => None,
                },
                inherit_env: inherit_env?,
            }))
        }
        (None, Some((at, _))) => {
            fits(table, kind, at.key)?;
            warn_of_useless(table, of(Side::Local), "url");
            Some(Transport::Http(http(table, url?, headers?, kind, oauth?)))
        }
    }
}

/// A server behind a URL.
pub(super) fn http(
    table: &Table<'_>,
    url: String,
    headers: Vec<(String, Secret)>,
    kind: Option<TransportName>,
    oauth: Option<OAuth>,
) -> Http {
    let http = Http { url, headers, sse: kind == Some(TransportName::Sse), oauth };
    if http.has_credentials() && http.oauth.is_some() {
        warn_of_useless(table, ["oauth"], "Authorization");
    }
    http
}

/// The transport that `transport` and `type` declare.
pub(super) fn declared_kind(table: &Table<'_>) -> Option<TransportName> {
    let kinds: Vec<_> = table
        .synonyms(spelled(Field::Transport))
        .into_iter()
        .map(|at| (at, at.one_of_many(&TRANSPORTS, &HTTP_ELSEWHERE)))
        .collect();
    agreed(&kinds, PartialEq::eq)
}

/// Checks that the declared transport goes with `command`, or with a URL under the given key.
pub(super) fn fits(table: &Table<'_>, kind: Option<TransportName>, key: &str) -> Option<()> {
    let (speaks, other) = match (key, kind) {
        (_, None) | ("command", Some(TransportName::Stdio)) => return Some(()),
        ("command", Some(_)) => ("`stdio`", "url"),
        (_, Some(TransportName::Stdio)) => ("`http` or `sse`", "command"),
        _ => return Some(()),
    };
    if let Some(at) = table.synonyms(spelled(Field::Transport)).first() {
        at.error(
            format!("a server with `{key}` speaks {speaks}"),
            format!("remove `{}`, or give `{other}` in place of `{key}`", at.key),
        );
    }
    None
}

/// The one value on which synonyms agree; an error if they differ.
fn agreed<T: Clone>(synonyms: &[(&At<'_>, Option<T>)], equal: fn(&T, &T) -> bool) -> Option<T> {
    let mut meanings = synonyms.iter().filter_map(|(at, value)| value.as_ref().map(|value| (at, value)));
    let (first, meaning) = meanings.next()?;
    for (at, other) in meanings {
        if !equal(meaning, other) {
            at.key_error(
                format!("`{}` and `{}` mean the same and disagree", first.key, at.key),
                format!("keep one of the two; `{}` is on line {}", first.key, first.line()),
            );
        }
    }
    Some(meaning.clone())
}

fn same_variables(one: &[(String, Secret)], other: &[(String, Secret)]) -> bool {
    one.len() == other.len() && one.iter().all(|variable| other.contains(variable))
}

pub(super) fn warn_of_useless<'k>(table: &Table<'_>, keys: impl IntoIterator<Item = &'k str>, beside: &str) {
    for at in table.synonyms(keys) {
        if !at.is_empty() {
            at.key_warning(format!("`{}` has no effect beside `{beside}`", at.key), "remove it");
        }
    }
}

fn program(at: &At<'_>) -> Option<String> {
    let program = argument(at)?;
    if program.trim().is_empty() {
        at.error("`command` is blank", "name the program to start, such as `npx`");
        return None;
    }
    Some(program)
}

/// A string that can be handed to a process.
pub(super) fn argument(at: &At<'_>) -> Option<String> {
    let value = at.string()?;
    if value.contains('\0') {
        at.error("the text has a NUL character, which cannot be passed to a process", "remove `\\u0000`");
        return None;
    }
    Some(value.to_owned())
}

pub(super) fn working_directory(at: &At<'_>, directory: &Path) -> Option<PathBuf> {
    let value = argument(at)?;
    if value.is_empty() {
        at.error("`cwd` is empty", "write `.` for the directory of this file, or remove the key");
        return None;
    }
    Some(directory.join(value).components().filter(|part| *part != Component::CurDir).collect())
}

/// `env` as names and values. Numbers and booleans keep their spelling, and `null` is left out.
pub(super) fn environment(at: &At<'_>) -> Option<Vec<(String, Secret)>> {
    let table = at.table()?;
    let values = all(table.entries(), |entry| {
        if !is_variable_name(entry.key) {
            entry.key_error("this cannot be the name of a variable", "use letters, digits and `_`");
        }
        let value = match entry.spelled() {
            Some(spelled) => spelled.map(str::to_owned),
            None => Some(argument(entry)?),
        };
        if let Some(value) = &value {
            entry.report.secret(value, entry.key);
        }
        Some(value.map(|value| (entry.key.to_owned(), Secret::new(value))))
    })?;
    Some(values.into_iter().flatten().collect())
}

pub(super) fn headers(at: &At<'_>) -> Option<Vec<(String, Secret)>> {
    let table = at.table()?;
    all(table.entries(), |entry| {
        if !is_header_name(entry.key) {
            entry.key_error("this cannot be the name of a header", "use letters, digits and `-`");
        }
        let value = match entry.spelled() {
            Some(Some(spelled)) => spelled,
            _ => entry.string()?,
        };
        let value = value.trim();
        if !is_header_value(value) {
            entry.error("a header's value cannot have control characters", "remove line breaks and the like");
            return None;
        }
        entry.report.secret(value, entry.key);
        if let Some((_scheme, credentials)) = value.split_once(' ') {
            entry.report.secret(credentials.trim(), entry.key);
        }
        Some((entry.key.to_owned(), Secret::new(value)))
    })
}

pub(super) fn url(at: &At<'_>) -> Option<String> {
    let url = at.string()?;
    if !is_url(url) {
        at.expected("a URL with `http://` or `https://` and a host", "such as `http://127.0.0.1:9000/mcp`");
        return None;
    }
    for (start, end, name) in secrets_of_url(url) {
        at.report.secret(&url[start..end], &name);
    }
    Some(url.to_owned())
}

fn filter(at: &At<'_>) -> Option<ToolFilter> {
    let names = at.strings()?;
    Some(if names.iter().any(|name| name == "*") { ToolFilter::All } else { ToolFilter::Only(names) })
}

pub(super) fn inherited(at: &At<'_>) -> Option<Vec<String>> {
    all(&at.list()?, |item| {
        let name = item.string()?;
        if !is_variable_name(name) {
            item.expected("the name of a variable, or `*` for all", "remove it");
            return None;
        }
        Some(name.to_owned())
    })
}

pub(super) fn running(table: &Table<'_>) -> Running {
    let start = |at: &At<'_>| at.one_of(&[("open", Start::Open), ("call", Start::Call)]);
    Running {
        start: table.get("start").and_then(start),
        idle_timeout: table.get("idleTimeout").and_then(At::seconds_or_none),
    }
}

pub(super) fn timeouts(table: &Table<'_>, transport: Option<&Transport>) -> Timeouts {
    let seconds = |key| table.get(key).and_then(At::seconds);
    let connect = seconds("connectTimeout").unwrap_or(Timeouts::default().connect);
    let start = match transport {
        Some(Transport::Http(_)) => connect,
        _ => seconds("startTimeout").unwrap_or_else(|| downloads::start_timeout(transport, connect)),
    };
    Timeouts {
        connect,
        start,
        call: table.get("callTimeout").and_then(At::seconds),
        max_call: table.get("maxCallTime").and_then(At::seconds),
    }
}

/// The results for all items, or `None` if any is wrong; every item is read in any case.
fn all<'d, T>(items: &[At<'d>], read: impl Fn(&At<'d>) -> Option<T>) -> Option<Vec<T>> {
    let read: Vec<_> = items.iter().map(read).collect();
    read.into_iter().collect()
}
