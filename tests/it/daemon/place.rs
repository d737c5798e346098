//! Where the daemon is, how it is started, and whom it trusts.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{Den, confine, dev, leave, leave_all, open, pid_of, sessions, wait_until_dead};
use crate::harness::{Peer, VERSION, fake, gateway_path};

#[test]
fn where_there_can_be_no_daemon_a_session_is_served_in_its_own_process() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let directory = den.directory();
    let fill = |kind: &str| match kind {
        "a link" => symlink("/tmp", &directory).expect("it is free"),
        "a file" => fs::write(&directory, "").expect("it is free"),
        "loose" => {
            fs::create_dir(&directory).expect("it is free");
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).expect("it is ours");
        }
        _ => {
            fs::create_dir(&directory).expect("it is free");
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("it is ours");
        }
    };
    for (kind, reason) in
        [("a link", "is a symbolic link"), ("a file", "is no directory"), ("loose", "has the mode 0750")]
    {
        fill(kind);
        let before = fs::symlink_metadata(&directory).expect("it is there");
        let mut peer = den.session();
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1, "{kind}");
        let told = peer.stderr_with("no daemon: ");
        assert!(told.contains(reason), "{kind}: {told}");
        assert_eq!(told.lines().filter(|line| line.contains("no daemon: ")).count(), 1, "{told}");
        leave(peer);
        let doctor = den.run(&["doctor"]);
        assert!(doctor.stdout.contains("the daemon cannot be used: ~/mcp-workbench "), "{doctor:?}");
        let after = fs::symlink_metadata(&directory).expect("it is left as it is");
        assert_eq!((before.mode(), before.ino()), (after.mode(), after.ino()), "{kind}");
        match kind {
            "loose" => fs::remove_dir(&directory).expect("nothing was put there"),
            _ => fs::remove_file(&directory).expect("it is ours"),
        }
    }
    // Only the superuser can give something away.
    fill("");
    if chown(&directory, Some(65534), None).is_ok() {
        let mut peer = den.session();
        assert!(peer.stderr_with("no daemon: ").contains("belongs to somebody else"));
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
        leave(peer);
    }
    fs::remove_dir(&directory).expect("nothing was put there");
    let mut peer = den.session_with(|command| {
        command.env("XDG_RUNTIME_DIR", "/proc");
    });
    assert!(peer.stderr_with("no daemon: ").contains("/proc/mcp-workbench cannot be made"));
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
    leave(peer);
    let long = den.lab.dir.join("x".repeat(90));
    fs::create_dir(&long).expect("the directory is ours");
    let mut peer = den.session_with(|command| {
        command.env("XDG_RUNTIME_DIR", &long);
    });
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
    assert!(peer.stderr_with("no daemon: ").contains("too long"));
    leave(peer);
    let doctor = den.run(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&doctor.stdout).expect("one JSON value");
    assert_eq!(told["daemon"], json!({"usable": true, "problem": null, "elsewhere": []}), "{told}");
}

/// Whoever sits on the socket, silent or talking nonsense, is not told anything.
#[test]
fn a_squatter_on_the_socket_gets_nothing() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    leave(den.session());
    let socket = den.socket();
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(den.directory()).expect("a directory").permissions().mode() & 0o777, 0o700);
    den.run(&["stop"]);
    assert!(!socket.exists());
    for (greeting, reason) in [("", "did not greet within 3 seconds"), ("hello there\n", "no daemon of ours")]
    {
        let squatter = UnixListener::bind(&socket).expect("it is free");
        let heard = std::thread::spawn(move || {
            let (mut stream, _) = squatter.accept().expect("somebody connects");
            stream.write_all(greeting.as_bytes()).expect("they listen");
            let mut heard = String::new();
            let _ = BufReader::new(stream).read_line(&mut heard);
            heard
        });
        let mut peer = den.session();
        assert!(peer.stderr_with("no daemon: ").contains(reason), "{}", peer.stderr());
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
        assert_eq!(heard.join().expect("no panic"), "");
        leave(peer);
        fs::remove_file(&socket).expect("it is ours");
    }
    // A stale socket is replaced.
    drop(UnixListener::bind(&socket).expect("it is free"));
    assert!(UnixStream::connect(&socket).is_err() && socket.exists());
    let peer = den.session();
    assert_eq!(den.status()["sessions"].as_array().map(Vec::len), Some(1));
    leave(peer);
}

