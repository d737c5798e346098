//! Who shares a server, and what never mixes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Den, daemon, dev, leave, leave_all, modern_call, open, pid_of, report, sessions};
use crate::client::{Era, Host};
use crate::harness::{DEADLINE, Peer, VERSION, fake, gateway_path, server, toolman_path};

#[test]
fn sessions_of_one_directory_share_servers_and_nothing_else() {
    let den = Den::new(&dev(
        json!({"a": fake("--with report,echo,progress,slow,release,started"), "b": fake("--with report")}),
    ));
    let (mut one, mut other) = (den.session(), den.session());
    assert_eq!(open(&mut one, "dev")["servers_connected"], 2);
    assert_eq!(other.tools(), ["open_toolbox"], "what one opens is closed for the other");
    assert_eq!(open(&mut other, "dev")["tools_registered"], 7);
    assert_eq!(pid_of(&mut one, "a"), pid_of(&mut other, "a"));
    assert_eq!(den.servers_of(), 2);
    // The same ids and progress tokens are two things.
    for (peer, key) in [(&mut one, "one"), (&mut other, "other")] {
        let arguments = json!({"n": 2, "extra": format!(",\"message\":\"{key}\"")});
        let params =
            json!({"name": "dev__a__progress", "arguments": arguments, "_meta": {"progressToken": 1}});
        peer.send(
            json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params}).to_string(),
        );
    }
    for (peer, key) in [(&mut one, "one"), (&mut other, "other")] {
        for n in 1..=2 {
            let progress = peer.notification("notifications/progress").value();
            assert_eq!(
                (&progress["params"]["progress"], &progress["params"]["message"]),
                (&json!(n), &json!(key))
            );
        }
        assert_eq!(peer.answer("\"same\"").text(), "progress");
    }
    assert_eq!(one.count("notifications/progress") + other.count("notifications/progress"), 0);
    leave(one);
    assert_eq!(den.until("one session", |now| now["sessions"].as_array().is_some_and(|all| all.len() == 1))["servers"].as_array().map(Vec::len), Some(2));
    leave(other);
}

#[test]
fn isolation_decides_server_by_server() {
    let entry = |isolation: &str, variable: bool| {
        let mut entry = fake("--with report");
        if !isolation.is_empty() {
            entry["isolation"] = isolation.into();
        }
        if variable {
            entry["env"] = json!({"WHO": "${WHO:-nobody}"});
        }
        entry
    };
    let den = Den::new(&dev(json!({
        "session": entry("session", false),
        "default": entry("", false),
        "shared": entry("shared", false),
        "varied": entry("shared", true),
        "inherits": {"command": "@fake", "args": ["--with", "report", "--marker", "@marker"], "inheritEnv": ["WHO"]},
    })));
    fs::create_dir(den.lab.dir.join("elsewhere")).expect("the directory is ours");
    let file = den.lab.dir.join("workbench-config.json");
    type Change = Box<dyn Fn(&mut Command)>;
    let sessions: [(&str, Change, [bool; 5]); 4] = [
        // Whether each server is the first session's: session, default, shared, varied, inherits.
        ("the same", Box::new(|_| ()), [false, true, true, true, true]),
        (
            "another client and mode",
            Box::new(|command| {
                command.args(["--tool-mode", "auto"]);
            }),
            [false, true, true, true, true],
        ),
        (
            "another variable",
            Box::new(|command| {
                command.env("WHO", "me");
            }),
            [false, true, true, false, false],
        ),
        (
            "another directory",
            Box::new(|command| {
                let directory = command.get_current_dir().expect("it has one").join("elsewhere");
                command.current_dir(directory);
            }),
            [false, false, true, true, false],
        ),
    ];
    let names = ["session", "default", "shared", "varied", "inherits"];
    let mut first = den.session_with(|command| {
        command.arg("--config").arg(&file);
    });
    open(&mut first, "dev");
    let own = names.map(|name| pid_of(&mut first, name));
    for (what, change, expected) in sessions {
        let mut peer = den.session_with(|command| {
            command.arg("--config").arg(&file);
            change(command);
        });
        open(&mut peer, "dev");
        let same: Vec<_> = names.iter().zip(own).map(|(name, own)| pid_of(&mut peer, name) == own).collect();
        assert_eq!(same, expected, "{what}");
        leave(peer);
    }
    // A server gets the environment and the directory of the session that starts it.
    let mut elsewhere = den.session_with(|command| {
        command.arg("--config").arg(&file).current_dir(den.lab.dir.join("elsewhere")).env("WHO", "them");
    });
    open(&mut elsewhere, "dev");
    let here = den.lab.dir.to_string_lossy().into_owned();
    assert_eq!(report(&mut elsewhere, "default")["cwd"], format!("{here}/elsewhere"));
    assert_eq!(report(&mut elsewhere, "inherits")["env"]["WHO"], "them");
    assert_eq!(report(&mut elsewhere, "varied")["env"]["WHO"], "them");
    assert_eq!(report(&mut elsewhere, "shared")["cwd"], here, "it runs beside the file");
    leave(elsewhere);
    leave(first);
}

