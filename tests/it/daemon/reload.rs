//! A file that changes while sessions in the daemon use it.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Den, dev, leave, open, pid_of, report, sessions, wait_until_dead};
use crate::harness::{DEADLINE, Peer, fake};

/// Waits until a session has the file whose server `a` has this value in its environment.
fn wait_for_file(peer: &mut Peer, name: &str, value: &str) {
    let end = Instant::now() + DEADLINE;
    while report(peer, "a")["env"][name] != value {
        assert!(Instant::now() < end, "the new file is not in force");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_session_for_which_the_new_file_is_not_valid_keeps_its_servers() {
    let mut config = dev(json!({"a": fake("--with report"), "b": fake("--with report")}));
    for server in ["a", "b"] {
        config["toolboxes"]["dev"]["mcpServers"][server]["isolation"] = json!("session");
    }
    let den = Den::new(&config);
    let mut without = den.session();
    let mut with = den.session_with(|command| {
        command.env("ONLY_HERE", "1");
    });
    open(&mut without, "dev");
    open(&mut with, "dev");
    let before = [pid_of(&mut without, "a"), pid_of(&mut without, "b")];
    config["toolboxes"]["dev"]["mcpServers"]["a"]["env"] = json!({"NEW": "${ONLY_HERE}"});
    den.configure(&config);
    wait_for_file(&mut with, "NEW", "1");
    assert_eq!([pid_of(&mut without, "a"), pid_of(&mut without, "b")], before);
    leave(without);
    leave(with);
}

#[test]
fn a_server_that_nobody_has_open_lingers_whatever_else_changes_in_the_file() {
    let mut config = dev(json!({"a": fake("--with report"), "b": fake("--with report")}));
    config["linger"] = json!(60);
    let den = Den::new(&config);
    let elsewhere = den.lab.dir.join("elsewhere");
    fs::create_dir(&elsewhere).expect("the directory is ours");
    let session_elsewhere = || {
        den.session_with(|command| {
            command.arg("--config").arg(den.lab.dir.join("workbench-config.json")).current_dir(&elsewhere);
        })
    };
    let mut first = session_elsewhere();
    open(&mut first, "dev");
    let (a, b) = (pid_of(&mut first, "a"), pid_of(&mut first, "b"));
    leave(first);
    den.until("no session", |now| sessions(now) == 0);
    let mut stays = den.session();
    open(&mut stays, "dev");
    config["toolboxes"]["dev"]["mcpServers"]["a"]["env"] = json!({"NEW": "1"});
    den.configure(&config);
    wait_for_file(&mut stays, "NEW", "1");
    let mut next = session_elsewhere();
    open(&mut next, "dev");
    assert_eq!(pid_of(&mut next, "b"), b);
    assert_ne!(pid_of(&mut next, "a"), a, "its entry changed");
    // A server that the file no longer has does not linger.
    leave(next);
    den.until("one session", |now| sessions(now) == 1);
    config["toolboxes"]["dev"]["mcpServers"].as_object_mut().expect("an object").remove("b");
    den.configure(&config);
    let is_b = |server: &Value| server["server"] == "b";
    den.until("without b", |now| !now["servers"].as_array().expect("a list").iter().any(is_b));
    leave(stays);
}

#[test]
fn how_long_the_daemon_lingers_follows_the_file() {
    let mut config = dev(json!({"a": fake("--with report")}));
    let den = Den::new(&config);
    let mut peer = den.session();
    open(&mut peer, "dev");
    let pid = den.daemon_pid();
    config["daemonLinger"] = json!(0);
    config["toolboxes"]["dev"]["mcpServers"]["a"]["env"] = json!({"NEW": "1"});
    den.configure(&config);
    wait_for_file(&mut peer, "NEW", "1");
    leave(peer);
    wait_until_dead(pid);
}
