//! Servers that want a login: the person's way through it, what is remembered, and who never sees what.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::guarded::{Forged, Guarded, SECRET, browse, login, visit};
use crate::harness::{DEADLINE, Gateway, Lab, Message, TOOLS_CHANGED, VERSION, dev};

fn config(guarded: &Guarded) -> Value {
    dev("proxy", json!({"a": {"url": guarded.url}}))
}

/// A gateway in a place that may remember something; it logs all that it can.
#[track_caller]
fn gateway(lab: Lab, guarded: &Guarded) -> Gateway {
    let mut gateway = Gateway::spawn_with(lab, config(guarded), |command| {
        command.arg("-vv").env("RUST_LOG", "trace");
    });
    gateway.initialize(VERSION);
    gateway
}

fn open(gateway: &mut Gateway) -> Message {
    gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#)
}

/// The login that a failure asks for.
#[track_caller]
fn asked(failure: &Message) -> String {
    login(&failure.failure()).unwrap_or_else(|| panic!("no login in {}", failure.failure()))
}

/// Opens the toolbox, goes through the login, and opens it again.
#[track_caller]
fn log_in(gateway: &mut Gateway) {
    let url = asked(&open(gateway));
    assert_eq!(browse(&url).0, 200);
    assert_eq!(open(gateway).json()["servers_connected"], 1);
}

fn credentials(lab: &Lab) -> Vec<PathBuf> {
    let files = std::fs::read_dir(lab.dir.join("xdg-state/mcp-workbench/credentials"));
    let files = files.into_iter().flatten().flatten().map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

#[test]
fn a_person_logs_in_and_nobody_else_sees_anything() {
    let guarded = Guarded::start();
    let mut gateway = gateway(Lab::new(), &guarded);
    let first = open(&mut gateway);
    let again = open(&mut gateway);
    assert!(first.failure().contains("'a' in toolbox 'dev': it needs a login; open this in a browser"));
    assert_eq!(asked(&first), asked(&again), "the same login waits");
    assert_eq!(browse(&asked(&first)).0, 200);
    assert_eq!(guarded.asked("scope"), "read");
    let opened = open(&mut gateway);
    assert_eq!(opened.json()["servers_connected"], 1);
    let called = gateway.use_tool("a", "echo", "{}");
    assert_eq!(called.text(), "done");

    assert_eq!(guarded.count("POST /register"), 1);
    let token = format!("Bearer {SECRET}-access-2");
    assert_eq!(guarded.credentials("POST /mcp"), [token]);
    assert!(guarded.credentials("POST /token")[0].starts_with("Basic "));
    for path in ["POST /register", "GET /.well-known/oauth-authorization-server", "GET /authorize"] {
        assert_eq!(guarded.credentials(path), [""; 0], "{path}");
    }
    let files = credentials(&gateway.lab);
    assert_eq!(files.len(), 1);
    assert!(std::fs::read_to_string(&files[0]).unwrap().contains(SECRET));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&files[0]), mode(files[0].parent().unwrap())), (0o600, 0o700));
    }
    let said = [first.raw, again.raw, opened.raw, called.raw, gateway.stderr()].concat();
    assert!(said.contains("needs a login") && !said.contains(SECRET), "{said}");
}

#[test]
fn a_login_outlives_the_gateway() {
    let guarded = Guarded::start();
    let mut first = gateway(Lab::new(), &guarded);
    log_in(&mut first);
    let mut second = gateway(first.finish(), &guarded);
    assert_eq!(open(&mut second).json()["servers_connected"], 1);
    assert_eq!((guarded.count("GET /authorize"), guarded.count("POST /token")), (1, 1));
    // Logged in anew, we are the client that we were.
    guarded.forget_tokens();
    let lab = second.finish();
    let file = credentials(&lab).remove(0);
    let remembered = std::fs::read_to_string(&file).unwrap().replace("-refresh-", "-lost-");
    std::fs::write(&file, remembered).unwrap();
    let mut third = gateway(lab, &guarded);
    log_in(&mut third);
    assert_eq!((guarded.count("GET /authorize"), guarded.count("POST /register")), (2, 1));
    assert!(!third.stderr().contains(SECRET), "{}", third.stderr());
}

