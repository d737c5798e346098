//! The gateways and the servers behind them, in a directory of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::fault::Fault;
use crate::oracle::{LONGEST_CALL, LONGEST_MESSAGE};

/// Calls in flight of one gateway. Each has a tool to itself, so that errors, which name the tool, can be told apart.
pub(crate) const IN_FLIGHT: usize = 32;

/// Everything that a run needs on disk. Its name is the marker that every process carries.
pub(crate) struct Scene {
    pub(crate) directory: PathBuf,
    pub(crate) marker: String,
    pub(crate) programs: Programs,
}

/// The programs under test.
#[derive(Clone)]
pub(crate) struct Programs {
    pub(crate) gateway: PathBuf,
    pub(crate) fake: PathBuf,
}

/// A gateway that runs.
pub(crate) struct Gateway {
    pub(crate) name: String,
    pub(crate) child: Child,
    /// Where it listens, over HTTP.
    pub(crate) address: Option<String>,
}

impl Programs {
    /// Those beside this one, built first if cargo runs us.
    #[allow(clippy::disallowed_methods, reason = "this program starts what it tests")]
    pub(crate) fn find() -> Self {
        let here = std::env::current_exe().expect("this program");
        let examples = here.parent().expect("a directory");
        let target = examples.parent().expect("the directory of a profile");
        if let Some(cargo) = std::env::var_os("CARGO") {
            let mut build = Command::new(cargo);
            build.args(["build", "--quiet", "--bin", "mcp-workbench", "--example", "fake-upstream"]);
            if target.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().is_ok_and(|status| status.success()), "the programs under test are built");
        }
        let program = |directory: &Path, name: &str| {
            let path = directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
            assert!(path.exists(), "{} is not built", path.display());
            path
        };
        Self { gateway: program(target, "mcp-workbench"), fake: program(examples, "fake-upstream") }
    }
}

impl Scene {
    pub(crate) fn new(programs: Programs) -> Self {
        let marker = format!("wbchaos-{}-", std::process::id());
        let directory = std::env::temp_dir().join(&marker);
        fs::create_dir_all(&directory).expect("a temporary directory");
        Self { directory, marker, programs }
    }

    /// An entry that runs the fake upstream.
    pub(crate) fn fake(&self, flags: &[&str]) -> Value {
        let mut arguments: Vec<&str> = flags.to_vec();
        arguments.extend(["--marker", &self.marker]);
        json!({"command": self.programs.fake, "args": arguments})
    }

    /// Servers that misbehave: one toolbox, `box`, with servers `u0` and so on, and one over HTTP at `url`, the last.
    /// Each writes its starts and its faults into its journal.
    pub(crate) fn chaotic(&self, gateway: &str, upstreams: usize, seed: u64, url: &str) -> Value {
        let mut servers = Map::new();
        for n in 0..upstreams {
            let journal = self.journal(gateway, n);
            let seed = (seed.wrapping_mul(1000) + n as u64).to_string();
            let journal = journal.to_str().expect("a path in UTF-8");
            let entry = self.fake(&["--with", &tools().join(","), "--chaos", &seed, "--count", journal]);
            servers.insert(format!("u{n}"), entry);
        }
        servers.insert(format!("u{upstreams}"), json!({"url": url}));
        for (_, entry) in &mut servers {
            entry["maxCallTime"] = json!(LONGEST_CALL.as_secs());
        }
        json!({
            "toolMode": "proxy", "maxMessageBytes": LONGEST_MESSAGE,
            "toolboxes": {"box": {"mcpServers": servers}},
        })
    }

    /// The journals of a gateway's servers.
    pub(crate) fn journals(&self, gateway: &str, upstreams: usize) -> Vec<PathBuf> {
        (0..=upstreams).map(|n| self.journal(gateway, n)).collect()
    }

    fn journal(&self, gateway: &str, server: usize) -> PathBuf {
        self.directory.join(format!("journal-{gateway}-{server}"))
    }

