//! The workbench's story: one toolbox is opened, in dynamic mode and in proxy mode.

use std::io;

use serde_json::{Value, json};

use super::client::Client;
use super::page::grouped;
use super::{Act, Stage, TASK, some_client};
use crate::tokens;

pub(super) async fn story(stage: &mut Stage<'_>, total: usize) -> io::Result<()> {
    let file = stage.write("workbench-config.json", &config(stage))?;
    let file = file.to_string_lossy();
    let arguments = ["--face", "workbench", "--config", &file, "--tool-mode"];
    let mut client = stage.gateway(&[&arguments[..], &["dynamic"]].concat()).await?;
    dynamic(stage, &mut client, total).await?;
    client.end().await;
    let mut client = stage.gateway(&[&arguments[..], &["proxy"]].concat()).await?;
    proxy(stage, &mut client, total).await?;
    client.end().await;
    Ok(())
}

async fn dynamic(stage: &mut Stage<'_>, client: &mut Client, total: usize) -> io::Result<()> {
    let instructions = stage.greet(client, "demo").await?;
    let (own, definitions) = stage.list(client).await?;
    stage.page.say(&format!(
        "Behind the gateway it is {}: one tool, and a line for each toolbox.",
        grouped(instructions + definitions)
    ))?;
    stage.page.heading(TASK)?;
    let example = some_client(|client| client.behaviour.takes_up_changes()).map_or("", |client| client.title);
    let mode = format!("Dynamic mode, for clients that honour `tools/list_changed`, such as {example}:");
    stage.page.say(&mode)?;
    stage.call(client, &open()).await?;
    let (all, definitions) = stage.list(client).await?;
    stage.page.step(&open().label, &format!("{} tools join the list", all - own))?;
    let acts = [
        ("issues__issues__search_issues", "query: timeout", search()),
        ("issues__issues__update_issue", "number: 42, assignee: ada", assign()),
    ];
    let acts =
        acts.map(|(tool, short, arguments)| Act { label: format!("{tool} ({short})"), tool, arguments });
    stage.solve(client, &acts).await?;
    stage.conclude(instructions + definitions, total)
}

async fn proxy(stage: &mut Stage<'_>, client: &mut Client, total: usize) -> io::Result<()> {
    stage.page.say("\nProxy mode, for all other clients:")?;
    let instructions = stage.greet(client, "demo").await?;
    let (_, definitions) = stage.list(client).await?;
    let opened = stage.call(client, &open()).await?;
    let answer: Value = serde_json::from_str(&opened)?;
    let tools = answer["tools"].as_array().map_or(0, Vec::len);
    stage.page.step(&open().label, &format!("{tools} definitions in the answer"))?;
    let acts = [
        ("search_issues", "query: timeout", search()),
        ("update_issue", "number: 42, assignee: ada", assign()),
    ];
    let acts = acts.map(|(tool, short, arguments)| {
        let address = json!({ "toolbox": "issues", "server": "issues", "tool": tool });
        let arguments = json!({ "tool": address, "arguments": arguments });
        Act { label: format!("use_tool {tool} ({short})"), tool: "use_tool", arguments }
    });
    stage.solve(client, &acts).await?;
    stage.conclude(instructions + definitions + tokens::count(&opened), total)
}

fn open() -> Act {
    let arguments = json!({ "toolbox_name": "issues" });
    Act { label: "open_toolbox (toolbox_name: issues)".to_owned(), tool: "open_toolbox", arguments }
}

/// The arguments that find the issue of the task.
pub(super) fn search() -> Value {
    json!({ "query": "timeout" })
}

/// The arguments that assign the issue of the task.
pub(super) fn assign() -> Value {
    json!({ "owner": "example", "repo": "shop", "number": 42, "assignee": "ada" })
}

/// A file with a toolbox for each server, as `init` would write it.
fn config(stage: &Stage<'_>) -> String {
    let toolbox = |name: &str, about: &str| {
        let server = json!({ "command": stage.executable.to_string_lossy(), "args": ["demo-server", name] });
        format!("{}:{}", json!(name), json!({ "description": about, "mcpServers": { name: server } }))
    };
    // A map would put them into another order.
    let toolboxes: Vec<_> = stage.servers.iter().map(|server| toolbox(server.name, server.about)).collect();
    format!("{{\"toolboxes\":{{{}}}}}", toolboxes.join(","))
}
