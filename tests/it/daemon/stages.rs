//! Whoever is killed at any stage of the way into the daemon costs nobody else anything: the relay, the daemon, the client.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use serde_json::json;

use super::{Den, SystemCall, confine, dev, leave, open, sessions};
use crate::harness::{DEADLINE, Peer, VERSION, fake};

/// A user whose programs can be killed by the system at a stage. All are confined alike, so that they share a daemon.
fn den() -> Den {
    let mut den = Den::new(&dev(json!({"a": fake("--with report")})));
    den.is_confined = true;
    den
}

/// Has the system kill the program when it is about to make this call.
fn kill_at(command: &mut Command, stage: SystemCall) {
    confine(command, Some(stage), libc::SECCOMP_RET_KILL_PROCESS);
}

fn hello() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    )
}

fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGSYS)
}

#[test]
fn a_relay_that_is_killed_at_any_stage_leaves_nothing_behind() {
    let den = den();
    let mut stays = den.session();
    open(&mut stays, "dev");
    let pid = den.daemon_pid();
    for (stage, call) in [
        ("before it connects", (libc::SYS_connect, None)),
        ("before it knows who listens", (libc::SYS_getsockopt, Some(libc::SO_PEERCRED as u32))),
        ("before it reads the greeting", (libc::SYS_recvfrom, Some(128))),
        ("before it says what it wants", (libc::SYS_sendmsg, None)),
        ("before it knows that it is taken", (libc::SYS_recvfrom, Some(1))),
        ("before it says that it knows", (libc::SYS_sendto, Some(1))),
        ("before it learns how the session stands", (libc::SYS_read, Some(16 * 1024))),
    ] {
        let mut command = den.command();
        kill_at(&mut command, call);
        // Its client has spoken before it is there.
        let (stdin, mut client) = std::io::pipe().expect("a pipe");
        client.write_all(format!("{}\n", hello()).as_bytes()).expect("there is room");
        let status = Peer::spawn_on(&mut command, stdin.into()).wait();
        assert!(was_killed(status), "{stage}: {status}");
        den.until("its end", |now| sessions(now) == 1);
        assert_eq!(den.daemon_pid(), pid, "{stage}");
        assert!(!stays.call("dev__a__report", "{}").is_error(), "{stage}");
    }
    leave(stays);
}

#[test]
fn a_daemon_that_is_killed_at_any_stage_has_a_successor() {
    let den = den();
    for (stage, call) in [
        ("before it takes the connection", (libc::SYS_accept4, None)),
        ("before it knows who is there", (libc::SYS_getsockopt, Some(libc::SO_PEERCRED as u32))),
        ("before it greets", (libc::SYS_sendto, None)),
        ("before it knows what comes with the wish", (libc::SYS_recvmsg, None)),
        ("before it reads what is wanted", (libc::SYS_recvfrom, Some(4))),
        ("before it says that it takes the session", (libc::SYS_sendto, Some(7))),
        ("before it hears that the relay knows", (libc::SYS_recvfrom, Some(1))),
        ("before it takes the first message", (libc::SYS_splice, None)),
        ("before it notes the first answer", (libc::SYS_pwrite64, Some(16))),
    ] {
        let mut killed = den.start_daemon(|command| kill_at(command, call));
        let mut peer = den.session();
        let status = killed.wait().expect("it is ours");
        assert!(was_killed(status), "{stage}: {status}");
        assert_eq!(open(&mut peer, "dev")["tools_registered"], 1, "{stage}");
        assert_eq!((peer.stderr(), sessions(&den.status())), (String::new(), 1), "{stage}");
        leave(peer);
    }
}

/// The relay that started it was to bring its first session.
#[test]
fn a_daemon_whose_first_session_never_comes_ends_by_itself() {
    let den = den();
    let mut command = den.command();
    kill_at(&mut command, (libc::SYS_recvfrom, Some(128)));
    let status = Peer::spawn(&mut command).wait();
    assert!(was_killed(status), "before it reads the greeting: {status}");
    let now = den.status();
    assert!(now["daemon"]["pid"].is_u64() && sessions(&now) == 0, "it has started a daemon: {now:#}");
    let socket = den.socket();
    den.lab.wait_until_gone(DEADLINE);
    assert!(!socket.exists());
}

#[test]
fn a_client_that_is_killed_at_any_stage_leaves_nothing_behind() {
    let den = den();
    let mut stays = den.session();
    open(&mut stays, "dev");
    let pid = den.daemon_pid();
    let hello = hello();
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"open_toolbox","arguments":{"toolbox_name":"dev"}}}"#;
    for said in
        ["", &hello[..20], &format!("{hello}\n"), &format!("{hello}\n{call}"), &format!("{hello}\n{call}\n")]
    {
        // Of a client that is killed, both ends are closed.
        let mut command = den.command();
        let mut relay = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is built");
        relay.stdin.take().expect("piped").write_all(said.as_bytes()).expect("there is room");
        drop(relay.stdout.take());
        relay.wait().expect("it ends by itself");
        den.until("its end", |now| sessions(now) == 1);
        assert_eq!(den.daemon_pid(), pid, "{said}");
        assert!(!stays.call("dev__a__report", "{}").is_error(), "{said}");
    }
    leave(stays);
}
