//! `doctor`: starts every server once and prints a line for each: that it is well, or what is wrong and what
//! to do.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::World;
use super::advice::advice;
use super::diagnosis::Diagnosis;
use super::failure::{Failure, FailureKind, OutputMode};
use super::load::{Loader, Overrides, checked_env_file, form, runtime, signal};
use super::login;
use super::screen::{Screen, columns, padded, wrapped};
use super::version::version;
use crate::config::locate::{FaceKind, NotFound};
use crate::gateway::doctor::{Finding, Oddity, Remark};
use crate::gateway::{Configured, Gateway};
use crate::text::listed;

/// A server that takes this long counts as slow.
const SLOW: Duration = Duration::from_secs(5);

/// Examines every server of the file and returns the exit status.
pub(super) fn run(
    face: FaceKind,
    file: Result<PathBuf, NotFound>,
    overrides: &Overrides,
    client: &str,
    (output, screen): (OutputMode, Screen),
    world: World,
) -> Result<u8, Failure> {
    let mut out = io::stdout();
    let shown_file = file.as_ref().ok().cloned();
    let loaded = load(face, file, overrides, output, &world);
    if !output.json {
        let program = format!("{} {}", face.program(), version());
        writeln!(out, "{}", screen.bold(&program))?;
        if let Some(file) = &shown_file {
            writeln!(out, "{}", output.paths(&file.to_string_lossy()))?;
        }
        let path = format!("PATH {}", world.variable("PATH").unwrap_or_default());
        writeln!(out, "{}", output.paths(&path))?;
        let (problem, elsewhere) = daemons(&world);
        let is_off = loaded.as_ref().is_ok_and(|(configured, _)| !configured.face.common().daemon.on);
        match problem {
            None if is_off => writeln!(out, "the daemon can be used; this file does not switch it on")?,
            None => writeln!(out, "the daemon can be used")?,
            Some(problem) => writeln!(out, "the daemon cannot be used: {}", output.paths(&problem))?,
        }
        for directory in elsewhere {
            let directory = output.paths(&directory.to_string_lossy());
            let whose = "for sessions with another XDG_RUNTIME_DIR or TMPDIR";
            writeln!(out, "another daemon runs in {directory}, {whose}")?;
        }
        writeln!(out)?;
    }
    let (configured, file) = loaded?;
    let findings = examine(configured, client, screen, &world)?;
    match output.json {
        true => {
            let mut told = as_json(face, &findings);
            told["version"] = version().into();
            told["config"] = file.to_string_lossy().into();
            told["path"] = world.variable("PATH").into();
            let (problem, elsewhere) = daemons(&world);
            let elsewhere: Vec<_> = elsewhere.iter().map(|directory| directory.to_string_lossy()).collect();
            told["daemon"] =
                json!({ "usable": problem.is_none(), "problem": problem, "elsewhere": elsewhere });
            writeln!(out, "{told}")?;
        }
        false => as_text(face, &findings, (output, screen), &mut out)?,
    }
    let well = findings.iter().all(|finding| finding.outcome.is_ok());
    Ok(if well { 0 } else { FailureKind::Unreachable.status() })
}

/// Reads the file: what it configures, and where it is.
fn load(
    face: FaceKind,
    file: Result<PathBuf, NotFound>,
    overrides: &Overrides,
    output: OutputMode,
    world: &World,
) -> Result<(Configured, PathBuf), Failure> {
    let asking = Loader::for_asking(face, file, overrides, world)?;
    let loader = Loader { reader: checked_env_file, ..asking };
    let (configured, _) = loader.load(output)?;
    Ok((configured, loader.file))
}