#[test]
fn the_daemon_keeps_nothing_of_who_starts_it_and_logs_to_its_own_file() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let peer = den.session_with(|command| {
        command.env("SECRET_OF_THE_STARTER", "1").env("RUST_LOG", "debug");
    });
    let pid = den.daemon_pid();
    let process = Path::new("/proc").join(pid.to_string());
    assert_eq!(fs::read_link(process.join("cwd")).expect("ours"), Path::new("/"));
    assert_eq!(fs::read(process.join("environ")).expect("ours"), b"");
    let stat = fs::read_to_string(process.join("stat")).expect("ours");
    let fields: Vec<_> = stat.rsplit(')').next().expect("a stat").split_whitespace().collect();
    // After the name: state, parent, group, session. Its session's leader is gone.
    assert_ne!(fields[1], peer.pid().to_string(), "it is nobody's child");
    assert_eq!(fields[2], fields[3], "its group is its session's");
    assert_ne!(
        fields[3],
        fs::read_to_string(format!("/proc/{}/stat", peer.pid()))
            .expect("ours")
            .rsplit(')')
            .next()
            .expect("a stat")
            .split_whitespace()
            .nth(3)
            .expect("a session")
    );
    let log = den.lab.dir.join("xdg-state/mcp-workbench/daemon.log");
    assert_eq!(fs::metadata(&log).expect("a log").permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&log).expect("ours").contains("the daemon begins"));
    assert!(!peer.stderr().contains("the daemon begins"));
    leave(peer);
    den.run(&["stop"]);
    // Where it cannot log, it works without: a link may lead to another file, and a file is no directory.
    let other = den.lab.write("other", "");
    fs::remove_file(&log).expect("ours");
    symlink(&other, &log).expect("it is free");
    let mut peer = den.session();
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
    assert_eq!(sessions(&den.status()), 1);
    leave(peer);
    den.run(&["stop"]);
    assert_eq!(fs::read_to_string(&other).expect("ours"), "");
    fs::remove_dir_all(den.lab.dir.join("xdg-state")).expect("ours");
    fs::write(den.lab.dir.join("xdg-state"), "").expect("ours");
    let mut peer = den.session();
    assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
    assert_eq!(den.status()["sessions"].as_array().map(Vec::len), Some(1));
    leave(peer);
}

#[test]
fn the_daemon_inherits_no_descriptor() {
    let den = Den::new(&dev(json!({})));
    let file = File::open(den.lab.write("leaked", "")).expect("ours");
    let (pipe, _writes) = std::io::pipe().expect("a pipe");
    let (socket, _other) = UnixStream::pair().expect("a socket");
    let leaked: [OwnedFd; 3] = [file.into(), pipe.into(), socket.into()];
    let seen = |directory: &str| -> Vec<_> {
        let open = fs::read_dir(directory).expect("ours").flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
    };
    let to = |number: i32| fs::read_link(format!("/proc/self/fd/{number}")).expect("it is open");
    let mut inherited: Vec<_> = leaked.iter().map(|descriptor| to(descriptor.as_raw_fd())).collect();
    let peer = den.session_with(|command| leak(command, &leaked));
    let relay = format!("/proc/{}/fd", peer.pid());
    assert!(inherited.iter().all(|one| seen(&relay).contains(one)), "the relay has them: {:?}", seen(&relay));
    let stdio = |number| fs::read_link(format!("{relay}/{number}")).expect("it is open");
    let stdin = stdio(0);
    inherited.extend((0..3).map(stdio));
    let daemon = format!("/proc/{}/fd", den.daemon_pid());
    assert!(seen(&daemon).contains(&stdin), "a session's input is the daemon's while it lasts");
    leave(peer);
    den.until("its end", |now| sessions(now) == 0);
    let kept = seen(&daemon);
    assert!(!kept.is_empty());
    for one in inherited {
        assert!(!kept.contains(&one), "it keeps {one:?}: {kept:?}");
    }
    // Whatever else it has open is its own.
    let own = ["/dev/null", "socket:", "anon_inode:", "pipe:", "/mcp-workbench/"];
    for one in kept {
        assert!(own.iter().any(|part| one.to_string_lossy().contains(part)), "{one:?}");
    }
}

