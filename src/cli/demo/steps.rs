//! The steps of the walks: each sends something and shows what came back.

use std::io;

use serde_json::Value;

use super::Stage;
use super::client::Client;
use super::server::Name;
use crate::cli::screen::columns;

const CLIENT: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"demo","version":"1"}}"#;

/// One row of the summary: who sees how many tools, in how many bytes.
pub(super) type Row = (&'static str, usize, usize);

/// Does the handshake; shows the instructions, or only that there were some.
pub(super) async fn greet(stage: &mut Stage<'_>, client: &mut Client, show: bool) -> io::Result<()> {
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

/// Lists the tools; returns the row for the summary, and the tools.
pub(super) async fn list(
    stage: &mut Stage<'_>,
    client: &mut Client,
    what: &'static str,
) -> io::Result<(Row, Value)> {
    stage.page.sent("tools/list")?;
    let answer = client.request("tools/list", "{}").await?;
    let mut result: Value = serde_json::from_str(&answer.result)?;
    let tools = result["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    // The frame around the list does not count.
    let bytes = answer.result.len() - "{\"tools\":}".len();
    let names = folded(&names.join(", "));
    stage.page.received(&format!("{} {} in {bytes} bytes:\n{names}", tools.len(), plural(tools.len())))?;
    let row = (what, tools.len(), bytes);
    Ok((row, result["tools"].take()))
}

/// Calls a tool that must not fail, and shows the first block of the result.
pub(super) async fn call(
    stage: &mut Stage<'_>,
    client: &mut Client,
    tool: &str,
    arguments: &str,
) -> io::Result<()> {
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

/// What a client reads if these servers are configured without a gateway.
pub(super) fn direct(what: &'static str, servers: &[Name]) -> Row {
    let tools: Vec<_> = servers.iter().copied().flat_map(Name::definitions).collect();
    (what, tools.len(), tools.join(",").len() + "[]".len())
}

/// Prints the summary: who reads how much.
pub(super) fn summary(stage: &mut Stage<'_>, rows: &[Row]) -> io::Result<()> {
    for (who, tools, bytes) in rows {
        stage.page.say(&format!("{who:<38}{tools:>3} {:<6}{bytes:>6} bytes", plural(*tools)))?;
    }
    Ok(())
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
            let length = columns(word);
            if width > 0 && width + 1 + length > 94 {
                folded.push('\n');
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
