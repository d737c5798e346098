//! What a session over the daemon takes, as far as that is the same on every machine. `cargo bench -- daemon` has the rest.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Den, dev, leave, open};
use crate::harness::{DEADLINE, fake};

/// What no file stands behind of a process's memory, in kilobytes.
fn anonymous(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("Linux tells it");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn a_relay_takes_less_than_a_megabyte_also_after_long_messages() {
    let den = Den::new(&dev(json!({"a": fake("--with large,echo")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    let long = "x".repeat(3_000_000);
    for _ in 0..2 {
        peer.call("dev__a__large", r#"{"bytes":3000000}"#).text();
        assert!(!peer.call("dev__a__echo", json!({ "text": long })).is_error());
    }
    let end = Instant::now() + DEADLINE;
    while anonymous(peer.pid()) > 1_000_000 / 1024 {
        assert!(Instant::now() < end, "{} KB", anonymous(peer.pid()));
        std::thread::sleep(Duration::from_millis(20));
    }
    leave(peer);
}

/// How often a process has waited for something so far.
fn waits(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).expect("Linux tells it")
}

/// A relay that was woken more often than it has something to pass would take longer than one that passes bytes.
#[test]
fn a_relay_is_woken_once_for_a_request_and_once_for_its_answer() {
    const CALLS: u64 = 300;
    let den = Den::new(&dev(json!({"a": fake("--with echo")})));
    let mut peer = den.session();
    open(&mut peer, "dev");
    peer.fence();
    let before = waits(peer.pid());
    for _ in 0..CALLS {
        assert!(!peer.call("dev__a__echo", "{}").is_error());
    }
    let waited = waits(peer.pid()) - before;
    assert!(waited <= 2 * CALLS + CALLS / 10, "it waited {waited} times for {CALLS} calls");
    leave(peer);
}