#[test]
fn a_shared_server_runs_beside_the_file_wherever_the_session_is_that_starts_it() {
    let mut entry = fake("--with report");
    entry["isolation"] = json!("shared");
    let den = Den::new(&dev(json!({ "a": entry })));
    let elsewhere = den.lab.dir.join("elsewhere");
    fs::create_dir(&elsewhere).expect("the directory is ours");
    let mut peer = den.session_with(|command| {
        command.arg("--config").arg(den.lab.dir.join("workbench-config.json")).current_dir(&elsewhere);
    });
    open(&mut peer, "dev");
    assert_eq!(report(&mut peer, "a")["cwd"], *den.lab.dir.to_string_lossy());
    leave(peer);
}

#[test]
fn what_one_session_switches_off_stays_on_for_others() {
    let den = Den::toolman(&server("a", "--with echo --tools 1", ""));
    let (mut one, mut other) = (den.toolman_session(), den.toolman_session());
    let shown = other.tools();
    other.count("notifications/tools/list_changed");
    let off = r#"{"tools_on":[],"tools_off":["a_echo"],"resources_on":[],"resources_off":[]}"#;
    assert!(!one.call("toolman_activate", off).is_error());
    assert!(!one.tools().contains(&"a_echo".to_owned()) && shown.contains(&"a_echo".to_owned()));
    assert_eq!((other.tools(), other.count("notifications/tools/list_changed")), (shown, 0));
    assert!(!other.call("a_echo", "{}").is_error());
    leave(one);
    leave(other);
}

#[test]
fn the_umask_of_a_session_reaches_its_servers_and_keeps_them_apart() {
    let script = json!({"command": "/bin/sh", "args": ["-c", "umask > @dir/umask.$$; exec @fake --with report --marker @marker"]});
    let den = Den::new(&dev(json!({"a": script})));
    let session = |umask: &str| {
        let mut command = den.program(Path::new("/bin/sh"));
        let program = gateway_path();
        command.args(["-c", &format!("umask {umask}; exec {}", program.display())]);
        let mut peer = Peer::spawn(&mut command);
        peer.initialize(VERSION);
        open(&mut peer, "dev");
        peer
    };
    let (mut one, mut other, mut same) = (session("027"), session("077"), session("027"));
    let [first, second, third] = [&mut one, &mut other, &mut same].map(|peer| pid_of(peer, "a"));
    assert_eq!((first == second, first == third), (false, true));
    let told = |pid: u64| fs::read_to_string(den.lab.dir.join(format!("umask.{pid}"))).expect("it wrote it");
    assert_eq!((told(first).trim(), told(second).trim()), ("0027", "0077"));
    for peer in [one, other, same] {
        leave(peer);
    }
}

