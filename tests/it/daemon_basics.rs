//! The daemon on every system: two sessions share a server, and `stop` leaves nothing. `daemon/` has the rest, which
//! needs a system that shows its processes.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Lab, Peer, VERSION, fake};

#[test]
fn two_sessions_share_a_server_and_stop_leaves_nothing() {
    let lab = Lab::new();
    let servers = json!({"a": fake("--with report")});
    let config =
        json!({"daemon": true, "toolMode": "dynamic", "toolboxes": {"dev": {"mcpServers": servers}}});
    lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    // The path of a socket must be short, and that of a temporary directory of macOS is not.
    let runtime =
        if cfg!(target_os = "macos") { Path::new("/tmp").join(&lab.marker) } else { lab.dir.clone() };
    std::fs::create_dir_all(&runtime).expect("a temporary directory");
    let command = || {
        let mut command = lab.command();
        command.env("XDG_RUNTIME_DIR", &runtime).env("TMPDIR", &runtime).env("LOCALAPPDATA", &runtime);
        command
    };
    let mut sessions = [(); 2].map(|()| Peer::spawn(&mut command()));
    let pids = sessions.each_mut().map(|session| {
        session.initialize(VERSION);
        session.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        session.call("dev__a__report", "{}").json()["pid"].clone()
    });
    assert_eq!(pids[0], pids[1], "{}", sessions[0].stderr());
    let status: Value =
        serde_json::from_str(&lab.run(command().args(["status", "--json"])).stdout).expect("JSON");
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(2), "{status:#}");
    assert_eq!((&status["servers"][0]["pid"], &status["servers"][0]["sessions"]), (&pids[0], &json!(2)));
    assert!(status["daemon"]["rss"].as_u64() > Some(0), "{status:#}");
    for mut session in sessions {
        assert_eq!(session.stderr(), "");
        session.close();
        assert!(session.wait().success());
    }
    let stopped = lab.run(command().arg("stop"));
    assert_eq!((stopped.code, &*stopped.stdout), (Some(0), "The daemon and its servers have ended.\n"));
    assert_eq!(lab.run(command().arg("status")).stdout, "No daemon runs.\n");
    assert_eq!(lab.processes(), []);
    if runtime != lab.dir {
        std::fs::remove_dir_all(runtime).expect("it is ours");
    }
}
