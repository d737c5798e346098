//! The console in a real browser (`tests/console` drives it, and its README tells what is shown), and the verb that opens it.
#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::Path;
use std::process::Command;
#[cfg(target_os = "linux")]
use std::process::{Child, Stdio};

#[cfg(target_os = "linux")]
use crate::harness::{DEADLINE, Lab, dev, signal};

/// The status by which the run says that there is no browser, and why.
const SKIPPED: i32 = 77;

#[test]
fn the_console_keeps_its_promises_in_a_browser() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_BIN_EXE_mcp-workbench"));
    let built = program.parent().expect("it stands in a directory");
    let run = Command::new("node")
        .arg(root.join("tests/console/run.mjs"))
        .env("GATEWAY_DIR", built)
        .env("FAKE_UPSTREAM", built.join("examples").join("fake-upstream"))
        .output();
    let run = match run {
        Ok(run) => run,
        Err(error) => return eprintln!("skipped: node cannot be run: {error}"),
    };
    let said = String::from_utf8_lossy(&run.stdout);
    eprintln!("{said}");
    if run.status.code() == Some(SKIPPED) {
        return;
    }
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
}

/// The minute is a setting here, so that nobody has to wait for it. That it is a minute is seen where the setting is read.
#[cfg(target_os = "linux")]
#[test]
fn a_server_that_the_console_started_ends_so_long_after_its_last_use() {
    use std::io::{BufRead, BufReader};
    use std::time::{Duration, Instant};

    use crate::client::Web;
    use crate::harness::{Gateway, fake};

    const UNUSED: Duration = Duration::from_millis(800);
    let mut config = dev("proxy", serde_json::json!({"a": fake("--with echo")}));
    config["journal"] = true.into();
    // What the server offers is remembered, so that the console lists it.
    let mut gateway = Gateway::start(config);
    gateway.open("dev");
    let lab = gateway.finish();
    let mut command = lab.command();
    command.args(["console", "--no-open"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env("XDG_RUNTIME_DIR", &lab.dir);
    command.env("MCP_WORKBENCH_TEST_UNUSED_MS", UNUSED.as_millis().to_string());
    let mut running = Running(command.spawn().expect("it is built"));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("piped")).read_line(&mut line).expect("an address");
    let (at, key) = line.trim_end().split_once("/console#key=").expect("an address");
    let mut web = Web::new(at.strip_prefix("http://").expect("an address"));
    let key = format!("Authorization: Bearer {key}\r\n");
    let mut ask = |method: &str, path: &str, body: &str| -> serde_json::Value {
        web.path = format!("/console/api{path}");
        let answer = web.exchange(method, &key, body);
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{path}: {}", answer.body))
    };
    let journal = || -> Vec<serde_json::Value> {
        let files = std::fs::read_dir(lab.dir.join("xdg-state/mcp-workbench/journal")).expect("it is kept");
        let texts =
            files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("it is ours"));
        let text: String = texts.collect();
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &serde_json::Value| line["pid"] == running.0.id()).collect()
    };
    let wait = |kind: &str, count: usize, most: Duration| {
        let end = Instant::now() + most;
        while journal().iter().filter(|line| line["kind"] == kind).count() < count {
            assert!(Instant::now() < end, "not {count} times {kind}: {:#?}", journal());
            std::thread::sleep(Duration::from_millis(50));
        }
        Instant::now()
    };
    let id = ask("GET", "/tools", "")["tools"][0]["id"].clone();
    let call = serde_json::json!({"id": id, "arguments": {"text": "hello"}}).to_string();
    assert_eq!(journal(), Vec::<serde_json::Value>::new(), "looking starts no server");
    // It is used for longer than it may be unused.
    let (begun, mut last_use) = (Instant::now(), Instant::now());
    while last_use - begun < 2 * UNUSED {
        last_use = Instant::now();
        assert_eq!(ask("POST", "/call", &call)["outcome"], "ok");
    }
    let ended = wait("end", 1, DEADLINE);
    assert!(ended - last_use >= UNUSED, "after {:?}", ended - last_use);
    let mut kinds: Vec<_> = journal().iter().map(|line| line["kind"].clone()).collect();
    kinds.dedup();
    assert_eq!(kinds, ["start", "call", "end"], "it runs on for all calls");
    assert_eq!(ask("POST", "/call", &call)["outcome"], "ok", "and it starts again");
    wait("start", 2, DEADLINE);
    signal(running.0.id(), "INT");
    assert!(running.0.wait().expect("it is ours").success());
}

/// A verb that runs until somebody ends it.
#[cfg(target_os = "linux")]
struct Running(Child);

#[cfg(target_os = "linux")]
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_verb_prints_the_address_opens_it_and_runs_until_ctrl_c() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;

    let lab = Lab::new();
    lab.write("workbench-config.json", &dev("dynamic", serde_json::json!({})).to_string());
    std::fs::create_dir(lab.dir.join("bin")).expect("the directory is ours");
    let note = "#!/bin/sh\nprintf %s \"$1\" > \"$OPENED.part\"\n/bin/mv \"$OPENED.part\" \"$OPENED\"\n";
    let browser = lab.write("bin/xdg-open", note);
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let port = port.to_string();
    for (arguments, opens) in
        [(&["--port", &*port][..], true), (&["--no-open"], false), (&["--no-open", "--json"], false)]
    {
        let opened = lab.dir.join(format!("opened-{}", arguments.len() + usize::from(opens)));
        let mut command = lab.command();
        command
            .arg("console")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.env("PATH", lab.dir.join("bin")).env("DISPLAY", ":0").env("OPENED", &opened);
        command.env_remove("SSH_CONNECTION").env_remove("SSH_TTY").env("XDG_RUNTIME_DIR", &lab.dir);
        let mut running = Running(command.spawn().expect("it is built"));
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().expect("piped")).read_line(&mut line).expect("an address");
        let url = match arguments.contains(&"--json") {
            true => serde_json::from_str::<serde_json::Value>(&line).expect("JSON")["url"]
                .as_str()
                .expect("an address")
                .to_owned(),
            false => line.trim_end().to_owned(),
        };
        let key = url.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.split_once("/console#key="));
        let (at, key) = key.unwrap_or_else(|| panic!("no address: {line}"));
        assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
        assert_eq!(at == port, opens, "{url}");
        let end = std::time::Instant::now() + DEADLINE;
        while opens && !opened.exists() {
            assert!(std::time::Instant::now() < end, "the browser was not opened");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        signal(running.0.id(), "INT");
        assert!(running.0.wait().expect("it is ours").success(), "{arguments:?}");
        // Whoever has ended opens nothing any more.
        let shown = std::fs::read_to_string(&opened).ok();
        assert_eq!(shown, opens.then_some(url), "{arguments:?}");
    }
}