#[test]
fn files_faces_and_homes_share_nothing_and_one_daemon_serves_both_faces() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let other =
        den.lab.write("other.json", &den.lab.fill(&dev(json!({"a": fake("--with report")})).to_string()));
    den.lab.write(
        "tools.toml",
        &den.lab.fill(&format!(
            "daemon = true\nlinger = 0\nactive_toolsets = [\"*\"]\n{}",
            server("a", "--with report", "")
        )),
    );
    let mut one = den.session();
    open(&mut one, "dev");
    let mut second = den.session_with(|command| {
        command.arg("--config").arg(&other);
    });
    open(&mut second, "dev");
    let mut homeless = den.session_with(|command| {
        command.env("XDG_DATA_HOME", "/nowhere");
    });
    open(&mut homeless, "dev");
    let mut toolman = Peer::spawn(&mut den.program(&toolman_path()));
    toolman.initialize(VERSION);
    let names = toolman.tools();
    let tool = names.iter().find(|name| name.ends_with("report")).unwrap_or_else(|| panic!("{names:?}"));
    let last = toolman.call(tool, "{}").json()["pid"].as_u64().expect("a process id");
    let mut pids = vec![pid_of(&mut one, "a"), pid_of(&mut second, "a"), pid_of(&mut homeless, "a"), last];
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 4, "each has its own");
    let status = den.status();
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(4), "{status:#}");
    let namespaces =
        status["servers"].as_array().expect("a list").iter().filter(|server| server["namespace"] == "a");
    assert_eq!(namespaces.count(), 1, "{status:#}");
    for peer in [one, second, homeless, toolman] {
        leave(peer);
    }
}

