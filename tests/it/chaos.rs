//! Faults by the hundred: the driver of `testing/chaos`, for a few seconds.

use std::time::Duration;

use serde_json::json;

use crate::harness::{DEADLINE, Gateway, Lab, fake, fake_path, gateway_path};

/// The driver's own parts, so that the tests of its oracle run with all others.
#[path = "../../testing/chaos/fault.rs"]
#[allow(dead_code, reason = "the driver uses the rest")]
mod fault;
#[path = "../../testing/chaos/mark.rs"]
mod mark;
#[path = "../../testing/chaos/oracle.rs"]
#[allow(dead_code, reason = "the driver uses the rest")]
mod oracle;

/// Runs the driver to its end and returns its exit status and all that it says.
#[track_caller]
fn driven(arguments: &[&str]) -> (Option<i32>, String) {
    let lab = Lab::new();
    let driver = fake_path().with_file_name("chaos");
    let mut command = lab.program(&driver);
    command.args(arguments).arg("--gateway").arg(gateway_path()).arg("--fake").arg(fake_path());
    let finished = lab.run_within(&mut command, 10 * DEADLINE);
    (finished.code, format!("{}\n{}", finished.stdout, finished.stderr))
}

/// As [`driven`]; every promise must have been kept.
#[track_caller]
fn chaos(arguments: &[&str]) -> String {
    let (code, report) = driven(arguments);
    assert_eq!(code, Some(0), "{report}");
    report
}

const KEPT: &str = "lost 0, misrouted 0, duplicated 0, answered after cancellation 0, unexplained errors 0, \
                    stray messages 0";

#[test]
fn nothing_is_lost_misrouted_repeated_or_made_up() {
    let report = chaos(
        &"--seed 1 --calls 6000 --faults 300 --clients 2 --upstreams 16".split(' ').collect::<Vec<_>>(),
    );
    assert!(report.contains(KEPT), "{report}");
    assert!(report.contains("calls 6000, faults "), "{report}");
    for fault in fault::Fault::all() {
        assert!(report.contains(&format!(" {fault:?} ")), "{fault:?} did not happen: {report}");
    }
}

/// Few calls, of which none goes wrong, with this sabotage between gateway and clients.
fn sabotaged(how: &[&str]) -> (Option<i32>, String) {
    let few = ["--calls", "300", "--faults", "0", "--clients", "1", "--upstreams", "2"];
    driven(&[&few, how].concat())
}

#[test]
fn every_sabotage_is_noticed() {
    let (code, report) = sabotaged(&[]);
    assert_eq!(code, Some(0), "{report}");
    for (sabotage, noticed) in [
        ("errors", "unexplained errors"),
        ("byte", "misrouted"),
        ("swap", "misrouted"),
        ("block", "misrouted"),
        ("missing", "lost"),
        ("again", "duplicated"),
        ("progress", "stray messages"),
    ] {
        for clients in ["stdio", "http"] {
            let how = format!("{sabotage}@{clients}");
            let (code, report) = sabotaged(&["--sabotage", &how, "--lost-after", "2"]);
            assert_eq!(code, Some(1), "{how}: {report}");
            assert!(!report.contains(&format!("{noticed} 0")), "{how}: {report}");
        }
    }
}

/// More rounds: `cargo run --release --example chaos -- trees --rounds 200`.
#[test]
fn stubborn_trees_do_not_survive_and_their_calls_are_answered() {
    let report = chaos(&["trees", "--rounds", "3", "--patience", "20"]);
    assert!(report.contains(" 0 survivors "), "{report}");
    assert!(report.contains(" 100 answered, "), "{report}");
}

#[test]
fn an_endless_line_costs_no_memory_and_disturbs_nobody() {
    let servers = json!({"a": fake("--with endless,echo"), "b": fake("--with echo")});
    let mut gateway = Gateway::start(crate::harness::dev("proxy", servers));
    gateway.open("dev");
    let bytes = 256 << 20;
    let flood = gateway.post_use_tool("a", "endless", json!({"n": bytes}));
    let mut most = 0;
    while !gateway.left().iter().any(|message| message.id() == flood) {
        gateway.use_tool("b", "echo", "{}").text();
        most = most.max(gateway.memory());
    }
    // The line was nobody's answer, and the call gets its own.
    gateway.answer(&flood).text();
    assert!(most < 100 << 20, "{most} bytes");
    gateway.use_tool("a", "echo", "{}").text();
}

#[test]
fn a_client_over_stdio_that_does_not_read_cannot_make_us_grow() {
    let lab = Lab::new();
    let config = lab.fill(&crate::harness::dev("proxy", json!({"a": fake("--with large,echo")})).to_string());
    lab.write("workbench-config.json", &config);
    let mut silent = crate::harness::Silent::start(&lab);
    // 100 answers of 4 MB each, and nobody who reads them.
    let written = silent.flood(100, &json!({"name": "dev__a__large", "arguments": {"bytes": 4_000_000}}));
    let most = silent.watch(Duration::from_secs(2));
    assert!(most < 120 << 20, "{most} bytes");
    assert_eq!(silent.answers(written), written, "all are answered when they are read");
}

#[cfg(unix)]
#[test]
fn a_client_over_http_that_does_not_read_cannot_make_us_grow() {
    use crate::client::{Era, Host};
    let host = Host::workbench(crate::harness::dev("proxy", json!({"a": fake("--with progress,echo")})));
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let extra = format!(r#","message":"{}""#, "x".repeat(50_000));
    let tool = json!({"toolbox": "dev", "server": "a", "tool": "progress"});
    let arguments = json!({"tool": tool, "arguments": {"n": 4000, "extra": extra}});
    let params = json!({"name": "use_tool", "arguments": arguments, "_meta": {"progressToken": 1}});
    // 200 MB of progress that nobody reads.
    let web = client.over_http();
    let body =
        json!({"jsonrpc": "2.0", "id": "unread", "method": "tools/call", "params": params}).to_string();
    let unread = web.leave_unread(&body);
    let mut most = 0;
    let tool = json!({"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}, "arguments": {}});
    let end = std::time::Instant::now() + Duration::from_secs(3);
    while std::time::Instant::now() < end {
        client.call("use_tool", &tool).text();
        most = most.max(host.memory());
    }
    drop(unread);
    assert!(most < 120 << 20, "{most} bytes");
}
