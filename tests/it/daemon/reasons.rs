//! What is in the way of a daemon, and what `doctor`, `status` and `stop` say of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::place::{as_another_user, without_new_privileges};
use super::{Den, confine, dev, leave, open, sessions, wait_until_dead};
use crate::harness::{Peer, VERSION, fake};

/// Checks that `doctor` gives the reason that a session gives; both are started by changed commands.
#[track_caller]
fn doctor_says_what_a_session_says(den: &Den, change: impl Fn(&mut Command), expected: &str) {
    let mut command = den.command();
    change(&mut command);
    let mut peer = Peer::spawn(&mut command);
    peer.initialize(VERSION);
    let told = peer.stderr_with("no daemon: ");
    leave(peer);
    let reason = told.lines().find_map(|line| line.strip_prefix("no daemon: ")).expect("a reason");
    assert!(reason.contains(expected), "{reason}");
    let mut doctor = den.command();
    change(&mut doctor);
    let told = den.lab.run(doctor.args(["doctor", "--json"]));
    let told: Value = serde_json::from_str(&told.stdout).expect("one JSON value");
    assert_eq!((&told["daemon"]["usable"], &told["daemon"]["problem"]), (&json!(false), &json!(reason)));
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// A directory in which no socket can have a name.
fn too_long(den: &Den) -> PathBuf {
    let long = den.lab.dir.join("x".repeat(90));
    fs::create_dir(&long).expect("the directory is ours");
    long
}

/// Where the daemon would listen; there is none.
fn free_socket(den: &Den) -> PathBuf {
    leave(den.session());
    let socket = den.socket();
    den.run(&["stop"]);
    socket
}

#[test]
fn doctor_says_that_the_directory_cannot_be_made() {
    let den = Den::new(&dev(json!({})));
    let change = |command: &mut Command| {
        command.env("XDG_RUNTIME_DIR", "/proc");
    };
    doctor_says_what_a_session_says(&den, change, "the directory /proc/mcp-workbench cannot be made");
    // To find that out leaves nothing behind.
    let before = fs::read_dir(&den.lab.dir).expect("ours").count();
    assert!(den.run(&["doctor"]).stdout.contains("the daemon can be used\n"));
    assert_eq!(fs::read_dir(&den.lab.dir).expect("ours").count(), before);
}

#[test]
fn doctor_says_that_the_path_is_too_long() {
    let den = Den::new(&dev(json!({})));
    let long = too_long(&den);
    let change = |command: &mut Command| {
        command.env("XDG_RUNTIME_DIR", &long);
    };
    doctor_says_what_a_session_says(&den, change, "too long");
}

#[test]
fn doctor_says_that_the_directory_is_a_link() {
    let den = Den::new(&dev(json!({})));
    symlink("/tmp", den.directory()).expect("it is free");
    doctor_says_what_a_session_says(&den, |_| (), "is a symbolic link");
    fs::remove_file(den.directory()).expect("it is ours");
}

#[test]
fn doctor_says_that_the_directory_belongs_to_somebody_else() {
    let den = Den::new(&dev(json!({})));
    fs::create_dir(den.directory()).expect("it is free");
    set_mode(&den.directory(), 0o700);
    // Only the superuser can give something away.
    if chown(den.directory(), Some(65534), None).is_ok() {
        doctor_says_what_a_session_says(&den, |_| (), "belongs to somebody else");
    }
    fs::remove_dir(den.directory()).expect("nothing was put there");
}

#[test]
fn doctor_says_that_others_can_use_the_directory() {
    let den = Den::new(&dev(json!({})));
    fs::create_dir(den.directory()).expect("it is free");
    set_mode(&den.directory(), 0o750);
    doctor_says_what_a_session_says(&den, |_| (), "has the mode 0750");
}

#[test]
fn doctor_says_that_connecting_is_forbidden() {
    let den = Den::new(&dev(json!({})));
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;
    let change = |command: &mut Command| confine(command, Some((libc::SYS_connect, None)), refuse);
    doctor_says_what_a_session_says(&den, change, "Permission denied");
}

#[test]
fn doctor_says_that_the_daemon_is_silent() {
    let den = Den::new(&dev(json!({})));
    let socket = free_socket(&den);
    let _silent = UnixListener::bind(&socket).expect("it is free");
    doctor_says_what_a_session_says(&den, |_| (), "the daemon did not greet within 3 seconds");
    // What does not end can be found.
    let stopped = den.run(&["stop"]);
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    let name = socket.file_name().expect("a name").to_string_lossy();
    assert!(
        stopped.stderr.contains(&format!("listens at ~/mcp-workbench/{name} cannot be ended")),
        "{stopped:?}"
    );
    assert!(stopped.stderr.contains("did not greet within 3 seconds"), "{stopped:?}");
    fs::remove_file(&socket).expect("it is ours");
}

#[test]
fn doctor_says_that_the_session_is_confined_differently() {
    let den = Den::new(&dev(json!({})));
    let free = den.session();
    doctor_says_what_a_session_says(&den, without_new_privileges, "no_new_privs is not the same");
    leave(free);
}

#[test]
fn doctor_says_that_the_file_does_not_switch_the_daemon_on() {
    let mut config = dev(json!({}));
    config["daemon"] = json!(false);
    let den = Den::new(&config);
    let told = den.run(&["doctor"]).stdout;
    assert!(told.contains("the daemon can be used; this file does not switch it on\n"), "{told}");
}

/// Checks that `status` and `stop`, started by changed commands, find no daemon and nothing wrong.
#[track_caller]
fn none_runs(den: &Den, change: impl Fn(&mut Command)) {
    for verb in ["status", "stop"] {
        let mut command = den.command();
        change(&mut command);
        let told = den.lab.run(command.arg(verb));
        assert_eq!((told.code, &*told.stdout), (Some(0), "No daemon runs.\n"), "{verb}: {told:?}");
    }
}

#[test]
fn where_there_can_be_no_daemon_none_runs() {
    let den = Den::new(&dev(json!({})));
    let long = too_long(&den);
    none_runs(&den, |command| {
        command.env("XDG_RUNTIME_DIR", &long);
    });
    fs::write(den.directory(), "").expect("it is free");
    none_runs(&den, |_| ());
    fs::remove_file(den.directory()).expect("it is ours");
    // What listens where a link leads may be anything.
    let other = den.lab.dir.join("other");
    fs::create_dir(&other).expect("it is free");
    let _unknown = UnixListener::bind(other.join("any.sock")).expect("it is free");
    symlink(&other, den.directory()).expect("it is free");
    none_runs(&den, |_| ());
    fs::remove_file(den.directory()).expect("it is ours");
    // To another user our own directory is a foreign one, which only the superuser can show.
    if fs::metadata(&den.lab.dir).expect("ours").uid() == 0 {
        let peer = den.session();
        none_runs(&den, |command| {
            command.uid(65534);
        });
        assert_eq!(sessions(&den.status()), 1);
        leave(peer);
    }
}

#[test]
fn stop_ends_a_daemon_whose_directory_others_can_use() {
    let den = Den::new(&dev(json!({"a": fake("--tools 1")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    let pid = den.daemon_pid();
    set_mode(&den.directory(), 0o777);
    // Others may have put something there, which is not ours to end.
    let foreign = den.directory().join("0123456789abcdef.sock");
    let path = foreign.clone();
    let stranger = as_another_user(move || UnixListener::bind(path).expect("all may write"));
    set_mode(&den.directory(), 0o755);
    let stopped = den.run(&["stop"]);
    assert_eq!(
        (stopped.code, &*stopped.stdout),
        (Some(0), "The daemon and its servers have ended.\n"),
        "{stopped:?}"
    );
    assert_eq!(den.servers_of(), 0);
    wait_until_dead(pid);
    if stranger.is_some() {
        fs::remove_file(foreign).expect("the directory is ours");
    }
    leave(peer);
}

#[test]
fn the_daemon_works_without_a_log_where_a_pipe_is_in_its_place() {
    let den = Den::new(&dev(json!({"a": fake("--tools 1")})));
    let log = den.lab.dir.join("xdg-state/mcp-workbench/daemon.log");
    fs::create_dir_all(log.parent().expect("a directory")).expect("ours");
    let made = den.lab.run(den.program(Path::new("mkfifo")).arg(&log));
    assert_eq!(made.code, Some(0), "{made:?}");
    for is_read in [false, true] {
        let _reader = is_read.then(|| fs::File::options().read(true).write(true).open(&log).expect("ours"));
        let mut peer = den.session();
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
        assert_eq!((sessions(&den.status()), peer.stderr()), (1, String::new()), "is read: {is_read}");
        leave(peer);
        den.run(&["stop"]);
    }
}

#[test]
fn a_socket_that_nobody_listens_at_makes_no_daemon_outdated() {
    let den = Den::new(&dev(json!({})));
    let peer = den.session();
    let pid = den.daemon_pid();
    let newer = den.directory().join("0123456789abcdef.sock");
    let listener = UnixListener::bind(&newer).expect("it is free");
    drop(listener);
    leave(peer);
    den.until("no session", |now| sessions(now) == 0);
    assert_eq!(den.daemon_pid(), pid);
    // As soon as somebody does, the next session is the last.
    fs::remove_file(&newer).expect("it is ours");
    let _listener = UnixListener::bind(&newer).expect("it is free");
    leave(den.session());
    wait_until_dead(pid);
    fs::remove_file(&newer).expect("it is ours");
}