#[cfg(unix)]
#[test]
fn a_login_that_others_can_see_or_change_is_told() {
    use std::os::unix::fs::PermissionsExt;

    let guarded = Guarded::start();
    let mut first = gateway(Lab::new(), &guarded);
    log_in(&mut first);
    let mut lab = first.finish();
    let file = credentials(&lab).remove(0);
    let mode = || file.metadata().unwrap().permissions().mode() & 0o777;
    let mend = format!("run `chmod 600 {}`", file.display());
    for readable in [0o640, 0o604] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(readable)).unwrap();
        let mut second = gateway(lab, &guarded);
        assert_eq!(open(&mut second).json()["servers_connected"], 1);
        assert_eq!(second.use_tool("a", "echo", "{}").text(), "done");
        assert_eq!(second.stderr_with(&mend).matches("chmod").count(), 1);
        lab = second.finish();
    }
    // Somebody else may have written what stands in there, the endpoint that gets our secrets included.
    for writable in [0o620, 0o602] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(writable)).unwrap();
        let mut third = gateway(lab, &guarded);
        log_in(&mut third);
        assert_eq!(third.stderr_with(&mend).matches("chmod").count(), 1);
        assert_eq!(mode(), 0o600, "the new login is kept as it should be");
        lab = third.finish();
    }
    assert_eq!(guarded.count("GET /authorize"), 3);
}

#[test]
fn tokens_that_are_refused_are_renewed_once_for_all_processes() {
    let guarded = Guarded::start();
    let mut first = gateway(Lab::new(), &guarded);
    log_in(&mut first);
    let state = first.lab.dir.join("xdg-state");
    let mut second = Gateway::spawn_with(Lab::new(), config(&guarded), |command| {
        command.env("XDG_STATE_HOME", state);
    });
    second.initialize(VERSION);
    assert_eq!(open(&mut second).json()["servers_connected"], 1);
    guarded.forget_tokens();
    let ids: Vec<_> = (0..5)
        .map(|_| (first.post_use_tool("a", "echo", "{}"), second.post_use_tool("a", "echo", "{}")))
        .collect();
    for (one, two) in ids {
        assert_eq!((first.answer(&one).text(), second.answer(&two).text()), ("done".into(), "done".into()));
    }
    assert_eq!(guarded.count("POST /token"), 2, "one login, one renewal");
}

#[test]
fn tokens_that_are_about_to_end_are_renewed_before() {
    let guarded = Guarded::start();
    guarded.tokens_last(0);
    let mut gateway = gateway(Lab::new(), &guarded);
    log_in(&mut gateway);
    let asked = guarded.count("GET /.well-known/oauth-protected-resource/mcp");
    guarded.forget_tokens();
    assert_eq!(gateway.use_tool("a", "echo", "{}").text(), "done");
    assert_eq!(guarded.count("GET /.well-known/oauth-protected-resource/mcp"), asked, "it was not refused");
}

#[test]
fn tokens_may_last_for_ever() {
    for lifetime in [json!(u64::MAX), json!(1e300), json!("1e999")] {
        let guarded = Guarded::start();
        guarded.tokens_last(lifetime);
        let mut gateway = gateway(Lab::new(), &guarded);
        log_in(&mut gateway);
        assert_eq!(gateway.use_tool("a", "echo", "{}").text(), "done");
        assert_eq!(guarded.count("POST /token"), 1);
    }
}

#[test]
fn only_the_answer_to_this_login_counts_and_only_once() {
    let guarded = Guarded::start();
    let mut gateway = gateway(Lab::new(), &guarded);
    let url = asked(&open(&mut gateway));
    let callback = visit(&url).1.expect("it sends the browser back");
    let state = guarded.asked("state");
    for wrong in ["", "guess", &state[1..]] {
        let (status, _) = visit(&callback.replace(&state, wrong));
        assert_eq!((status, guarded.count("POST /token")), (400, 0), "{wrong}");
    }
    assert_eq!(visit(&callback.replace("/callback", "/other")).0, 404);
    assert_eq!(visit(&callback).0, 200);
    assert!(matches!(visit(&callback).0, 0 | 400));
    assert_eq!(guarded.count("POST /token"), 1);
    assert_eq!(open(&mut gateway).json()["servers_connected"], 1);
}

