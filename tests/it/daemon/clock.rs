//! A clock that jumps: how long something lasts is counted, and never read off the clock on the wall.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Den, dev, leave, open, recover, report, servers, sessions};
use crate::harness::{DEADLINE, Peer, fake};

/// The clock on the wall is another day at each look. The clock that only counts goes on as ever.
const JUMPING_CLOCK: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static long days;
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += __atomic_add_fetch(&days, DAYS, __ATOMIC_RELAXED) * 86400;
    return failed;
}
";

/// A user whose clock jumps.
struct Jumpy {
    den: Den,
    /// What puts the clock into a process.
    clock: PathBuf,
}

impl Jumpy {
    /// With a clock that jumps by this many days.
    fn new(config: &Value, days: i32) -> Self {
        let den = Den::new(config);
        let source = den.lab.write("clock.c", JUMPING_CLOCK);
        let clock = source.with_extension("so");
        // Whoever built these tests has a linker, and so a compiler.
        let mut compiler = den.program(Path::new("cc"));
        compiler.args(["-shared", "-fPIC", &format!("-DDAYS={days}"), "-o"]).arg(&clock).arg(source);
        let compiled = den.lab.run(&mut compiler);
        assert_eq!(compiled.code, Some(0), "{compiled:?}");
        Self { den, clock }
    }

    fn session(&self) -> Peer {
        self.den.session_with(|command| {
            command.env("LD_PRELOAD", &self.clock);
        })
    }

    /// Starts the daemon, which gets nothing of a relay's environment and so would have no clock from there.
    fn start_daemon(&self) -> Child {
        self.den.start_daemon(|command| {
            command.env("LD_PRELOAD", &self.clock);
        })
    }
}

#[test]
fn what_lasts_is_counted() {
    const SHORT: Duration = Duration::from_millis(400);
    for days in [1, -1] {
        let short = json!(SHORT.as_secs_f64());
        let mut config = dev(json!({"a": fake("--with report"), "idle": fake("--with report")}));
        config["toolboxes"]["dev"]["mcpServers"]["idle"]["idleTimeout"] = short.clone();
        (config["linger"], config["daemonLinger"]) = (short.clone(), short);
        let jumpy = Jumpy::new(&config, days);
        let mut process = jumpy.start_daemon();
        let mut peer = jumpy.session();
        let began = Instant::now();
        open(&mut peer, "dev");
        assert!(report(&mut peer, "a")["pid"].is_u64());
        let state = |now: &Value, name: &str| {
            let servers = now["servers"].as_array().expect("a list");
            servers.iter().find(|server| server["server"] == name).expect("it is open")["state"].clone()
        };
        let now = jumpy.den.until("idle", |now| state(now, "idle") == "stopped");
        assert!(began.elapsed() >= SHORT, "{days}: it was stopped after {:?}", began.elapsed());
        assert_eq!(state(&now, "a"), "running");
        assert_eq!(now["daemon"]["pid"], process.id(), "{now:#}");
        // What is shown as a date is that of the clock on the wall, which has jumped.
        let since = now["sessions"][0]["since"].as_str().expect("a date");
        let mut date = jumpy.den.program(Path::new("date"));
        let today = jumpy.den.lab.run(date.args(["-u", "+%F"])).stdout;
        assert!(!since.starts_with(today.trim()), "{since}");
        let most = DEADLINE.as_secs_f64();
        for (what, seconds) in [("uptime", &now["daemon"]["uptime"]), ("idle", &now["servers"][0]["idle"])] {
            assert!(
                seconds.as_f64().is_some_and(|seconds| (0.0..most).contains(&seconds)),
                "{what}: {now:#}"
            );
        }
        let began = Instant::now();
        leave(peer);
        let other = jumpy.session();
        jumpy.den.until("the end of servers", |now| servers(now) == 0 && sessions(now) == 1);
        assert!(began.elapsed() >= SHORT, "{days}: servers lingered for {:?}", began.elapsed());
        let began = Instant::now();
        leave(other);
        process.wait().expect("it is ours");
        assert!(began.elapsed() >= SHORT, "{days}: the daemon lingered for {:?}", began.elapsed());
    }
}

#[test]
fn three_deaths_within_a_minute_are_that_whatever_the_date() {
    for days in [1, -1] {
        let jumpy = Jumpy::new(&dev(json!({"a": fake("--with report")})), days);
        let mut peer = jumpy.session();
        for _ in 0..3 {
            jumpy.den.kill_daemon();
            recover(&mut peer);
        }
        assert!(peer.stderr_with("no daemon: ").contains("3 times within a minute"), "{days}");
        leave(peer);
    }
}
