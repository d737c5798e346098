//! `status` and `stop`: what the daemon runs, told by itself, and the end of all daemons.

use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::World;
use super::daemon::{Pool, PoolMember, RunningDaemon};
use super::failure::{Failure, OutputMode};
use super::load::runtime;
use super::screen::Screen;
use crate::config::locate::FaceKind;
use crate::core::process::{ProcessTable, own_memory};
use crate::core::upstream::Upstream;
use crate::text::date::rfc3339;
use std::sync::Arc;

/// What this build's daemon runs, as `status --json` shows it, without the daemons of other builds.
pub(super) fn told(daemon: &RunningDaemon) -> Value {
    let (pools, processes) = (daemon.pools(), ProcessTable::now());
    let sessions = pools.iter().flat_map(|pool| pool.members.all());
    let servers = pools.iter().flat_map(|pool| {
        let mut servers = pool.engine.registry.all();
        servers.sort_by(|one, other| (&one.group, &one.server).cmp(&(&other.group, &other.server)));
        servers.into_iter().map(|upstream| server(pool, &upstream, &processes)).collect::<Vec<_>>()
    });
    json!({
        "daemon": {
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "uptime": daemon.begun.elapsed().as_secs(),
            "rss": own_memory(),
        },
        "sessions": sessions.map(|member| session(&member)).collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
    })
}

fn session(member: &PoolMember) -> Value {
    let daemon_session = &member.daemon_session;
    let since = daemon_session.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    json!({
        "client": member.client(),
        "pid": member.pid,
        "directory": daemon_session.directory.to_string_lossy(),
        "file": member.file.to_string_lossy(),
        "since": rfc3339(since),
        "calls": daemon_session.calls(),
    })
}

fn server(pool: &Pool, upstream: &Arc<Upstream>, processes: &ProcessTable) -> Value {
    let state = match upstream {
        _ if upstream.is_starting() => "starting",
        _ if upstream.is_up() => "running",
        _ if upstream.has_failed() => "failed",
        _ => "stopped",
    };
    let pid = upstream.usage.pid().filter(|_| matches!(state, "starting" | "running"));
    let mut told = json!({
        "state": state,
        "pid": pid,
        "rss": pid.map_or(0, |pid| processes.of_tree(pid)),
        "sessions": pool.engine.audience.lookers(upstream).len(),
        "calls": upstream.usage.calls(),
        "idle": upstream.usage.idle().as_secs(),
    });
    match pool.face {
        FaceKind::Workbench => {
            told["toolbox"] = (*upstream.group).into();
            told["server"] = (*upstream.server).into();
        }
        FaceKind::Toolman => told["namespace"] = (*upstream.group).into(),
    }
    told
}

/// Shows what this build's daemon runs.
pub(super) fn status(world: &World, output: OutputMode, screen: Screen) -> Result<u8, Failure> {
    let daemons = world.daemons();
    let (told, others) = runtime()?.block_on(async {
        let told = match daemons.find().await {
            Ok(Some(link)) => link.status().await.map(Some),
            other => other.map(|_| None),
        };
        let told = told.map_err(|problem| {
            let hint = "end it with `stop`, and the next session starts a new one";
            Failure::failed(format!("the daemon does not say what it runs: {problem}"), hint)
        })?;
        Ok::<_, Failure>((told, daemons.others().await))
    })?;
    let mut told = told.unwrap_or_else(|| json!({ "daemon": null, "sessions": [], "servers": [] }));
    told["others"] = others.into();
    let mut out = io::stdout();
    match output.json {
        true => writeln!(out, "{told}")?,
        false => write!(out, "{}", as_text(&told, screen))?,
    }
    Ok(0)
}

