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
