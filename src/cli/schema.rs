//! `schema`, `completions` and `man`: what other programs need to know about us.

use super::change::{Console, JsonAnswer};
use super::completions::{Shell, script};
use super::failure::Failure;
use crate::config::locate::FaceKind;
use crate::config::read::{listed, nearest};
use clap::Command;
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;

/// The URLs of the schemas of `workbench-config.json` and `tools.toml`.
pub(super) const SCHEMA_URLS: (&str, &str) = (
    "https://raw.githubusercontent.com/mcp-workbench/mcp-workbench/main/schema/workbench-config.schema.json",
    "https://raw.githubusercontent.com/mcp-workbench/mcp-workbench/main/schema/tools.schema.json",
);

/// Prints the JSON Schema of a face's file.
pub(super) fn schema(face: FaceKind, out: &mut dyn Write) -> io::Result<JsonAnswer> {
    let text = match face {
        FaceKind::Workbench => crate::config::schema::WORKBENCH,
        FaceKind::Toolman => crate::config::schema::TOOLMAN,
    };
    out.write_all(text.as_bytes())?;
    Ok(JsonAnswer::new())
}

/// Prints the shell's completion script.
pub(super) fn completions(
    shell: Shell,
    face: FaceKind,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<JsonAnswer> {
    tell("script", script(shell, face.program()), json, out)
}

/// Prints the manual page of the program or of a verb.
pub(super) fn man(
    mut command: Command,
    verb: Option<&str>,
    json: bool,
    out: &mut dyn Write,
) -> Result<JsonAnswer, Failure> {
    command.build();
    let page = match verb {
        None => page(&command)?,
        Some(name) => match verbs(&command).find(|verb| verb.get_name() == name) {
            Some(verb) => page(verb)?,
            None => {
                let all: Vec<_> = verbs(&command).map(Command::get_name).collect();
                let hint = match nearest(name, &all) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the verbs are {}", listed(&all, "and")),
                };
                return Err(Failure::usage(format!("there is no verb `{name}`"), hint));
            }
        },
    };
    Ok(tell("page", page, json, out)?)
}

/// Writes the manual pages of the program and of all its verbs into a directory, which is created if
/// necessary.
pub(super) fn write_man(
    mut command: Command,
    directory: &Path,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    command.build();
    let failed = |path: &Path, error: io::Error| {
        let hint = "name a directory that you may write to";
        Failure::failed(format!("cannot write {}: {error}", path.display()), hint)
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let mut files = Vec::new();
    for page_of in std::iter::once(&command).chain(verbs(&command)) {
        let name = page_of.get_display_name().unwrap_or(page_of.get_name());
        let file = directory.join(format!("{name}.1"));
        std::fs::write(&file, page(page_of)?).map_err(|error| failed(&file, error))?;
        files.push(file);
    }
    console.say(&format!("Wrote {} pages to {}", files.len(), directory.display()))?;
    Ok(JsonAnswer::from_iter([("files".to_owned(), json!(files))]))
}

fn page(command: &Command) -> io::Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    String::from_utf8(page).map_err(io::Error::other)
}

/// The verbs that people use.
fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// Prints a text, or returns it under a key for `--json`.
fn tell(key: &str, text: String, json: bool, out: &mut dyn Write) -> io::Result<JsonAnswer> {
    if json {
        return Ok(JsonAnswer::from_iter([(key.to_owned(), text.into())]));
    }
    out.write_all(text.as_bytes())?;
    Ok(JsonAnswer::new())
}