fn as_text(told: &Value, screen: Screen) -> String {
    let mut text = String::new();
    let daemon = &told["daemon"];
    match daemon.is_null() {
        true => text.push_str("No daemon runs.\n"),
        false => {
            let (pid, version) = (&daemon["pid"], daemon["version"].as_str().unwrap_or_default());
            let memory = memory(&daemon["rss"]);
            text.push_str(&format!(
                "Daemon {version}: process {pid}, {memory}, running for {}\n",
                seconds(&daemon["uptime"])
            ));
        }
    }
    let others: Vec<_> = told["others"].as_array().into_iter().flatten().map(Value::to_string).collect();
    match &*others {
        [] => {}
        [pid] => text.push_str(&format!("Daemon of another build: process {pid}\n")),
        pids => text.push_str(&format!("Daemons of other builds: processes {}\n", pids.join(", "))),
    }
    let rows = |list: &str, cells: &dyn Fn(&Value) -> Vec<String>| -> Vec<Vec<String>> {
        told[list].as_array().into_iter().flatten().map(cells).collect()
    };
    let sessions = rows("sessions", &|session| {
        let word = |key: &str| screen.text(session[key].as_str().unwrap_or("-"));
        vec![
            word("client"),
            session["pid"].to_string(),
            session["calls"].to_string(),
            word("since"),
            word("directory"),
            word("file"),
        ]
    });
    if !sessions.is_empty() {
        text.push('\n');
        text.push_str(&screen.table(&["CLIENT", "PID", "CALLS", "SINCE", "DIRECTORY", "FILE"], &sessions));
    }
    let servers = rows("servers", &|server| {
        let name = match (server["toolbox"].as_str(), server["server"].as_str()) {
            (Some(toolbox), Some(name)) => format!("{toolbox}/{name}"),
            _ => server["namespace"].as_str().unwrap_or_default().to_owned(),
        };
        let pid = if server["pid"].is_null() { "-".to_owned() } else { server["pid"].to_string() };
        vec![
            screen.text(&name),
            server["state"].as_str().unwrap_or_default().to_owned(),
            pid,
            memory(&server["rss"]),
            server["sessions"].to_string(),
            server["calls"].to_string(),
            seconds(&server["idle"]),
        ]
    });
    if !servers.is_empty() {
        text.push('\n');
        text.push_str(
            &screen.table(&["SERVER", "STATE", "PID", "MEMORY", "SESSIONS", "CALLS", "IDLE"], &servers),
        );
    }
    text
}

/// What is not there takes no memory, and what the system does not tell is not made up.
fn memory(bytes: &Value) -> String {
    match bytes.as_f64() {
        Some(bytes) if bytes > 0.0 => format!("{:.1} MB", bytes / 1e6),
        _ => "-".to_owned(),
    }
}

fn seconds(seconds: &Value) -> String {
    match seconds.as_u64().unwrap_or(0) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Ends all daemons of this user, and returns when they and their servers are gone.
pub(super) fn stop(world: &World, output: OutputMode) -> Result<u8, Failure> {
    let daemons = world.daemons();
    let (ended, problems) = runtime()?.block_on(daemons.stop());
    if let Some((socket, problem)) = problems.first() {
        let socket = socket.display();
        let hint = match cfg!(windows) {
            true => format!("{socket} names its pipe, and the pipe its process; end that process by hand"),
            false => format!("`lsof {socket}` shows its process; end that process by hand"),
        };
        let message = format!("the process that listens at {socket} cannot be ended: {problem}");
        return Err(Failure::failed(message, format!("{hint}, and its servers end with it")));
    }
    let mut out = io::stdout();
    match (output.json, ended) {
        (true, _) => writeln!(out, "{}", json!({ "ended": ended }))?,
        (false, 0) => writeln!(out, "No daemon runs.")?,
        (false, 1) => writeln!(out, "The daemon and its servers have ended.")?,
        (false, _) => writeln!(out, "{ended} daemons and their servers have ended.")?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_shown_as_tables() {
        let told = json!({
            "daemon": {"pid": 7, "version": "1.2.3", "uptime": 3700, "rss": 1_500_000},
            "others": [8, 9],
            "sessions": [{"client": null, "pid": 10, "directory": "/work", "file": "/f.json", "since": "2026-01-02T03:04:05Z", "calls": 3}],
            "servers": [
                {"toolbox": "dev", "server": "fs", "state": "running", "pid": 11, "rss": 8_200_000, "sessions": 1, "calls": 3, "idle": 59},
                {"namespace": "n", "state": "stopped", "pid": null, "rss": 0, "sessions": 0, "calls": 0, "idle": 61},
            ],
        });
        let screen =
            Screen { moves: false, asks: false, terminal: false, colour: false, unicode: true, width: None };
        let text = as_text(&told, screen);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let line = |at: usize| lines[at].join(" ");
        assert_eq!(line(0), "Daemon 1.2.3: process 7, 1.5 MB, running for 1 h 1 min");
        assert_eq!(line(1), "Daemons of other builds: processes 8, 9");
        assert_eq!(line(3), "CLIENT PID CALLS SINCE DIRECTORY FILE");
        assert_eq!(line(4), "- 10 3 2026-01-02T03:04:05Z /work /f.json");
        assert_eq!(line(6), "SERVER STATE PID MEMORY SESSIONS CALLS IDLE");
        assert_eq!(line(7), "dev/fs running 11 8.2 MB 1 3 59 s");
        assert_eq!(line(8), "n stopped - - 0 0 1 min");
        let none = as_text(&json!({"daemon": null, "others": [], "sessions": [], "servers": []}), screen);
        assert_eq!(none, "No daemon runs.\n");
        let other = as_text(&json!({"daemon": null, "others": [8], "sessions": [], "servers": []}), screen);
        assert_eq!(other, "No daemon runs.\nDaemon of another build: process 8\n");
    }
}
