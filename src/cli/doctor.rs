//! `doctor`: starts every server once and says, a line each, whether it is well, or what is wrong and what to do.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::{FAILURE, UNREACHABLE, World, check, login, serve};
use crate::config::locate::{Face, NotFound};
use crate::serve::Gateway;
use crate::serve::doctor::Finding;

/// From here on a server counts as slow.
const SLOW: Duration = Duration::from_secs(5);
/// What stands between a reason and the stderr behind it.
const STDERR: &str = "\nlast lines of its stderr:\n";

/// Examines every server of the file; answers the exit status.
pub(super) fn run(
    face: Face,
    file: Result<PathBuf, NotFound>,
    style: check::Style,
    world: World,
) -> io::Result<u8> {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let readable = file.as_ref().ok().and_then(|file| Some((file.clone(), std::fs::read(file).ok()?)));
    let loaded = readable.map(|(file, bytes)| (serve::load(face, &file, &bytes, None, &world), file));
    let Some((Ok((loaded, warnings)), file)) = loaded else {
        // What is wrong with it `check` says best.
        return check::check(face, file, &|name| world.variable(name), style, &mut out, &mut err);
    };
    if !style.json {
        check::report(&warnings, style.colour, &mut err)?;
        writeln!(out, "{} {}\n{}", face.program(), env!("CARGO_PKG_VERSION"), file.display())?;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            writeln!(err, "error: cannot start: {error}")?;
            return Ok(FAILURE);
        }
    };
    let around = world.engine_surroundings(err.is_terminal());
    let findings = runtime.block_on(async {
        let interrupted = serve::signal()?;
        let gateway = Gateway::new(loaded, around);
        let examine = async {
            let findings = gateway.examine(progress(err.is_terminal())).await;
            // Where nobody is asked to log in, there are no logins.
            match login::go_through(findings.iter().filter_map(|finding| finding.login.clone())).await {
                true => gateway.examine(progress(err.is_terminal())).await,
                false => findings,
            }
        };
        let findings = tokio::select! {
            findings = examine => Some(findings),
            () = interrupted => None,
        };
        gateway.end().await;
        Ok::<_, io::Error>(findings)
    })?;
    runtime.shutdown_background();
    let Some(findings) = findings else {
        writeln!(err, "error: interrupted")?;
        return Ok(FAILURE);
    };
    let rows: Vec<_> = findings.iter().map(Row::new).collect();
    match style.json {
        true => writeln!(out, "{}", as_json(face, &rows))?,
        false => as_text(&rows, &mut out)?,
    }
    Ok(if rows.iter().all(|row| row.is_ok()) { 0 } else { UNREACHABLE })
}

/// Shows on a terminal whom is still waited for, in one line that comes and goes.
fn progress(shown: bool) -> impl FnMut(&[&str]) {
    move |waited_for| {
        if shown {
            let line = match waited_for {
                [] => String::new(),
                [one] => format!("waiting for {one} …"),
                [first, rest @ ..] => format!("waiting for {first} and {} more …", rest.len()),
            };
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
        }
    }
}

/// A finding in words.
struct Row<'a> {
    finding: &'a Finding,
    problem: Option<String>,
    hint: Option<String>,
    stderr: Vec<String>,
}

impl<'a> Row<'a> {
    fn new(finding: &'a Finding) -> Self {
        let reason = match &finding.outcome {
            Err(reason) => reason,
            Ok(_) => return Self { finding, problem: None, hint: remark(finding), stderr: Vec::new() },
        };
        let (reason, stderr) = reason.split_once(STDERR).unwrap_or((reason, ""));
        let stderr: Vec<_> =
            stderr.lines().map(|line| printable(line.strip_prefix("  ").unwrap_or(line))).collect();
        let (problem, hint) = advice(&printable(reason), !stderr.is_empty());
        Self { finding, problem: Some(problem), hint: Some(hint), stderr }
    }

    fn is_ok(&self) -> bool {
        self.problem.is_none()
    }
}