    /// Starts a gateway; with arguments `serve --http …` it is waited for.
    #[allow(clippy::disallowed_methods, reason = "this program starts what it tests")]
    pub(crate) fn gateway(&self, name: &str, config: &Value, arguments: &[&str]) -> Gateway {
        let file = self.directory.join(format!("{name}.json"));
        fs::write(&file, config.to_string()).expect("the directory is ours");
        let log =
            fs::File::create(self.directory.join(format!("{name}.log"))).expect("the directory is ours");
        let mut child = Command::new(&self.programs.gateway)
            .arg("--config")
            .arg(file)
            .args(arguments)
            .current_dir(&self.directory)
            .env("HOME", &self.directory)
            .env("XDG_CACHE_HOME", self.directory.join("cache"))
            .env("XDG_STATE_HOME", self.directory.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the gateway starts");
        let address = (!arguments.is_empty()).then(|| first_line(&mut child));
        let address = address.map(|line| {
            let rest = line.strip_prefix("listening on http://").expect("the address");
            rest.trim_end().trim_end_matches("/mcp").to_owned()
        });
        Gateway { name: name.to_owned(), child, address }
    }

    /// Starts the last server of a gateway, which it knows by the URL that is returned.
    #[allow(clippy::disallowed_methods, reason = "this program starts what it tests")]
    pub(crate) fn remote(&self, gateway: &str, upstreams: usize) -> (Child, String) {
        let mut child = Command::new(&self.programs.fake)
            .args(["--http", "0", "--with", &tools().join(","), "--chaos", "0", "--marker", &self.marker])
            .arg("--count")
            .arg(self.journal(gateway, upstreams))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the fake upstream starts");
        let port = first_line(&mut child);
        (child, format!("http://127.0.0.1:{}/mcp", port.trim()))
    }

    /// What went wrong, by the journals: how often each fault happened, and how many starts went wrong.
    pub(crate) fn injected(&self) -> (BTreeMap<Fault, u64>, usize) {
        let (mut faults, mut bad_starts) = (BTreeMap::new(), 0);
        let files = fs::read_dir(&self.directory).expect("it is ours").flatten();
        for file in files.filter(|file| file.file_name().to_string_lossy().starts_with("journal-")) {
            for line in fs::read_to_string(file.path()).expect("journals are text").lines() {
                match line.split_once(' ') {
                    None => {}
                    Some(("start", _)) => bad_starts += 1,
                    Some((fault, _)) => *faults.entry(fault.parse().expect("a fault")).or_default() += 1,
                }
            }
        }
        (faults, bad_starts)
    }

    /// Processes that carry the marker in their command line, this one excluded.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let all = fs::read_dir("/proc").expect("Linux").flatten();
        let found = all.filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line);
            (line.contains(&self.marker) && pid != std::process::id()).then_some(pid)
        });
        found.collect()
    }

    /// Waits until no process carries the marker and returns how long after `since` that was seen. `Err`: those that a
    /// look after `patience` still found.
    pub(crate) fn until_gone(&self, since: Instant, patience: Duration) -> Result<Duration, Vec<u32>> {
        loop {
            let looked = since.elapsed();
            let left = self.processes();
            if left.is_empty() {
                return Ok(since.elapsed());
            }
            if looked >= patience {
                return Err(left);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // What cannot be removed is the temporary directory's business.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Gateway {
    /// Resident memory in KiB and open descriptors.
    pub(crate) fn footprint(&self) -> (u64, usize) {
        footprint(self.child.id())
    }

    /// Ends it in order and says whether it did so with status 0.
    pub(crate) fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        if self.address.is_some() {
            signal(self.child.id(), libc::SIGTERM);
        }
        self.child.wait().is_ok_and(|status| status.success())
    }
}

/// The tools of every server that misbehaves.
pub(crate) fn tools() -> Vec<String> {
    (0..IN_FLIGHT).map(|n| format!("chaos-{n}")).collect()
}

/// Resident memory in KiB and open descriptors of a process.
pub(crate) fn footprint(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = resident.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    (kilobytes, descriptors)
}

/// Sends a signal to a process of ours.
#[allow(unsafe_code, reason = "std sends no signals")]
pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: takes two numbers and touches no memory.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::with_capacity(1, stdout).read_line(&mut line).expect("a line");
    line
}