#[test]
fn an_answer_of_somebody_else_ends_the_login() {
    let guarded = Guarded::start();
    let mut gateway = gateway(Lab::new(), &guarded);
    let url = asked(&open(&mut gateway));
    let callback = visit(&url).1.expect("it sends the browser back");
    let (address, _) = callback.split_once("&iss=").expect("it names itself");
    assert_eq!(visit(&format!("{address}&iss=https://evil.example")).0, 400);
    assert!(matches!(visit(&callback).0, 0 | 400), "it is over");
    assert_eq!(guarded.count("POST /token"), 0);
    let again = open(&mut gateway);
    assert!(again.failure().contains("(the last login failed: the answer is not from"), "{again:?}");
    assert_eq!(browse(&asked(&again)).0, 200);
    assert_eq!(open(&mut gateway).json()["servers_connected"], 1);
}

#[test]
fn a_call_that_needs_more_asks_for_more() {
    let guarded = Guarded::start();
    let mut gateway = gateway(Lab::new(), &guarded);
    log_in(&mut gateway);
    let refused = gateway.use_tool("a", "write", "{}");
    assert!(refused.failure().starts_with("[dev/a/write] it needs a login"), "{refused:?}");
    assert_eq!(gateway.use_tool("a", "echo", "{}").text(), "done", "the rest goes on");
    assert_eq!(browse(&asked(&refused)).0, 200);
    assert_eq!(guarded.asked("scope"), "read write");
    assert_eq!(gateway.use_tool("a", "write", "{}").text(), "done");
}

#[test]
fn what_the_file_says_comes_first() {
    let guarded = Guarded::start();
    for entry in [
        json!({"url": guarded.url, "headers": {"authorization": "Bearer own"}}),
        json!({"url": guarded.url, "oauth": false}),
    ] {
        let mut gateway = Gateway::start(dev("proxy", json!({"a": entry})));
        assert!(open(&mut gateway).failure().contains("HTTP 401 Unauthorized: it needs credentials"));
        assert_eq!(guarded.count("GET /.well-known/oauth-protected-resource/mcp"), 0);
    }
    let oauth = json!({"clientId": "mine", "clientSecret": "my secret", "scope": "all"});
    let mut gateway = Gateway::start(dev("proxy", json!({"a": {"url": guarded.url, "oauth": oauth}})));
    log_in(&mut gateway);
    assert_eq!((guarded.asked("client_id"), guarded.asked("scope")), ("mine".into(), "all read".into()));
    assert_eq!(guarded.credentials("POST /token"), ["Basic bWluZTpteSUyMHNlY3JldA=="]);
    assert_eq!(guarded.count("POST /register"), 0);
}

#[test]
fn toolman_says_what_waits_and_has_it_after_the_login() {
    let guarded = Guarded::start();
    let servers = format!("[[servers]]\nnamespace = \"a\"\nurl = {}\n", json!(guarded.url));
    let mut gateway = Gateway::toolman(format!("active_toolsets = [\"*\"]\n{servers}"));
    assert_eq!(gateway.tools(), ["toolman_activate"]);
    let shown = gateway.activate([&[], &[], &[], &[]]);
    let url = asked(&shown);
    let catalog =
        |gateway: &mut Gateway| gateway.request("resources/read", r#"{"uri":"toolman://catalog"}"#).raw;
    assert!(catalog(&mut gateway).contains(&url));
    assert!(gateway.call("a_echo", "{}").failure().contains(&url));
    assert_eq!(browse(&url).0, 200);
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.tools(), ["toolman_activate", "a_echo", "a_write"]);
    let after = catalog(&mut gateway);
    assert!(!after.contains("logged in"), "{after}");
}

#[test]
fn a_shell_without_a_person_says_that_one_is_needed() {
    let guarded = Guarded::start();
    let lab = Lab::new();
    lab.write("workbench-config.json", &config(&guarded).to_string());
    let failed = lab.run(lab.command().args(["call", "dev/a/echo", "--json"]));
    let error: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!((failed.code, &error["error"]["kind"]), (Some(3), &json!("authorization")));
    assert_eq!(error["error"]["message"], "dev/a: it needs a login, but nobody is here to log in");
    assert_eq!(lab.run(lab.command().args(["list", "servers"])).code, Some(4));
    let doctor = lab.run(lab.command().arg("doctor"));
    assert_eq!(doctor.code, Some(4));
    assert!(doctor.stdout.contains("run `login dev/a`"), "{doctor:?}");
    assert_eq!(guarded.count("POST /register"), 0);

    let mut gateway = gateway(lab, &guarded);
    log_in(&mut gateway);
    let lab = gateway.finish();
    let called = lab.run(lab.command().args(["call", "dev/a/echo"]));
    assert_eq!((called.code, &*called.stdout), (Some(0), "done\n"), "{called:?}");
    assert_eq!(lab.run(lab.command().args(["call", "dev/a/write"])).code, Some(3));
}

