//! `schema`, `completions` and `man`: what other programs need to know about us.

use super::change::Answer;
use crate::config::locate::Face;
use clap::Command;
use std::io::{self, Write};

/// The URLs of the schemas of `workbench-config.json` and `tools.toml`.
pub(super) const SCHEMA_URLS: (&str, &str) = (
    "https://raw.githubusercontent.com/mcp-workbench/mcp-workbench/main/schema/workbench-config.schema.json",
    "https://raw.githubusercontent.com/mcp-workbench/mcp-workbench/main/schema/tools.schema.json",
);

/// Prints the JSON Schema of a face's file.
pub(super) fn schema(face: Face, out: &mut dyn Write) -> io::Result<Answer> {
    let text = match face {
        Face::Workbench => crate::config::schema::WORKBENCH,
        Face::Toolman => crate::config::schema::TOOLMAN,
    };
    out.write_all(text.as_bytes())?;
    Ok(Answer::new())
}

/// Prints the shell's completion script.
pub(super) fn completions(
    shell: clap_complete::Shell,
    mut command: Command,
    program: &str,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, program, &mut script);
    let mut script = String::from_utf8(script).map_err(io::Error::other)?;
    if shell == clap_complete::Shell::Bash {
        // clap spells a program with a hyphen in two ways, so that nothing completes after a verb (clap
        // #6421).
        script = script.replace(&program.replace('-', "__subcmd__"), &program.replace('-', "__"));
    }
    tell("script", script, json, out)
}

/// Prints the manual page.
pub(super) fn man(command: Command, json: bool, out: &mut dyn Write) -> io::Result<Answer> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    tell("page", String::from_utf8(page).map_err(io::Error::other)?, json, out)
}

/// Prints a text, or returns it under a key for `--json`.
fn tell(key: &str, text: String, json: bool, out: &mut dyn Write) -> io::Result<Answer> {
    if json {
        return Ok(Answer::from_iter([(key.to_owned(), text.into())]));
    }
    out.write_all(text.as_bytes())?;
    Ok(Answer::new())
}