/// Lets the program inherit these, as careless programs do.
fn leak(command: &mut Command, descriptors: &[OwnedFd]) {
    let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: system calls between fork and exec that touch no memory.
    #[allow(unsafe_code, reason = "whoever opens a file here has it closed in children")]
    unsafe {
        command.pre_exec(move || {
            for number in &numbers {
                if libc::fcntl(*number, libc::F_SETFD, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

#[test]
fn many_that_start_at_once_start_one_daemon() {
    for round in 0..4 {
        let den = Den::new(&dev(json!({"a": fake("--with report --count @dir/count")})));
        let mut peers: Vec<_> = (0..50).map(|_| den.spawn()).collect();
        for peer in &mut peers {
            peer.initialize(VERSION);
        }
        let status = den.status();
        assert_eq!(status["sessions"].as_array().map(Vec::len), Some(50), "round {round}");
        assert_eq!(status["others"], json!([]));
        let daemons =
            den.lab.processes().into_iter().filter(|(_, line)| line.contains("daemon-process")).count();
        assert_eq!(daemons, 1, "round {round}");
        for peer in peers.iter_mut().take(3) {
            open(peer, "dev");
        }
        assert_eq!(den.lab.starts("count"), 1);
        peers.iter().for_each(|peer| assert_eq!(peer.stderr(), ""));
        leave_all(peers);
    }
}

#[test]
fn a_session_that_is_confined_differently_is_served_in_its_own_process() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let free = den.session();
    let mut command = den.command();
    without_new_privileges(&mut command);
    let mut confined = Peer::spawn(&mut command);
    confined.initialize(VERSION);
    let told = confined.stderr_with("no daemon: ");
    assert!(told.contains("no_new_privs"), "{told}");
    assert_eq!(open(&mut confined, "dev")["tools_registered"], 1);
    assert_eq!(den.status()["sessions"].as_array().map(Vec::len), Some(1));
    leave(confined);
    leave(free);
}

#[test]
fn each_build_has_a_daemon_and_stop_ends_them_all() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut old = den.session();
    open(&mut old, "dev");
    let pid = den.daemon_pid();
    // As far as anybody can see, a daemon of another name is one of another build.
    let socket = den.socket();
    let lock = socket.with_extension("lock");
    fs::rename(&socket, den.directory().join("0123456789abcdef.sock")).expect("it is ours");
    fs::rename(&lock, den.directory().join("0123456789abcdef.lock")).expect("it is ours");
    let mut new = den.session();
    open(&mut new, "dev");
    assert_ne!(pid_of(&mut old, "a"), pid_of(&mut new, "a"));
    let status = den.status();
    assert_eq!((&status["others"], status["sessions"].as_array().map(Vec::len)), (&json!([pid]), Some(1)));
    let stopped = den.run(&["stop"]);
    assert_eq!(stopped.stdout, "2 daemons and their servers have ended.\n");
    assert_eq!(den.servers_of(), 0);
    leave(old);
    leave(new);
}

#[test]
fn a_daemon_of_an_older_build_ends_with_its_last_session() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let peer = den.session();
    let pid = den.daemon_pid();
    let newer = den.directory().join("0123456789abcdef.sock");
    let listener = UnixListener::bind(&newer).expect("it is free");
    leave(peer);
    wait_until_dead(pid);
    drop(listener);
    fs::remove_file(newer).expect("it is ours");
}

/// Clocks are set forwards and back, so times of files say nothing about who came first, or whether somebody is there.
#[test]
fn a_clock_that_jumps_changes_nothing() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut first = den.session();
    let socket = den.socket();
    den.run(&["stop"]);
    // A daemon of another build was there before ours, by a file that is from the future.
    let before = den.directory().join("0123456789abcdef.sock");
    drop(UnixListener::bind(&before).expect("it is free"));
    let date = |path: &Path, date: &str| {
        let mut touch = den.program(Path::new("touch"));
        let touched = den.lab.run(touch.args(["-h", "-d", date]).arg(path));
        assert_eq!(touched.code, Some(0), "{touched:?}");
    };
    date(&before, "2100-01-01");
    open(&mut first, "dev");
    let (pid, server) = (den.daemon_pid(), pid_of(&mut first, "a"));
    for when in ["1980-01-01", "2100-01-01"] {
        let log = den.lab.dir.join("xdg-state/mcp-workbench/daemon.log");
        for path in [&socket, &socket.with_extension("lock"), &log] {
            date(path, when);
        }
        let mut peer = den.session();
        open(&mut peer, "dev");
        assert_eq!((den.daemon_pid(), pid_of(&mut peer, "a")), (pid, server), "{when}");
        leave(peer);
    }
    // Ours is not the older one, so it stays after its last session.
    leave(first);
    den.until("no session", |now| sessions(now) == 0);
    assert_eq!(den.daemon_pid(), pid);
}

#[test]
fn without_a_runtime_directory_the_daemon_is_in_the_one_for_temporary_files() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let peer = den.session_with(|command| {
        command.env("XDG_RUNTIME_DIR", "/does/not/exist");
    });
    let user = fs::metadata(&den.lab.dir).expect("ours").uid();
    let directory = den.lab.dir.join(format!("mcp-workbench-{user}"));
    assert_eq!(fs::metadata(&directory).expect("a directory").permissions().mode() & 0o777, 0o700);
    // Clients that hand on other variables have another daemon, of which `doctor` tells, and one `stop` ends both.
    let other = den.session();
    let doctor = den.run(&["doctor"]).stdout;
    let told = format!(
        "another daemon runs in ~/mcp-workbench-{user}, for sessions with another XDG_RUNTIME_DIR or TMPDIR\n"
    );
    assert!(doctor.contains(&told), "{doctor}");
    let doctor = den.run(&["doctor", "--json"]).stdout;
    let doctor: Value = serde_json::from_str(&doctor).expect("one JSON value");
    assert_eq!(doctor["daemon"]["elsewhere"], json!([directory]), "{doctor}");
    assert_eq!(den.run(&["stop"]).stdout, "2 daemons and their servers have ended.\n");
    leave(other);
    leave(peer);
}

/// Whoever is killed while it speaks to the daemon costs nothing, at whatever stage.
#[test]
fn a_relay_that_goes_away_during_the_handshake_leaves_nothing_behind() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    let pid = den.daemon_pid();
    let socket = den.socket();
    let wish = b"\x0c\0\0\0session\0mcp-";
    for (what, said) in [("nothing", 0), ("a part of the length", 2), ("a part of the wish", wish.len())] {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let mut greeting = String::new();
        let read = BufReader::new(stream.try_clone().expect("a socket")).read_line(&mut greeting);
        read.expect("it greets");
        assert!(greeting.starts_with("mcp-workbench-daemon "), "{greeting}");
        stream.write_all(&wish[..said]).expect("it reads");
        drop(stream);
        assert_eq!(sessions(&den.status()), 1, "{what}");
    }
    // One that is killed after it was taken is a session that ends.
    let mut killed = den.spawn();
    den.until("its session", |now| sessions(now) == 2);
    killed.signal("KILL");
    killed.wait();
    den.until("its end", |now| sessions(now) == 1);
    assert_eq!((den.daemon_pid(), peer.call("dev__a__report", "{}").is_error()), (pid, false));
    leave(peer);
}