/// `doctor` and `call` show the login and open the browser, here a script that only notes the URL.
#[cfg(target_os = "linux")]
#[test]
fn a_person_at_a_terminal_is_shown_the_login() {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Stdio;

    let guarded = Guarded::start();
    let lab = Lab::new();
    lab.write("workbench-config.json", &config(&guarded).to_string());
    let bin = lab.dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let browser = lab.write("bin/xdg-open", "#!/bin/sh\nprintf %s \"$1\" > url.part\n/bin/mv url.part url\n");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (arguments, expected, scope) in
        [(&["doctor"][..], "ok ", "read"), (&["call", "dev/a/write"], "done", "read write")]
    {
        let (_ours, theirs) = crate::config::terminal();
        let mut command = lab.command();
        command.args(arguments).env("PATH", &bin).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(theirs);
        let child = command.spawn().unwrap();
        drop(command);
        let end = std::time::Instant::now() + DEADLINE;
        let url = loop {
            match std::fs::read_to_string(lab.dir.join("url")) {
                Ok(url) => break url,
                Err(_) => assert!(std::time::Instant::now() < end, "the browser was not opened"),
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        std::fs::remove_file(lab.dir.join("url")).unwrap();
        assert_eq!(browse(&url).0, 200);
        assert_eq!(guarded.asked("scope"), scope);
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && said.contains(expected), "{arguments:?}: {} {said}", done.status);
    }
}

/// `0.0.0.0` leads to this machine and is no loopback address, so a server there is one on another machine to us.
#[cfg(unix)]
#[test]
fn a_server_elsewhere_cannot_send_us_to_this_machine() {
    use std::net::TcpListener;

    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let port = trap.local_addr().unwrap().port();
    let at = |origin: &str| format!("{origin}:{port}/x");
    for (forged, named) in [
        (Forged::Metadata(at("http://127.0.0.1")), "127.0.0.1 is a loopback address"),
        (Forged::Metadata(at("http://localhost")), "localhost is a loopback name"),
        (Forged::Metadata(at("https://[::ffff:7f00:1]")), "[::ffff:7f00:1] is a loopback address"),
        (Forged::Metadata(at("https://2130706433")), "2130706433 is not a host name"),
        (Forged::AuthorizationServer(at("https://LOCALHOST.")), "LOCALHOST. is a loopback name"),
        (Forged::AuthorizationServer(at("https://127.0.0.1")), "127.0.0.1 is a loopback address"),
        (Forged::AuthorizationServer(at("http://127.evil.example")), "127.evil.example is neither"),
        (Forged::Redirect(at("http://127.0.0.1")), "redirects to http://127.0.0.1"),
    ] {
        let guarded = Guarded::start_as("0.0.0.0", Some(forged));
        let mut gateway = gateway(Lab::new(), &guarded);
        let failure = open(&mut gateway).failure();
        assert!(failure.contains("it needs a login, but") && failure.contains(named), "{failure}");
        assert!(trap.accept().is_err(), "{named}: it was connected to");
    }
}

/// A verb that waits for a login: its process, and the address at which the login begins.
struct Waiting {
    child: std::process::Child,
    url: String,
    /// What it says after that.
    stderr: std::io::BufReader<std::process::ChildStderr>,
}

impl Waiting {
    #[track_caller]
    fn start(lab: &Lab, args: &[&str]) -> Self {
        use std::io::BufRead;
        use std::process::Stdio;
        let mut command = lab.command();
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stderr = std::io::BufReader::new(child.stderr.take().expect("piped"));
        let (mut all, mut url) = (String::new(), None);
        while url.is_none() {
            assert!(stderr.read_line(&mut all).expect("UTF-8") > 0, "no login in: {all}");
            url = login(&all);
        }
        Self { child, url: url.expect("found"), stderr }
    }

    /// The exit status and the rest of stderr.
    #[track_caller]
    fn end(mut self) -> (Option<i32>, String) {
        use std::io::Read;
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("UTF-8");
        (self.child.wait().expect("it ends").code(), rest)
    }

    #[track_caller]
    fn paste(&mut self, line: &str) {
        use std::io::Write;
        writeln!(self.child.stdin.as_mut().expect("piped"), "{line}").expect("it reads");
    }
}

#[test]
fn login_and_logout_are_verbs() {
    let guarded = Guarded::start();
    guarded.tokens_last(3600);
    let lab = Lab::new();
    lab.write("workbench-config.json", &config(&guarded).to_string());
    let run = |args: &[&str]| lab.run(lab.command().args(args));
    let status = |args: &[&str]| -> Value {
        let told = run(&[args, &["--json"]].concat());
        serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told:?}"))
    };
    let which = run(&["login"]);
    let wanting = "dev/a needs a login: run `mcp-workbench login dev/a`\n";
    assert_eq!((which.code, which.stdout.as_str()), (Some(0), wanting), "{which:?}");
    let doctor = status(&["doctor"]);
    assert_eq!(doctor["servers"][0]["hint"], "run `login dev/a`", "{doctor}");
    assert_eq!(doctor["servers"][0]["login"], Value::Null);

    // By a browser on this machine.
    let waiting = Waiting::start(&lab, &["login", "a", "--no-browser"]);
    assert_eq!(browse(&waiting.url).0, 200);
    let (code, rest) = waiting.end();
    assert!(code == Some(0) && rest.ends_with("you are logged in to dev/a\n"), "{code:?} {rest}");
    let told = status(&["list", "servers"]);
    assert_eq!((&told[0]["tools"], &told[0]["login"]["user"]), (&json!(2), &Value::Null), "{told}");
    let expires = told[0]["login"]["expires"].as_str().expect("a date");
    assert!(expires.len() == 20 && expires.starts_with("20") && expires.ends_with('Z'), "{expires}");
    assert_eq!(status(&["doctor"])["servers"][0]["login"], told[0]["login"]);
    assert_eq!(run(&["login"]).stdout, "no server needs a login\n");

    // By an address that is pasted; the old tokens stay until then.
    let before = std::fs::read(&credentials(&lab)[0]).expect("it is there");
    let mut waiting = Waiting::start(&lab, &["login", "dev/a", "--no-browser"]);
    assert_eq!(std::fs::read(&credentials(&lab)[0]).expect("it is there"), before);
    waiting.paste("http://example.org/callback?code=x");
    let (_, last) = visit(&waiting.url);
    waiting.paste(&last.expect("it sends the browser back"));
    let (code, rest) = waiting.end();
    assert!(code == Some(0) && rest.contains("this is not the address"), "{code:?} {rest}");
    assert_ne!(std::fs::read(&credentials(&lab)[0]).expect("it is there"), before);
    assert_eq!(status(&["list", "servers"])[0]["tools"], 2);

    let logout = run(&["logout", "a"]);
    let told = "you are logged out of dev/a\n";
    assert_eq!((logout.code, logout.stderr.as_str()), (Some(0), told));
    assert!(credentials(&lab).is_empty());
    assert_eq!(run(&["logout", "a"]).stderr, "you were not logged in to dev/a\n");
    assert_eq!(run(&["login"]).stdout, wanting);
}

#[test]
fn a_login_needs_a_server_that_has_one() {
    let lab = Lab::new();
    let remote = json!({"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer x"}});
    let servers = json!({"a": {"command": "x"}, "b": remote});
    let config = json!({"toolboxes": {"dev": {"mcpServers": servers}, "ops": {"mcpServers": servers}}});
    lab.write("workbench-config.json", &config.to_string());
    for (verb, server, expected) in [
        ("login", "none", "error: there is no server `none`\n"),
        ("login", "a", "error: `a` may be `dev/a` or `ops/a`\nname one of these\n"),
        ("logout", "dev/a", "error: dev/a has no login\n"),
        ("login", "ops/b", "error: ops/b has no login: its entry says who you are\n"),
    ] {
        let told = lab.run(lab.command().args([verb, server]));
        assert_eq!(told.code, Some(2), "{told:?}");
        assert!(told.stderr.starts_with(expected), "{told:?}");
    }
}