#[test]
fn questions_outside_of_calls_go_to_the_oldest_session_and_are_refused_if_shared() {
    for (isolation, answered) in [("directory", true), ("shared", false)] {
        let flags = "--with ask,report,received --ask-after-initialized roots/list --wait-for @dir/go";
        let mut entry = fake(flags);
        entry["isolation"] = isolation.into();
        let den = Den::new(&dev(json!({ "a": entry })));
        let connect = || {
            let mut peer = Peer::spawn(&mut den.command());
            peer.initialize_with(VERSION, r#"{"roots":{}}"#);
            peer
        };
        // The oldest session does not have the server open.
        let (mut closed, mut one, mut other) = (connect(), connect(), connect());
        let [opening, also] =
            [&mut one, &mut other].map(|peer| peer.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#));
        den.until("both wait for it", |now| now["servers"][0]["sessions"] == 2);
        den.lab.write("go", "");
        if answered {
            let question = one.question("roots/list");
            one.reply(&question, r#""result":{"roots":[]}"#);
        }
        one.answer(&opening);
        other.answer(&also);
        let heard = other.call("dev__a__received", r#"{"method":"answer","count":1}"#).text();
        let refused = heard.contains("it cannot be told which client this question belongs to");
        assert_eq!(refused, !answered, "{isolation}: {heard}");
        // A question of a call goes to the session whose call it is.
        let call = other.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
        let question = other.question("roots/list");
        other.reply(&question, r#""result":{"roots":[{"uri":"file:///other"}]}"#);
        assert!(other.answer(&call).text().contains("file:///other"));
        for peer in [&mut closed, &mut one, &mut other] {
            assert!(!peer.has(|message| message.method() == "roots/list"), "{isolation}");
        }
        for peer in [closed, one, other] {
            leave(peer);
        }
    }
}

/// Servers ask for roots some time after the handshake, and somebody may have begun a call by then.
#[test]
fn a_server_that_has_asked_for_roots_once_keeps_nobody_waiting() {
    let mut entry = fake("--with ask,slow,echo");
    entry["isolation"] = json!("shared");
    let den = Den::new(&dev(json!({ "a": entry })));
    let [mut one, mut other] = [(); 2].map(|()| {
        let mut peer = den.spawn();
        peer.initialize_with(VERSION, r#"{"roots":{}}"#);
        open(&mut peer, "dev");
        peer
    });
    one.post_call("dev__a__slow", r#"{"key":"k"}"#);
    let asks = |peer: &mut Peer| {
        let call = peer.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
        let question = peer.question("roots/list");
        peer.reply(&question, r#""result":{"roots":[]}"#);
        peer.answer(&call).text();
    };
    asks(&mut one);
    other.call("dev__a__echo", "{}").text();
    // Who asks again asks during calls, which wait for each other from then on.
    asks(&mut one);
    let waits = other.post_call("dev__a__echo", "{}");
    other.fence();
    assert!(!other.has(|message| message.id() == waits), "it may be asked by mistake");
    leave(one);
    other.answer(&waits).text();
    leave(other);
}

#[test]
fn questions_of_two_sessions_with_calls_in_flight_never_mix() {
    for isolation in ["directory", "shared"] {
        let mut entry = fake("--with ask,report");
        entry["isolation"] = isolation.into();
        let den = Den::new(&dev(json!({ "a": entry })));
        let mut peers = ["one", "other"].map(|who| {
            let mut peer = den.spawn();
            peer.initialize_with(VERSION, r#"{"sampling":{},"elicitation":{}}"#);
            open(&mut peer, "dev");
            (who, peer)
        });
        let pids = peers.each_mut().map(|(_, peer)| pid_of(peer, "a"));
        assert_eq!(pids[0], pids[1]);
        let mut ask = |method: &str, order: &[usize]| {
            let calls: Vec<_> = order
                .iter()
                .map(|at| {
                    let (who, peer) = &mut peers[*at];
                    let params = json!({ "message": who }).to_string();
                    let call = peer.post_call("dev__a__ask", json!({"method": method, "params": params}));
                    // The daemon has the call before the next one is made.
                    peer.fence();
                    (*at, call)
                })
                .collect();
            for (at, call) in calls {
                let (who, peer) = &mut peers[at];
                let question = peer.question(method);
                assert_eq!(question.value()["params"]["message"], *who, "{isolation}");
                peer.reply(&question, &format!(r#""result":{{"answer":"of {who}"}}"#));
                let answer = peer.answer(&call).text();
                assert_eq!(answer, format!(r#"{{"result":{{"answer":"of {who}"}}}}"#), "{isolation}");
            }
            for (_, peer) in &mut peers {
                assert!(!peer.has(|message| message.method() == method), "{isolation}");
            }
        };
        // From its first question on, it is known that this server asks.
        ask("elicitation/create", &[1]);
        for order in [[0, 1], [1, 0]] {
            ask("elicitation/create", &order);
            ask("sampling/createMessage", &order);
        }
        leave_all(peers.map(|(_, peer)| peer).into());
    }
}

#[test]
fn a_session_that_does_not_read_delays_no_other() {
    let den = Den::new(&dev(json!({"a": fake("--with echo,large")})));
    let mut lazy = Reluctant::start(den.command());
    lazy.say(&format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"lazy","version":"1"}}}}}}"#));
    lazy.say(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"open_toolbox","arguments":{"toolbox_name":"dev"}}}"#);
    let mut peer = den.session();
    open(&mut peer, "dev");
    den.until("both", |now| now["servers"][0]["sessions"] == 2);
    for id in 2..34 {
        lazy.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"dev__a__large","arguments":{{"bytes":1000000}}}}}}"#));
    }
    for _ in 0..50 {
        assert!(!peer.call("dev__a__echo", "{}").is_error());
    }
    drop(lazy);
    leave(peer);
}

#[test]
fn sessions_with_the_same_ids_get_their_own_answers() {
    let den = Den::new(&dev(json!({"a": fake("--with echo")})));
    let mut peers: Vec<_> = (0..64).map(|_| den.session()).collect();
    for peer in &mut peers {
        open(peer, "dev");
    }
    assert_eq!(den.servers_of(), 1);
    for round in 0..20 {
        for id in ["1", "\"1\""] {
            for (number, peer) in peers.iter_mut().enumerate() {
                peer.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"dev__a__echo","arguments":{{"who":"{number}/{round}"}}}}}}"#));
            }
        }
        for (number, peer) in peers.iter_mut().enumerate() {
            for id in ["1", "\"1\""] {
                let echoed =
                    peer.take("an answer", |message| message.id() == id && message.method().is_empty());
                assert!(echoed.text().contains(&format!("\"{number}/{round}\"")), "{echoed:?} for {number}");
            }
        }
    }
    leave_all(peers);
}

