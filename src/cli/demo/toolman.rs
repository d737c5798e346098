//! Toolman's story: two tools of the catalog are switched on, for clients that take up changed lists and for
//! those that do not.

use std::io;

use serde_json::json;

use super::client::Client;
use super::page::grouped;
use super::workbench::{assign, search};
use super::{Act, Stage, TASK, some_client};
use crate::tokens;

pub(super) async fn story(stage: &mut Stage<'_>, total: usize) -> io::Result<()> {
    let file = stage.write("tools.toml", &config(stage))?;
    let arguments = ["--face", "toolman", "--config", &*file.to_string_lossy()];
    let mut client = stage.gateway(&arguments).await?;
    by_name(stage, &mut client, total).await?;
    client.end().await;
    let mut client = stage.gateway(&arguments).await?;
    by_call(stage, &mut client, total).await?;
    client.end().await;
    Ok(())
}

async fn by_name(stage: &mut Stage<'_>, client: &mut Client, total: usize) -> io::Result<()> {
    let instructions = stage.greet(client, "demo").await?;
    let (own, definitions) = stage.list(client).await?;
    stage.page.say(&format!(
        "Behind toolman it is {}: one tool, whose description has a line for each of the others.",
        grouped(instructions + definitions)
    ))?;
    stage.page.heading(TASK)?;
    let example = some_client(|client| client.behaviour.takes_up_changes()).map_or("", |client| client.title);
    let mode =
        format!("Clients that honour `tools/list_changed`, such as {example}, call tools by their names:");
    stage.page.say(&mode)?;
    stage.call(client, &activate()).await?;
    let (all, definitions) = stage.list(client).await?;
    stage.page.step(&activate().label, &format!("{} tools join the list", all - own))?;
    let acts = [
        ("issues_search_issues", "query: timeout", search()),
        ("issues_update_issue", "number: 42, assignee: ada", assign()),
    ];
    let acts =
        acts.map(|(tool, short, arguments)| Act { label: format!("{tool} ({short})"), tool, arguments });
    stage.solve(client, &acts).await?;
    stage.conclude(instructions + definitions, total)
}

async fn by_call(stage: &mut Stage<'_>, client: &mut Client, total: usize) -> io::Result<()> {
    let example = some_client(|client| client.behaviour.keeps_its_list());
    let (title, name) = example.map_or(("", ""), |client| (client.title, client.called()));
    stage.page.say(&format!("\nClients that keep their first list, such as {title}, use toolman_call:"))?;
    let instructions = stage.greet(client, name).await?;
    let (_, definitions) = stage.list(client).await?;
    let answer = stage.call(client, &activate()).await?;
    stage.page.step(&activate().label, "2 definitions in the answer")?;
    let acts = [
        ("issues_search_issues", "query: timeout", search()),
        ("issues_update_issue", "number: 42, assignee: ada", assign()),
    ];
    let acts = acts.map(|(tool, short, arguments)| {
        let arguments = json!({ "name": tool, "arguments": arguments });
        Act { label: format!("toolman_call {tool} ({short})"), tool: "toolman_call", arguments }
    });
    stage.solve(client, &acts).await?;
    stage.conclude(instructions + definitions + tokens::count(&answer), total)
}

fn activate() -> Act {
    let on = ["issues_search_issues", "issues_update_issue"];
    Act {
        label: "toolman_activate (tools_on: the two that it needs)".to_owned(),
        tool: "toolman_activate",
        arguments: json!({ "tools_on": on, "tools_off": [], "resources_on": [], "resources_off": [] }),
    }
}

/// A file with all servers, none of whose tools is active from the start.
fn config(stage: &Stage<'_>) -> String {
    let executable = stage.executable.to_string_lossy().replace('\'', "'\\''");
    let server = |name: &str| {
        let command = json!(format!("'{executable}' demo-server {name}"));
        format!("\n[[servers]]\nnamespace = \"{name}\"\ncommand = {command}\n")
    };
    let servers: String = stage.servers.iter().map(|one| server(one.name)).collect();
    format!("active_toolsets = []\n{servers}")
}