/// Starts every server once and ends it. Names of tools are made for a client called `client`.
pub(super) fn examine(
    configured: Configured,
    client: &str,
    screen: Screen,
    world: &World,
) -> Result<Vec<Finding>, Failure> {
    let runtime = runtime()?;
    let around = world.engine_surroundings(world.attendance());
    let findings = runtime.block_on(async {
        let interrupted = signal()?;
        let gateway = Gateway::new(configured, around);
        let examine =
            || screen.while_waiting("starting the servers", || gateway.starting(), gateway.examine(client));
        let examined = async {
            let findings = examine().await;
            // If nobody can be asked to log in, there are no logins here.
            match login::go_through(screen, findings.iter().filter_map(|finding| finding.login.clone())).await
            {
                true => examine().await,
                false => findings,
            }
        };
        let findings = tokio::select! {
            findings = examined => Some(findings),
            () = interrupted => None,
        };
        gateway.end().await;
        Ok::<_, io::Error>(findings)
    });
    runtime.shutdown_background();
    findings?.ok_or_else(|| {
        screen.clear();
        Failure::interrupted("all servers that were started have been ended")
    })
}

/// Why the daemon cannot be used, if it cannot, and the directories of daemons that sessions from here do not find.
fn daemons(world: &World) -> (Option<String>, Vec<PathBuf>) {
    let Ok(runtime) = runtime() else { return (None, Vec::new()) };
    let daemons = world.daemons();
    let (checked, elsewhere) =
        runtime.block_on(async { (daemons.check().await, daemons.found_elsewhere().await) });
    (checked.err().map(|problem| problem.to_string()), elsewhere)
}

/// A finding in words.
struct ServerRow<'a> {
    finding: &'a Finding,
    problem: Option<String>,
    hint: Option<String>,
    stderr: Vec<String>,
}

impl<'a> ServerRow<'a> {
    fn new(finding: &'a Finding) -> Self {
        let error = match &finding.outcome {
            Err(error) => error,
            Ok(_) => return Self { finding, problem: None, hint: remark(finding), stderr: Vec::new() },
        };
        let lines = error.stderr.lines();
        let stderr = lines.map(|line| printable(line.strip_prefix("  ").unwrap_or(line))).collect();
        let Diagnosis { problem, hint } = advice(&finding.label, error);
        let problem = problem.unwrap_or_else(|| error.problem.to_string());
        Self { finding, problem: Some(printable(&problem)), hint: Some(printable(&hint)), stderr }
    }

    fn is_ok(&self) -> bool {
        self.problem.is_none()
    }
}