#[test]
fn a_changed_file_reaches_all_sessions_and_each_keeps_its_view() {
    let mut config = daemon(json!({
        "dev": {"mcpServers": {"a": fake("--with report"), "b": fake("--with report")}},
        "more": {"mcpServers": {"c": fake("--tools 1")}},
    }));
    let den = Den::new(&config);
    let (mut one, mut other) = (den.session(), den.session());
    open(&mut one, "dev");
    open(&mut other, "dev");
    open(&mut other, "more");
    let (a, b) = (pid_of(&mut one, "a"), pid_of(&mut one, "b"));
    assert_eq!(pid_of(&mut other, "a"), a);
    config["toolboxes"]["dev"]["mcpServers"]["a"]["env"] = json!({"NEW": "1"});
    den.configure(&config);
    for peer in [&mut one, &mut other] {
        let end = Instant::now() + DEADLINE;
        while report(peer, "a")["env"]["NEW"] != "1" {
            assert!(Instant::now() < end, "the new file is not in force");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let now = pid_of(&mut one, "a");
    assert_ne!(now, a, "its entry changed");
    assert_eq!((pid_of(&mut other, "a"), pid_of(&mut other, "b"), pid_of(&mut one, "b")), (now, b, b));
    assert_eq!((one.tools().len(), other.tools().len()), (3, 4));
    // SIGHUP to a relay has the file read again, and does not end it.
    one.signal("HUP");
    one.fence();
    assert_eq!(pid_of(&mut one, "a"), now);
    leave(one);
    leave(other);
}

/// A client that writes and never reads.
struct Reluctant(std::process::Child);

impl Reluctant {
    fn start(mut command: Command) -> Self {
        let piped = Stdio::piped;
        Self(command.stdin(piped()).stdout(piped()).spawn().expect("it is built"))
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().expect("piped"), "{line}").expect("it is read");
    }
}

impl Drop for Reluctant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_era_makes_no_difference() {
    let den = Den::new(&dev(json!({"a": fake("--with report")})));
    let mut legacy = den.session();
    open(&mut legacy, "dev");
    let mut modern = den.spawn();
    let arguments = r#""arguments":{"toolbox_name":"dev"}"#;
    modern.request("tools/call", modern_call("open_toolbox", arguments)).result();
    let answer = modern.request("tools/call", modern_call("dev__a__report", r#""arguments":{}"#));
    assert_eq!(answer.json()["pid"], pid_of(&mut legacy, "a"));
    leave(modern);
    leave(legacy);
}

#[test]
fn each_home_directory_has_servers_of_its_own() {
    let den = Den::new(&dev(
        json!({"a": {"command": "@fake", "args": ["--with", "report", "--marker", "@marker"], "isolation": "shared"}}),
    ));
    let file = den.lab.dir.join("workbench-config.json");
    let with = |variable: &str, value: &str| {
        den.session_with(|command| {
            command.arg("--config").arg(&file).env(variable, value);
        })
    };
    let mut first = with("EDITOR", "vi");
    open(&mut first, "dev");
    let own = pid_of(&mut first, "a");
    for (variable, shares) in [
        ("HOME", false),
        ("XDG_CONFIG_HOME", false),
        ("XDG_STATE_HOME", false),
        ("XDG_CACHE_HOME", false),
        ("XDG_DATA_HOME", false),
        ("EDITOR", true),
    ] {
        let mut peer = with(variable, "/nowhere");
        open(&mut peer, "dev");
        assert_eq!(pid_of(&mut peer, "a") == own, shares, "{variable}");
        leave(peer);
    }
    leave(first);
}

#[test]
fn the_daemon_raises_its_limit_of_open_files_and_servers_have_its_limits() {
    const LOW: &str = "200";
    let script = "ulimit -n > @dir/limit.$$; exec @fake --with report --marker @marker";
    let entry = json!({"command": "/bin/sh", "args": ["-c", script], "isolation": "session"});
    let den = Den::new(&dev(json!({ "a": entry })));
    let mut command = den.program(Path::new("/bin/sh"));
    command.args(["-c", &format!("ulimit -S -n {LOW}; exec {}", gateway_path().display())]);
    let mut peer = Peer::spawn(&mut command);
    peer.initialize(VERSION);
    open(&mut peer, "dev");
    let told = fs::read_to_string(den.lab.dir.join(format!("limit.{}", pid_of(&mut peer, "a"))));
    // The soft limit and the hard one.
    let limits_of = |pid: u32| {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("ours");
        let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
        let mut words = files.split_whitespace().skip(3).map(ToOwned::to_owned);
        (words.next().expect("a number"), words.next().expect("a number"))
    };
    let (low, most) = limits_of(peer.pid());
    assert!(low == LOW && most != LOW, "the relay has {low} of {most}");
    assert_eq!(limits_of(den.daemon_pid()), (most.clone(), most.clone()));
    assert_eq!(told.expect("it wrote it").trim(), most);
    leave(peer);
}

#[test]
fn logs_and_updates_reach_the_session_that_they_belong_to() {
    let flags = "--with notify,update,report,slow,started,release --resources 1";
    let den = Den::new(&dev(json!({"a": fake(flags)})));
    let (mut one, mut other) = (den.session(), den.session());
    for (peer, level) in [(&mut one, "debug"), (&mut other, "error")] {
        open(peer, "dev");
        peer.request("logging/setLevel", json!({ "level": level })).result();
    }
    assert_eq!(pid_of(&mut one, "a"), pid_of(&mut other, "a"));
    one.request("resources/subscribe", json!({"uri": "workbench://dev/a/fake://resource/1"})).result();
    other.call("dev__a__update", r#"{"uri":"fake://resource/1"}"#).text();
    one.notification("notifications/resources/updated");
    assert_eq!(other.count("notifications/resources/updated"), 0);
    let log = json!({"method": "notifications/message", "params": r#"{"level":"info","data":"x"}"#});
    one.call("dev__a__notify", &log).text();
    one.notification("notifications/message");
    other.call("dev__a__notify", &log).text();
    assert_eq!(other.count("notifications/message"), 0, "it asked for errors alone");
    assert_eq!(one.count("notifications/message"), 0, "it is another's");
    // While both have calls in flight, nobody can tell whose it is, so it is nobody's.
    let calls = [(&mut one, "1"), (&mut other, "2")].map(|(peer, key)| {
        let call = peer.post_call("dev__a__slow", json!({ "key": key }));
        peer.call("dev__a__started", json!({ "key": key })).text();
        call
    });
    let log = json!({"method": "notifications/message", "params": r#"{"level":"error","data":"x"}"#});
    one.call("dev__a__notify", &log).text();
    for ((peer, call), key) in [&mut one, &mut other].into_iter().zip(&calls).zip(["1", "2"]) {
        peer.call("dev__a__release", json!({ "key": key })).text();
        peer.answer(call).text();
    }
    assert_eq!(other.count("notifications/message"), 0, "it may be another's");
    leave(one);
    leave(other);
}

#[test]
fn the_only_session_of_a_shared_server_is_asked_what_belongs_to_no_call() {
    let mut entry = fake("--tools 1 --ask-after-initialized roots/list");
    entry["isolation"] = json!("shared");
    let den = Den::new(&dev(json!({ "a": entry })));
    let mut peer = den.spawn();
    peer.initialize_with(VERSION, r#"{"roots":{}}"#);
    let opening = peer.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    let question = peer.question("roots/list");
    peer.reply(&question, r#""result":{"roots":[]}"#);
    peer.answer(&opening).json();
    leave(peer);
}

#[test]
fn over_http_directory_means_shared_and_nothing_asks_for_a_daemon() {
    let mut entry = fake("--with report");
    entry["isolation"] = json!("directory");
    let host = Host::workbench(dev(json!({ "a": entry })));
    let pids = [(); 2].map(|()| {
        let mut client = host.client(Era::Legacy);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        client.call("dev__a__report", "{}").json()["pid"].clone()
    });
    assert_eq!(pids[0], pids[1]);
    let daemons = host.lab.processes().into_iter().filter(|(_, line)| line.contains("daemon-process"));
    assert_eq!(daemons.count(), 0);
}

#[test]
fn over_http_a_program_that_keeps_a_state_is_shared_unless_the_file_says_otherwise() {
    let host = Host::workbench(dev(json!({"a": fake("--with report --instructions @playwright/mcp")})));
    let mut clients = [(); 2].map(|()| host.client(Era::Legacy));
    let pids = clients.each_mut().map(|client| {
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        client.call("dev__a__report", "{}").json()["pid"].clone()
    });
    assert_eq!(pids[0], pids[1]);
}

#[test]
fn a_change_of_the_key_concerns_new_sessions() {
    let mut config = dev(json!({"a": fake("--with report")}));
    let den = Den::new(&config);
    let mut old = den.session();
    open(&mut old, "dev");
    let pid = pid_of(&mut old, "a");
    config["daemon"] = json!(false);
    config["toolboxes"]["more"] = json!({"mcpServers": {"b": fake("--tools 1")}});
    den.configure(&config);
    // The rest of the file is in force in the old session, which stays where it is.
    let end = Instant::now() + DEADLINE;
    while old.call("open_toolbox", r#"{"toolbox_name":"more"}"#).is_error() {
        assert!(Instant::now() < end, "the new file is not in force");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut new = den.session();
    open(&mut new, "dev");
    assert_ne!(pid_of(&mut new, "a"), pid);
    assert_eq!((pid_of(&mut old, "a"), sessions(&den.status())), (pid, 1));
    leave(new);
    leave(old);
}

#[test]
fn each_file_is_read_again_for_itself() {
    let mut config = dev(json!({"a": fake("--with report")}));
    let den = Den::new(&config);
    let other = den.lab.write("other.json", &den.lab.fill(&config.to_string()));
    let mut one = den.session();
    let mut two = den.session_with(|command| {
        command.arg("--config").arg(&other);
    });
    open(&mut one, "dev");
    open(&mut two, "dev");
    let pid = pid_of(&mut two, "a");
    // One becomes invalid, the other one changes: the first stays as it was, the second follows.
    fs::write(&other, "{").expect("it is ours");
    config["toolboxes"]["dev"]["mcpServers"]["a"]["env"] = json!({"NEW": "1"});
    den.configure(&config);
    let end = Instant::now() + DEADLINE;
    while report(&mut one, "a")["env"]["NEW"] != "1" {
        assert!(Instant::now() < end, "the new file is not in force");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(pid_of(&mut two, "a"), pid);
    leave(one);
    leave(two);
}

#[test]
fn a_shared_server_gets_the_environment_of_the_session_whose_call_starts_it() {
    let mut config =
        dev(json!({"a": {"command": "@fake", "args": ["--with", "report", "--marker", "@marker"],
        "inheritEnv": ["WHO"], "isolation": "shared", "start": "call"}}));
    config["linger"] = json!(60);
    let den = Den::new(&config);
    let session = |who: &str| {
        let mut peer = den.session_with(|command| {
            command.env("WHO", who);
        });
        open(&mut peer, "dev");
        peer
    };
    // From now on its definitions are remembered.
    leave(session("before"));
    den.run(&["stop"]);
    let (one, mut other) = (session("one"), session("other"));
    assert_eq!(report(&mut other, "a")["env"]["WHO"], "other");
    leave(one);
    leave(other);
}

#[test]
fn what_is_remembered_of_a_server_in_one_directory_is_not_shown_in_another() {
    let mut config = dev(json!({"a": {"command": "/bin/sh", "args": ["tools/serve"], "start": "call"}}));
    config["linger"] = json!(60);
    let den = Den::new(&config);
    let file = den.lab.dir.join("workbench-config.json");
    let session = |project: &str| {
        let directory = den.lab.dir.join(project);
        fs::create_dir_all(directory.join("tools")).expect("the directory is ours");
        let script =
            den.lab.fill(&format!("exec @fake --marker @marker --tool '{{\"name\":\"{project}\"}}'\n"));
        fs::write(directory.join("tools/serve"), script).expect("the directory is ours");
        let mut peer = den.session_with(|command| {
            command.arg("--config").arg(&file).current_dir(&directory);
        });
        open(&mut peer, "dev");
        peer
    };
    for round in ["nothing is remembered", "all is"] {
        for project in ["one", "other"] {
            let mut peer = session(project);
            assert!(peer.tools().contains(&format!("dev__a__{project}")), "{:?}, {round}", peer.tools());
            leave(peer);
        }
    }
}

#[test]
fn a_mode_decides_for_its_own_session_what_starts_a_server_and_stays_listed() {
    let den = Den::new(&dev(json!({"a": fake("--with crash --count @dir/a")})));
    let session = |mode: &str| {
        den.session_with(|command| {
            command.args(["--tool-mode", mode]);
        })
    };
    let is_listed = |peer: &mut Peer| peer.tools().contains(&"dev__a__crash".to_owned());
    let mut before = session("dynamic");
    open(&mut before, "dev");
    leave(before);
    let (mut flat, mut dynamic) = (session("flat"), session("dynamic"));
    assert_eq!((is_listed(&mut flat), den.lab.starts("a")), (true, 1), "it is remembered");
    open(&mut dynamic, "dev");
    assert_eq!((is_listed(&mut dynamic), den.lab.starts("a")), (true, 2), "an opening starts it");
    dynamic.call("dev__a__crash", "{}").failure();
    assert_eq!((is_listed(&mut flat), is_listed(&mut dynamic)), (true, false));
    leave(flat);
    leave(dynamic);
}
