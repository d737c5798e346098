//! The workbench's demo: the same toolbox opened in dynamic mode and in proxy mode.

use std::io;

use serde_json::{Value, json};

use super::Stage;
use super::client::Client;
use super::server::Name;

const CLIENT: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"demo","version":"1"}}"#;

/// One row of the summary: who sees how many tools in how many bytes.
type Row = (&'static str, usize, usize);

pub(super) async fn walk(stage: &mut Stage<'_>) -> io::Result<()> {
    stage
        .page
        .say("Three small servers in two toolboxes behind one gateway. All of them are this program.")?;
    stage.page.heading("The configuration")?;
    let config = config(&stage.executable.to_string_lossy());
    stage.page.say(config.trim_end())?;
    let file = stage.write("workbench-config.json", &config)?;
    let file = file.to_string_lossy();

    let direct: Vec<_> =
        [Name::Text, Name::Notes, Name::Numbers].into_iter().flat_map(Name::definitions).collect();
    let mut rows: Vec<Row> = vec![("all three servers, without a gateway", direct.len(), list_size(&direct))];

    stage.page.heading("Dynamic mode: the tools of a toolbox join the client's list when it is opened")?;
    let mut client = stage.gateway(&["--face", "workbench", "--config", &file]).await?;
    greet(stage, &mut client, true).await?;
    rows.push(list(stage, &mut client, "dynamic mode, nothing open").await?);
    stage.page.say("\nNo server runs yet. The model needs to write, so it opens that toolbox:\n")?;
    call(stage, &mut client, "open_toolbox", r#"{"toolbox_name":"writing"}"#).await?;
    rows.push(list(stage, &mut client, "dynamic mode, writing open").await?);
    stage
        .page
        .say("\nNow it calls a tool like any other; the server gets it under its own name, add_note:\n")?;
    call(stage, &mut client, "writing__notes__add_note", r#"{"text":"Water the plants"}"#).await?;
    client.end().await;

    stage
        .page
        .heading("Proxy mode: always the same two tools, for clients that do not take up a changed list")?;
    let mut client =
        stage.gateway(&["--face", "workbench", "--config", &file, "--tool-mode", "proxy"]).await?;
    greet(stage, &mut client, false).await?;
    rows.push(list(stage, &mut client, "proxy mode, always").await?);
    stage.page.say("\nHere opening answers with the tools instead of adding them to the list:\n")?;
    call(stage, &mut client, "open_toolbox", r#"{"toolbox_name":"writing"}"#).await?;
    stage.page.say("\nThey are called through use_tool:\n")?;
    let arguments = r#"{"tool":{"toolbox":"writing","server":"text","tool":"count"},"arguments":{"text":"one two three"}}"#;
    call(stage, &mut client, "use_tool", arguments).await?;
    client.end().await;

    stage.page.heading("What the model has to read before it can begin")?;
    for (who, tools, bytes) in rows {
        stage.page.say(&format!("{who:<38}{tools:>3} {:<6}{bytes:>6} bytes", plural(tools)))?;
    }
    stage.page.say(
        "\nThe servers of this demo are tiny. Real ones have dozens of tools each, and a toolbox costs",
    )?;
    stage.page.say("nothing but its line in the instructions until it is opened.")
}

/// The file, laid out as a person would.
fn config(executable: &str) -> String {
    let entry = |name: &str| {
        format!(
            "\"{name}\": {{ \"command\": {}, \"args\": [\"demo-server\", \"{name}\"] }}",
            json!(executable)
        )
    };
    format!(
        r#"{{
  "toolboxes": {{
    "writing": {{
      "description": "Count and reshape text, keep notes",
      "mcpServers": {{
        {},
        {}
      }}
    }},
    "math": {{
      "description": "Statistics and number bases",
      "mcpServers": {{
        {}
      }}
    }}
  }}
}}
"#,
        entry("text"),
        entry("notes"),
        entry("numbers"),
    )
}

async fn greet(stage: &mut Stage<'_>, client: &mut Client, show: bool) -> io::Result<()> {
    stage.page.sent("initialize")?;
    let answer = client.request("initialize", CLIENT).await?;
    client.notify("notifications/initialized").await?;
    let result: Value = serde_json::from_str(&answer.result)?;
    if show {
        let instructions = result["instructions"].as_str().unwrap_or_default();
        stage.page.received(&format!("instructions:\n{}", folded(instructions)))
    } else {
        stage.page.received("instructions, as above but for the way to call")
    }
}

async fn list(stage: &mut Stage<'_>, client: &mut Client, what: &'static str) -> io::Result<Row> {
    stage.page.sent("tools/list")?;
    let answer = client.request("tools/list", "{}").await?;
    let result: Value = serde_json::from_str(&answer.result)?;
    let tools = result["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    // Without the frame around the list.
    let bytes = answer.result.len() - "{\"tools\":}".len();
    let names = folded(&names.join(", "));
    stage.page.received(&format!("{} {} in {bytes} bytes:\n{names}", tools.len(), plural(tools.len())))?;
    Ok((what, tools.len(), bytes))
}

async fn call(stage: &mut Stage<'_>, client: &mut Client, tool: &str, arguments: &str) -> io::Result<()> {
    stage.page.sent(&format!("tools/call {tool} {arguments}"))?;
    let answer =
        client.request("tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#)).await?;
    for notification in &answer.notifications {
        stage.page.received(notification)?;
    }
    let result: Value = serde_json::from_str(&answer.result)?;
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    match result["isError"] == true {
        true => Err(io::Error::other(format!("{tool}: {text}"))),
        false => stage.page.received_json(text),
    }
}

/// The size of a list in JSON.
fn list_size(items: &[String]) -> usize {
    items.join(",").len() + "[]".len()
}

fn plural(tools: usize) -> &'static str {
    if tools == 1 { "tool" } else { "tools" }
}

/// The text with its long lines broken between words.
fn folded(text: &str) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let mut width = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if width > 0 && width + 1 + length > 94 {
                folded.push_str("\n");
                width = 0;
            } else if width > 0 {
                folded.push(' ');
                width += 1;
            }
            folded.push_str(word);
            width += length;
        }
        folded.push('\n');
    }
    folded
}
