//! Toolman's demo: one catalog, of which the model switches on what it needs.

use std::io;

use serde_json::json;

use super::Stage;
use super::clients::shell_word;
use super::server::Name;
use super::steps::{call, direct, greet, list, summary};

pub(super) async fn walk(stage: &mut Stage<'_>) -> io::Result<()> {
    stage.page.say("Three small servers behind one gateway. All of them are this program.")?;
    stage.page.heading("The configuration")?;
    let config = config(&stage.executable.to_string_lossy());
    stage.page.say(config.trim_end())?;
    let file = stage.write("tools.toml", &config)?;
    let mut rows =
        vec![direct("all three servers, without a gateway", &[Name::Text, Name::Notes, Name::Numbers])];

    stage.page.heading("What is active is listed, everything else is a line of the catalog")?;
    let mut client = stage.gateway(&["--face", "toolman", "--config", &file.to_string_lossy()]).await?;
    greet(stage, &mut client, true).await?;
    let (row, tools) = list(stage, &mut client, "toolman, at the start").await?;
    rows.push(row);
    stage.page.say("\nThe description of toolman_activate ends with the catalog:\n")?;
    let description = tools[0]["description"].as_str().unwrap_or_default();
    stage.page.received_whole(
        description
            .rsplit_once("\n\nServers")
            .map_or(description, |(head, _)| &description[head.len() + 2..]),
    )?;

    stage.page.heading("The model switches on what it needs")?;
    let on = r#"{"tools_on":["text_*"],"tools_off":[],"resources_on":[],"resources_off":[]}"#;
    call(stage, &mut client, "toolman_activate", on).await?;
    rows.push(list(stage, &mut client, "toolman, text_* switched on").await?.0);
    stage
        .page
        .say("\nNow it calls a tool like any other; the server gets it under its own name, count:\n")?;
    call(stage, &mut client, "text_count", r#"{"text":"one two three"}"#).await?;
    client.end().await;

    stage.page.heading("What the model has to read before it can begin")?;
    summary(stage, &rows)?;
    stage.page.say(
        "\nThe servers of this demo are so small that the catalog outweighs what it saves. Real ones have",
    )?;
    stage.page.say("dozens of tools with long schemas; of one that is not active, only its line is read.")
}

/// The file, laid out as a person would write it.
fn config(executable: &str) -> String {
    let server = |name: &str| {
        let command = json!(format!("{} demo-server {name}", shell_word(executable)));
        format!("\n[[servers]]\nnamespace = \"{name}\"\ncommand = {command}\n")
    };
    let servers: String = ["notes", "text", "numbers"].map(server).concat();
    format!("active_toolsets = [\"notes_*\"]\n{servers}")
}