/// Daemons that die while a relay speaks to them, again and again, are given up.
#[test]
fn daemons_that_die_during_the_handshake_are_given_up() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    leave(den.session());
    let socket = den.socket();
    den.run(&["stop"]);
    for (stage, reason) in [
        ("before the greeting", "did not greet within 3 seconds"),
        ("in the greeting", "did not greet within 3 seconds"),
        ("after the greeting", "ended before it took the session"),
    ] {
        let squatter = UnixListener::bind(&socket).expect("it is free");
        std::thread::spawn(move || {
            for mut stream in squatter.incoming().flatten() {
                let said: &[u8] = match stage {
                    "before the greeting" => b"",
                    "in the greeting" => b"mcp-workb",
                    _ => b"mcp-workbench-daemon 0123456789abcdef 1\n",
                };
                // They may have gone.
                let _ = stream.write_all(said);
            }
        });
        let mut peer = den.session();
        let told = peer.stderr_with("no daemon: ");
        assert!(told.contains(reason), "{stage}: {told}");
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1, "{stage}");
        leave(peer);
        fs::remove_file(&socket).expect("it is ours");
    }
}

#[test]
fn a_daemon_that_cannot_be_started_or_takes_no_session_leaves_the_session_in_its_own_process() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    leave(den.session());
    let socket = den.socket();
    den.run(&["stop"]);
    let goes_on_alone = |reason: &str| {
        let mut peer = den.session();
        let told = peer.stderr_with("no daemon: ");
        assert!(told.contains(reason), "{told}");
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1, "{reason}");
        leave(peer);
    };
    let lock = socket.with_extension("lock");
    fs::remove_file(&lock).expect("it is ours");
    fs::create_dir(&lock).expect("it is free");
    goes_on_alone("no daemon: the daemon cannot be started: ");
    fs::remove_dir(&lock).expect("it is ours");
    let squatter = UnixListener::bind(&socket).expect("it is free");
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in squatter.incoming().flatten() {
            // They may have gone.
            let _ = stream.write_all(b"mcp-workbench-daemon 0123456789abcdef 1\n");
            kept.push(stream);
        }
    });
    goes_on_alone("no daemon: the daemon did not take the session within 10 seconds");
    fs::remove_file(&socket).expect("it is ours");
}