/// A remark about a server that is well.
fn remark(finding: &Finding) -> Option<String> {
    let mut remarks = Vec::new();
    if finding.took >= SLOW {
        remarks.push("it was slow to start; if it is downloaded every time, install it".to_owned());
    }
    if finding.remarks.contains(&Remark::ByLoginShell) {
        remarks.push(
            "its command is not on PATH and was looked up in the login shell's PATH; an absolute path saves that step"
                .to_owned(),
        );
    }
    if finding.remarks.contains(&Remark::KeepsState) {
        remarks.push(
            "it keeps state for one client, such as the page in a browser; over HTTP all clients share it unless its entry says `\"isolation\": \"session\"`"
                .to_owned(),
        );
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

/// Foreign text without anything that a terminal would act on.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The findings for a program.
pub(super) fn as_json(face: FaceKind, findings: &[Finding]) -> Value {
    let rows: Vec<_> = findings.iter().map(ServerRow::new).collect();
    let servers: Vec<_> = rows
        .iter()
        .map(|row| {
            let finding = row.finding;
            let renamed: serde_json::Map<_, _> =
                finding.renamed.iter().map(|(full, name)| (full.to_string(), Value::from(&**name))).collect();
            let mut server = json!({
                "ok": row.is_ok(),
                "tools": finding.outcome.as_ref().ok(),
                "ms": finding.took.as_millis() as u64,
                "problem": row.problem,
                "hint": row.hint,
                "stderr": row.stderr,
                "renamed": renamed,
                "login": login::as_json(finding.known_login.as_ref()),
                "mended": finding.oddities.iter().filter_map(mended).collect::<Vec<_>>(),
                "nameless": finding.oddities.iter().filter_map(nameless).sum::<usize>(),
                "withheld": finding.withheld.iter().map(|name| &**name).collect::<Vec<_>>(),
                "program": finding.program.as_ref().map(|program| program.to_string_lossy()),
            });
            match face {
                FaceKind::Workbench => {
                    server["toolbox"] = (*finding.group).into();
                    server["server"] = finding.server.as_str().into();
                }
                FaceKind::Toolman => server["namespace"] = (*finding.group).into(),
            }
            server
        })
        .collect();
    json!({ "ok": rows.iter().all(ServerRow::is_ok), "servers": servers })
}

fn mended(oddity: &Oddity) -> Option<Value> {
    match oddity {
        Oddity::Mended { kind, key, members } => {
            Some(json!({ "kind": kind.noun(), "name": **key, "members": members }))
        }
        Oddity::Nameless { .. } => None,
    }
}

fn nameless(oddity: &Oddity) -> Option<usize> {
    match oddity {
        Oddity::Mended { .. } => None,
        Oddity::Nameless { count, .. } => Some(*count),
    }
}

/// Something that clients see in another form than it came, in words.
fn told(oddity: &Oddity) -> String {
    match oddity {
        Oddity::Mended { kind, key, members } => {
            let members = printable(&members.join(", "));
            format!(
                "the {} {} is shown corrected, since MCP does not allow its {members}",
                kind.noun(),
                printable(key)
            )
        }
        Oddity::Nameless { kind, count: 1 } => format!("1 {} has no name and cannot be shown", kind.noun()),
        Oddity::Nameless { kind, count } => {
            format!("{count} {}s have no name and cannot be shown", kind.noun())
        }
    }
}

/// Prints the findings for a person.
pub(super) fn as_text(
    face: FaceKind,
    findings: &[Finding],
    (output, screen): (OutputMode, Screen),
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = Vec::new();
    write_rows(face, findings, screen, &mut text)?;
    let text = output.paths(&String::from_utf8_lossy(&text));
    out.write_all(wrapped(&text, screen.width).as_bytes())
}

fn write_rows(face: FaceKind, findings: &[Finding], screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<_> = findings.iter().map(ServerRow::new).collect();
    let arrow = if screen.unicode && screen.terminal { "→" } else { "->" };
    let (well, ill) = (screen.painted("32", "ok    "), screen.painted("1;31", "failed"));
    if rows.is_empty() {
        return writeln!(out, "no servers are configured");
    }
    let width = rows.iter().map(|row| columns(&row.finding.label)).max().unwrap_or(0).min(40);
    for row in &rows {
        let (finding, ms) = (row.finding, row.finding.took.as_millis());
        let label = padded(&finding.label, width);
        match &finding.outcome {
            Ok(1) => writeln!(out, "{well}  {label}  1 tool, {ms} ms")?,
            Ok(tools) => writeln!(out, "{well}  {label}  {tools} tools, {ms} ms")?,
            Err(_) => {
                let problem = row.problem.as_deref().unwrap_or_default();
                writeln!(out, "{ill}  {label}  {problem}")?;
            }
        }
        if let Some(program) = &finding.program {
            writeln!(out, "        {}", printable(&program.to_string_lossy()))?;
        }
        if let Some(login) = &finding.known_login {
            writeln!(out, "        {}", login::as_text(login))?;
        }
        for line in &row.stderr {
            writeln!(out, "        | {line}")?;
        }
        if let Some(hint) = &row.hint {
            writeln!(out, "        {arrow} {hint}")?;
        }
        for (full, name) in &finding.renamed {
            writeln!(
                out,
                "        {} is shown as {name}, since clients would not accept its own name",
                printable(full)
            )?;
        }
        for oddity in &finding.oddities {
            writeln!(out, "        {}", told(oddity))?;
        }
        if !finding.withheld.is_empty() {
            let (names, command) = (listed(&finding.withheld), form(face).command());
            writeln!(out, "        withheld by the lock: {names}")?;
            writeln!(out, "        {arrow} run `{command}` to see what changed and to approve it")?;
        }
    }
    let failed = rows.iter().filter(|row| !row.is_ok()).count();
    match failed {
        0 => writeln!(out, "all is well"),
        _ => writeln!(out, "{failed} of {} servers cannot be used", rows.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_commands_nothing() {
        assert_eq!(printable("a\u{1b}[31mb\tc"), "a [31mb c");
    }
}
