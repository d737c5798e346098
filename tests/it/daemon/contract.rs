//! What holds of a session on stdio holds of one in the daemon: the tests of the former, run again over a daemon.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::process::Command;
use std::time::Duration;

use crate::harness::{Lab, OVER_DAEMON};

/// The modules whose tests are about one client on stdio.
const MODULES: &[&str] = &[
    "apps",
    "bridge",
    "brief",
    "classic",
    "crash",
    "ending",
    "environment",
    "face",
    "fidelity",
    "flat",
    "guarded",
    "handshake",
    "held",
    "idle",
    "lifecycle",
    "lock",
    "malformed",
    "names",
    "odd",
    "offers",
    "on_call",
    "opening",
    "relay",
    "reload",
    "remembered",
    "results",
    "slow_start",
    "special",
    "streams",
    "tasks",
    "toolman_activate",
    "toolman_catalog",
    "toolman_life",
    "toolman_proxy",
    "toolman_uris",
    "untrusted",
    "variables",
];

/// The tests that cannot hold there, by the reason.
const EXCEPTIONS: &[(&str, &[&str])] = &[
    (
        "a server that others may share is told of everything that a client can do",
        &[
            "apps::what_a_client_says_of_extensions_reaches_servers_as_it_is",
            "apps::what_a_modern_client_says_of_extensions_reaches_legacy_servers_too",
            "handshake::a_modern_upstream_is_told_what_the_client_can_do",
            "relay::upstreams_are_told_what_the_one_client_declared_and_nothing_more",
            "toolman_life::servers_hear_what_the_client_declares_with_its_first_message",
        ],
    ),
    (
        "a server that others may share says more than one session wants to hear",
        &["toolman_proxy::logging_passes_through_also_to_a_server_that_comes_later"],
    ),
    (
        "the daemon lives on, as tests/it/daemon/ending.rs tells",
        &[
            "ending::after_kill_9_of_the_gateway_nothing_of_its_upstreams_is_left",
            "ending::descendants_spawned_later_are_ended_too",
            "ending::kill_9_while_upstreams_start_leaves_nothing_either",
            "ending::the_end_of_stdin_and_signals_end_everything_within_five_seconds",
        ],
    ),
    (
        "the daemon has a log, which is not as verbose as a session wants its own to be",
        &[
            "held::a_client_that_never_asks_is_waited_for_once",
            "toolman_life::without_remember_nothing_is_written",
            "untrusted::requests_are_logged_for_those_who_ask_for_everything",
            "variables::a_file_has_what_the_environment_has_not",
        ],
    ),
];

#[test]
fn what_holds_on_stdio_holds_over_the_daemon() {
    let lab = Lab::new();
    let own = || Command::new(std::env::current_exe().expect("a path"));
    let all = lab.run(own().args(["--list", "--format", "terse"])).stdout;
    let all: Vec<_> = all.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let exceptions: Vec<_> = EXCEPTIONS.iter().flat_map(|(_, tests)| *tests).collect();
    for test in &exceptions {
        assert!(all.contains(test), "there is no test {test}");
    }
    let in_module = |test: &&str| MODULES.iter().any(|module| test.split("::").next() == Some(module));
    let chosen = all.iter().copied().filter(in_module).filter(|test| !exceptions.contains(&test));
    let mut again = own();
    again.env(OVER_DAEMON, "1").arg("--exact").args(chosen);
    let finished = lab.run_within(&mut again, Duration::from_secs(20 * 60));
    assert_eq!(finished.code, Some(0), "{}\n{}", finished.stdout, finished.stderr);
    let passed = finished.stdout.matches(" ... ok\n").count();
    assert!(passed > 400, "it has run: {}", finished.stdout);
}