/// Lets the program gain no privileges.
pub(super) fn without_new_privileges(command: &mut Command) {
    // SAFETY: one system call between fork and exec that touches no memory.
    #[allow(unsafe_code, reason = "no_new_privs can be set only by the process itself")]
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Forbids the program one system call, or none; its confinement differs in any case.
fn confined_by_seccomp(command: &mut Command, forbidden: Option<libc::c_long>) {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;
    confine(command, forbidden.map(|number| (number, None)), refuse);
}

#[test]
fn a_sandbox_stays_a_sandbox() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let free = den.session();
    let unshare = |options: &[&str]| {
        let mut command = den.program(Path::new("unshare"));
        command.args(options);
        command
    };
    let mut cases: Vec<(&str, Command, &str)> = Vec::new();
    let mut command = den.command();
    confined_by_seccomp(&mut command, Some(libc::SYS_connect));
    cases.push(("connecting is forbidden", command, "Permission denied"));
    for (options, reason) in [
        (&["--user", "--map-root-user", "--net"][..], "the user namespace is not the same"),
        (&["--mount"], "the mount namespace is not the same"),
        (&["--pid", "--fork", "--kill-child"], "the PID namespace is not the same"),
        (&["--net"], "the network namespace is not the same"),
    ] {
        // Systems do not let everybody make namespaces, or not each kind.
        if den.lab.run(unshare(options).arg("true")).code == Some(0) {
            let mut command = unshare(options);
            // The first process of a PID namespace is no ordinary one, so that is the shell.
            command.args(["sh", "-c", r#""$0"; exit $?"#]).arg(gateway_path());
            cases.push((options[0], command, reason));
        }
    }
    for (what, mut command, reason) in cases {
        let mut peer = Peer::spawn(&mut command);
        peer.initialize(VERSION);
        let told = peer.stderr_with("no daemon: ");
        assert!(told.contains(reason), "{what}: {told}");
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1, "{what}");
        assert_eq!(sessions(&den.status()), 1, "{what}");
        leave(peer);
    }
    leave(free);

    // Of two that may gain no privileges, one is confined further.
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut command = den.command();
    without_new_privileges(&mut command);
    let mut first = Peer::spawn(&mut command);
    first.initialize(VERSION);
    assert_eq!(first.stderr(), "", "it has a daemon");
    let mut command = den.command();
    confined_by_seccomp(&mut command, None);
    let mut further = Peer::spawn(&mut command);
    further.initialize(VERSION);
    let told = further.stderr_with("no daemon: ");
    assert!(told.contains("the seccomp mode is not the same"), "{told}");
    leave(further);
    leave(first);

    // A daemon that was started under the same rules is theirs.
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let session = || {
        let mut command = den.command();
        confined_by_seccomp(&mut command, None);
        let mut peer = Peer::spawn(&mut command);
        peer.initialize(VERSION);
        open(&mut peer, "dev");
        peer
    };
    let (mut one, mut other) = (session(), session());
    assert_eq!(pid_of(&mut one, "a"), pid_of(&mut other, "a"));
    let mut free = den.session();
    assert!(free.stderr_with("no daemon: ").contains("is not the same"), "{}", free.stderr());
    open(&mut free, "dev");
    assert_ne!(pid_of(&mut one, "a"), pid_of(&mut free, "a"));
    for peer in [one, other, free] {
        leave(peer);
    }
    assert_eq!(den.run(&["stop"]).code, Some(0), "whoever is this user may end it");
}

/// Does something as another user, which only the superuser can; `None` for everybody else.
pub(super) fn as_another_user<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    const NOBODY: libc::c_long = 65534;
    let thread = std::thread::spawn(move || {
        // SAFETY: the system call, unlike the function, concerns this thread alone, which ends here.
        #[allow(unsafe_code, reason = "only a thread can change its user alone")]
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        (changed == 0).then(what)
    });
    thread.join().expect("no panic")
}

