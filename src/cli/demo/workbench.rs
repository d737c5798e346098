//! The workbench's demo: the same toolbox opened in dynamic mode and in proxy mode.

use std::io;

use serde_json::json;

use super::Stage;
use super::server::Name;
use super::steps::{call, direct, greet, list, summary};

pub(super) async fn walk(stage: &mut Stage<'_>) -> io::Result<()> {
    stage
        .page
        .say("Three small servers in two toolboxes behind one gateway. All of them are this program.")?;
    stage.page.heading("The configuration")?;
    let config = config(&stage.executable.to_string_lossy());
    stage.page.say(config.trim_end())?;
    let file = stage.write("workbench-config.json", &config)?;
    let file = file.to_string_lossy();

    let mut rows =
        vec![direct("all three servers, without a gateway", &[Name::Text, Name::Notes, Name::Numbers])];

    stage.page.heading("Dynamic mode: the tools of a toolbox join the client's list when it is opened")?;
    let mut client = stage.gateway(&["--face", "workbench", "--config", &file]).await?;
    greet(stage, &mut client, true).await?;
    rows.push(list(stage, &mut client, "dynamic mode, nothing open").await?.0);
    stage.page.say("\nNo server runs yet. The model needs to write, so it opens that toolbox:\n")?;
    call(stage, &mut client, "open_toolbox", r#"{"toolbox_name":"writing"}"#).await?;
    rows.push(list(stage, &mut client, "dynamic mode, writing open").await?.0);
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
    rows.push(list(stage, &mut client, "proxy mode, always").await?.0);
    stage.page.say("\nHere opening answers with the tools instead of adding them to the list:\n")?;
    call(stage, &mut client, "open_toolbox", r#"{"toolbox_name":"writing"}"#).await?;
    stage.page.say("\nThey are called through use_tool:\n")?;
    let arguments = r#"{"tool":{"toolbox":"writing","server":"text","tool":"count"},"arguments":{"text":"one two three"}}"#;
    call(stage, &mut client, "use_tool", arguments).await?;
    client.end().await;

    stage.page.heading("What the model has to read before it can begin")?;
    summary(stage, &rows)?;
    stage.page.say(
        "\nThe servers of this demo are tiny. Real ones have dozens of tools each, and a toolbox costs",
    )?;
    stage.page.say("nothing but its line in the instructions until it is opened.")
}

/// The file, laid out as a person would write it.
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