/// What is worth knowing of a server that is well.
fn remark(finding: &Finding) -> Option<String> {
    let mut remarks = Vec::new();
    if finding.took >= SLOW {
        remarks.push(
            "it is slow to start; install it instead of having it downloaded at every start".to_owned(),
        );
    }
    if finding.by_login_shell {
        remarks.push(
            "its command is not on PATH, but on that of the login shell, which is used; an absolute path is found faster"
                .to_owned(),
        );
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

/// What is wrong, and what to do about it.
fn advice(reason: &str, has_stderr: bool) -> (String, String) {
    let split = |at: &str| reason.rsplit_once(at).map(|(what, way)| (what.to_owned(), way.to_owned()));
    // These say by themselves what to do.
    if (reason.starts_with("command '") || reason.starts_with("working directory '"))
        && let Some(both) = split("; ")
    {
        return both;
    }
    let says = |text: &str| reason.to_lowercase().contains(text);
    let hint = if says("no mcp message") {
        "stdout is for MCP messages only: check that the command starts an MCP server over stdio, and let it log to stderr"
    } else if says("wants a login") {
        "run this in a terminal, where you can log in"
    } else if says("timeout") {
        "if it has to download or build something first, run it once by hand or raise its connectTimeout"
    } else if says("refused") || says("cannot connect") || says("unreachable") {
        "start the server, or correct its `url`"
    } else if says("401") || says("403") || says("unauthorized") || says("forbidden") {
        "check its `headers`: the server does not accept the credentials"
    } else if says("404") || says("405") {
        "check the path of its `url`; for a server with the old HTTP+SSE transport write \"type\": \"sse\""
    } else if says("dns") || says("resolve") || says("lookup") {
        "check the host name in its `url`"
    } else if says("protocol version") {
        "update the server"
    } else if has_stderr {
        "see what it wrote to stderr; variables that it needs go into its `env`"
    } else {
        "run its command by hand to see more; variables that it needs go into its `env`"
    };
    (reason.to_owned(), hint.to_owned())
}

/// Foreign text without anything that a terminal would act upon.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn as_json(face: Face, rows: &[Row<'_>]) -> Value {
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
            });
            match face {
                Face::Workbench => {
                    server["toolbox"] = (*finding.group).into();
                    server["server"] = finding.server.as_str().into();
                }
                Face::Toolman => server["namespace"] = (*finding.group).into(),
            }
            server
        })
        .collect();
    json!({ "ok": rows.iter().all(Row::is_ok), "servers": servers })
}

fn as_text(rows: &[Row<'_>], out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no servers are configured");
    }
    let width = rows.iter().map(|row| row.finding.label.chars().count()).max().unwrap_or(0).min(40);
    for row in rows {
        let (finding, ms) = (row.finding, row.finding.took.as_millis());
        match &finding.outcome {
            Ok(1) => writeln!(out, "ok      {:width$}  1 tool, {ms} ms", finding.label)?,
            Ok(tools) => writeln!(out, "ok      {:width$}  {tools} tools, {ms} ms", finding.label)?,
            Err(_) => {
                let problem = row.problem.as_deref().unwrap_or_default();
                writeln!(out, "failed  {:width$}  {problem}", finding.label)?;
            }
        }
        for line in &row.stderr {
            writeln!(out, "        | {line}")?;
        }
        if let Some(hint) = &row.hint {
            writeln!(out, "        → {hint}")?;
        }
        for (full, name) in &finding.renamed {
            writeln!(
                out,
                "        {} is called {name}, since clients would not take the name",
                printable(full)
            )?;
        }
    }
    let failed = rows.iter().filter(|row| !row.is_ok()).count();
    match failed {
        0 => writeln!(out, "all is well"),
        _ => writeln!(out, "{failed} of {} cannot be used", rows.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_way_out() {
        for (reason, problem, hint) in [
            (
                "command 'nope' not found; looked in PATH (/bin); install it, or give its absolute path",
                "command 'nope' not found; looked in PATH (/bin)",
                "install it",
            ),
            ("connection timeout", "connection timeout", "connectTimeout"),
            (
                "connection timeout; it wrote 2 lines to stdout that are no MCP messages",
                "no MCP",
                "stdout is for",
            ),
            ("the server exited with status 3", "status 3", "by hand"),
            ("cannot connect: Connection refused (os error 111)", "refused", "start the server"),
            ("answered with 401 Unauthorized", "401", "headers"),
        ] {
            let (what, way) = advice(reason, false);
            assert!(what.contains(problem) && way.contains(hint), "{reason}: {what} / {way}");
        }
        assert!(advice("the server exited with status 3", true).1.contains("stderr"));
        assert_eq!(printable("a\u{1b}[31mb\tc"), "a [31mb c");
    }
}