#[test]
fn strangers_get_nothing_from_either_end() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let peer = den.session();
    let (socket, directory) = (den.socket(), den.directory());
    let open_to = |mode: u32| {
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    // The directory keeps strangers out; if it did not, the daemon would.
    open_to(0o777);
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let to = socket.clone();
    let heard = as_another_user(move || {
        let mut heard = Vec::new();
        UnixStream::connect(to).and_then(|mut stream| stream.read_to_end(&mut heard)).map(|_| heard)
    });
    if let Some(heard) = heard {
        assert_eq!(heard.expect("it is closed"), b"", "not a byte");
    }
    open_to(0o700);
    leave(peer);
    den.run(&["stop"]);
    open_to(0o777);
    let on = socket.clone();
    let listening = as_another_user(move || UnixListener::bind(on).expect("all may write"));
    open_to(0o700);
    if let Some(listener) = listening {
        let mut peer = den.session();
        assert!(peer.stderr_with("no daemon: ").contains("another user listens on"), "{}", peer.stderr());
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1);
        let mut heard = Vec::new();
        let (mut stream, _) = listener.accept().expect("it was connected to");
        stream.read_to_end(&mut heard).expect("it is closed");
        assert_eq!(heard, b"", "not a byte");
        leave(peer);
        fs::remove_file(&socket).expect("it is ours");
    }
}
