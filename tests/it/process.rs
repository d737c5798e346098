//! Process trees: whatever an upstream spawns ends with it, and with us.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mcp_workbench::inside::{Child, Command, Control, Exit, Launch, Launcher};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longest that anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Six processes that ignore SIGTERM: children, a session of its own in another, and one forked twice whose
/// parent is gone.
const STUBBORN: &str = r#"
    trap '' TERM HUP INT
    setsid sh -c 'setsid sleep 1000 & sleep 1000' &
    (setsid sh -c 'sleep 1000 & exec sleep 1000' &)
    read line
    exit 7
"#;
const STUBBORN_COUNT: usize = 6;

#[tokio::test]
async fn how_a_program_ends_is_told() {
    for (script, expected) in [
        ("exit 0", Exit::Code(0)),
        ("exit 42", Exit::Code(42)),
        ("kill -SEGV $$", Exit::Signal(11)),
        ("kill -KILL $$", Exit::Signal(9)),
    ] {
        let Child { mut control, .. } = sh(script, &Mark::new());
        assert!(control.started().await.is_ok(), "{script}");
        assert_eq!(exit_of(&mut control).await, expected, "{script}");
        assert_eq!(control.exited().await, expected, "asked again, it is the same");
        control.stop(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_program_that_cannot_run_is_told() {
    let launch = |program: &str, cwd: Option<&str>| Launch {
        program: program.into(),
        args: vec![],
        env: vec![],
        cwd: cwd.map(PathBuf::from),
        umask: None,
    };
    let too_long = Launch { args: vec!["x".repeat(4 << 20)], ..launch("/bin/true", None) };
    for (launch, errno, text) in [
        (
            launch("/nonexistent/server", None),
            2,
            "could not be started: No such file or directory (os error 2)",
        ),
        (launch("/etc/passwd", None), 13, "could not be started: Permission denied (os error 13)"),
        (launch("/bin", None), 13, "could not be started: Permission denied (os error 13)"),
        (
            launch("/bin/true", Some("/nonexistent")),
            2,
            "could not be started: No such file or directory (os error 2)",
        ),
        (too_long, 7, "could not be started: Argument list too long (os error 7)"),
    ] {
        let Child { mut control, mut stdout, .. } = launcher().spawn(&launch).unwrap();
        assert_eq!(control.started().await, Err(Exit::NotStarted(errno)), "{launch:?}");
        assert_eq!(exit_of(&mut control).await.to_string(), text);
        assert_eq!(stdout.read(&mut [0]).await.unwrap(), 0);
        control.stop(PATIENCE).await;
    }
}

#[tokio::test]
async fn pipes_end_on_both_sides() {
    let Child { mut stdin, mut stdout, mut stderr, mut control } =
        sh("echo to stderr >&2; cat; exit 3", &Mark::new());
    stdin.write_all(b"hello\n").await.unwrap();
    let mut line = [0; 6];
    stdout.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"hello\n");

    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    stdout.read_to_string(&mut out).await.unwrap();
    stderr.read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("", "to stderr\n"));
    assert_eq!(exit_of(&mut control).await, Exit::Code(3));

    // The other way round: we stop reading, and the program notices.
    let Child { stdout, mut control, .. } = sh("while :; do echo x; done", &Mark::new());
    drop(stdout);
    assert_eq!(exit_of(&mut control).await, Exit::Signal(13));
}

#[tokio::test]
async fn megabytes_pass_through() {
    let Child { mut stdin, mut stdout, stderr: _stderr, control: _control } = sh("exec cat", &Mark::new());
    let sent: Vec<u8> = (0..5 << 20).map(|index: u32| index.to_le_bytes()[1]).collect();
    let mut received = Vec::new();
    let write = async {
        stdin.write_all(&sent).await.unwrap();
        drop(stdin);
    };
    let ((), read) = tokio::join!(write, stdout.read_to_end(&mut received));
    read.unwrap();
    assert!(sent == received);
}

#[tokio::test]
async fn a_program_gets_exactly_what_is_meant_for_it() {
    // Descriptors of another upstream are open in the gateway at the same time.
    let first = sh("exec sleep 1000", &Mark::new());
    let mark = Mark::new();
    let script = "ls /proc/$$/fd; pwd; ps -o tty= -p $$; tr '\\0' '\\n' </proc/$$/environ | sort";
    let shell = Launch { cwd: Some("/usr".into()), ..launch(script, &mark) };
    let expected = format!("0\n1\n2\n/usr\n?\nMARK={}\nPATH={}\n", mark.0, path().display());
    assert_eq!(output_of(&shell).await, expected);
    // Not through a shell, which blocks signals for moments of its own.
    let grep = Launch {
        program: "/bin/grep".into(),
        args: ["-E", "^Sig(Blk|Ign):", "/proc/self/status"].map(String::from).to_vec(),
        ..launch("", &mark)
    };
    // Signal 32 belongs to the C library, which lets nobody set it.
    let signals = output_of(&grep).await.replace("80000000\n", "00000000\n");
    assert_eq!(signals, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    first.control.stop(PATIENCE).await;
}

#[tokio::test]
async fn stop_ends_a_stubborn_tree() {
    let (child, mark) = stubborn().await;
    let began = Instant::now();
    child.control.stop(Duration::from_millis(200)).await;
    // Nothing to wait for: all is gone when it returns.
    assert_eq!(mark.processes(), [0u32; 0]);
    assert!(began.elapsed() >= Duration::from_millis(200), "killed before the grace was over");
}

#[tokio::test]
async fn stop_does_not_wait_for_a_polite_tree() {
    let mark = Mark::new();
    let script = "trap 'exit 5' TERM; setsid sh -c 'setsid sleep 1000 & wait' & read line; wait";
    let Child { stdin: _stdin, control, .. } = sh(script, &mark);
    mark.wait_for(3).await;
    let began = Instant::now();
    control.stop(PATIENCE).await;
    assert!(began.elapsed() < PATIENCE / 2);
    assert_eq!(mark.processes(), [0u32; 0]);
}

#[tokio::test]
async fn stop_gives_the_grace_to_the_whole_tree() {
    // The program itself goes at once, the process below has something to finish.
    let mark = Mark::new();
    let script = "sh -c 'trap \"sleep 0.3; echo saved; exit\" TERM; echo up; while :; do sleep 0.01; done' & \
                  trap 'exit' TERM; wait";
    let Child { mut stdout, stdin: _stdin, stderr: _stderr, control } = sh(script, &mark);
    let mut line = [0; 3];
    stdout.read_exact(&mut line).await.unwrap();
    let read = async {
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).await.unwrap();
        rest
    };
    let ((), rest) = tokio::join!(control.stop(PATIENCE), read);
    assert_eq!(rest, "saved\n");
    assert_eq!(mark.processes(), [0u32; 0]);
}

#[tokio::test]
async fn dropping_ends_a_stubborn_tree_and_leaves_no_zombie() {
    let (mut child, mark) = stubborn().await;
    let pid = child.control.started().await.unwrap();
    let shim = parent_of(pid).unwrap();
    assert_eq!(parent_of(shim), Some(std::process::id()));
    assert_eq!(fs::read_to_string(format!("/proc/{shim}/comm")).unwrap(), "mcp-shim\n");
    drop(child);
    mark.wait_for(0).await;
    until("the shim is reaped", || parent_of(shim).is_none()).await;
}

#[tokio::test]
async fn a_dropped_stop_cuts_the_grace_short() {
    let (child, mark) = stubborn().await;
    let stop = child.control.stop(Duration::from_secs(1000));
    assert!(tokio::time::timeout(Duration::from_millis(1), stop).await.is_err());
    mark.wait_for(0).await;
}

#[tokio::test]
async fn the_rest_of_the_tree_goes_with_the_program() {
    // By its own will, and by a signal.
    let (mut child, mark) = stubborn().await;
    child.stdin.write_all(b"go\n").await.unwrap();
    assert_eq!(exit_of(&mut child.control).await, Exit::Code(7));
    mark.wait_for(0).await;

    let (mut child, mark) = stubborn().await;
    let pid = child.control.started().await.unwrap();
    kill("-KILL", pid);
    assert_eq!(exit_of(&mut child.control).await, Exit::Signal(9));
    mark.wait_for(0).await;
}

#[tokio::test]
async fn the_shim_ends_its_tree_when_told_by_a_signal() {
    let (mut child, mark) = stubborn().await;
    let shim = parent_of(child.control.started().await.unwrap()).unwrap();
    kill("-TERM", shim);
    mark.wait_for(0).await;
    assert_eq!(exit_of(&mut child.control).await, Exit::Signal(9));
}

#[tokio::test]
async fn a_killed_shim_is_noticed() {
    let mark = Mark::new();
    let Child { mut control, .. } = sh("exec sleep 1000", &mark);
    let shim = parent_of(control.started().await.unwrap()).unwrap();
    kill("-KILL", shim);
    assert_eq!(exit_of(&mut control).await, Exit::Lost);
    mark.wait_for(0).await;
    control.stop(PATIENCE).await;
}

#[tokio::test]
async fn a_server_that_signals_its_group_does_not_hit_the_shim() {
    let mark = Mark::new();
    let Child { mut control, .. } = sh("setsid sleep 1000 & kill -KILL 0", &mark);
    assert_eq!(exit_of(&mut control).await, Exit::Signal(9));
    mark.wait_for(0).await;
}

#[tokio::test]
async fn processes_that_keep_forking_are_caught() {
    // Each lives for a moment only and leaves a successor; each ignores SIGTERM.
    let mark = Mark::new();
    let hop = "trap '' TERM; hop() { (hop &) ; exit 0; }; hop & hop & echo up; while :; do sleep 1; done";
    let Child { mut stdout, control, .. } = sh(hop, &mark);
    stdout.read_exact(&mut [0; 3]).await.unwrap();
    tokio::time::timeout(PATIENCE, control.stop(Duration::from_millis(20))).await.expect("it ends");
    assert_eq!(mark.processes(), [0u32; 0]);
}

#[tokio::test]
async fn twenty_trees_end_within_a_second() {
    let mark = Mark::new();
    let children: Vec<_> = (0..20).map(|_| sh(STUBBORN, &mark)).collect();
    mark.wait_for(20 * STUBBORN_COUNT).await;
    let began = Instant::now();
    drop(children);
    mark.wait_for(0).await;
    let took = began.elapsed();
    assert!(took < PATIENCE, "{took:?}");
}

#[tokio::test]
async fn nothing_survives_a_killed_gateway() {
    let mark = Mark::new();
    #[allow(clippy::disallowed_methods, reason = "a gateway that can be killed")]
    let mut gateway = std::process::Command::new("/bin/sh")
        // With a descriptor that it inherited and does not know of.
        .args(["-c", "exec \"$@\" 7</etc/passwd", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "process::stand_in_for_a_gateway", "--nocapture"])
        .env("STAND_IN_MARK", &mark.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    mark.wait_for(3 * STUBBORN_COUNT).await;
    let shims = fs::read_dir("/proc").unwrap().flatten();
    let shims = shims.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let shims: Vec<u32> = shims.filter(|pid| parent_of(*pid) == Some(gateway.id())).collect();
    assert_eq!(shims.len(), 3);
    assert!(has_open(gateway.id(), "/etc/passwd"));
    for pid in mark.processes().into_iter().chain(shims.iter().copied()) {
        assert!(!has_open(pid, "/etc/passwd"), "a descriptor was handed on to {pid}");
    }

    let began = Instant::now();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    mark.wait_for(0).await;
    until("the shims are gone", || !shims.iter().any(|pid| is_shim(*pid))).await;
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

/// The process that the one above kills; by itself it does nothing.
#[tokio::test]
async fn stand_in_for_a_gateway() {
    let Ok(mark) = std::env::var("STAND_IN_MARK") else { return };
    let mark = Mark(mark);
    let _children = [STUBBORN; 3].map(|script| sh(script, &mark));
    // Until killed, or until the test is gone.
    tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_program_of_the_login_shells_path_is_found_and_the_shell_asked_once() {
    let home = std::env::temp_dir().join(Mark::new().0);
    fs::create_dir_all(home.join("bin")).unwrap();
    let script = |name: &str, content: &str| {
        let mut file = fs::File::create(home.join(name)).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
    };
    // A noisy shell, with something left running in the background.
    script(
        "shell",
        "#!/bin/sh\necho asked >>\"$HOME/asked\"; echo Welcome; echo oops >&2; sleep 1000 &\n\
         PATH=$HOME/bin:/usr/bin:/bin; [ \"$1 $2 $3\" = '-l -i -c' ] && eval \"$4\"; echo Bye\n",
    );
    script("bin/server", "#!/usr/bin/env helper\n");
    script("bin/helper", "#!/bin/sh\necho helped\n");
    let vars: Vec<(OsString, OsString)> = [
        ("HOME", home.as_os_str()),
        ("PATH", "/usr/bin:/bin".as_ref()),
        ("SHELL", home.join("shell").as_os_str()),
    ]
    .map(|(name, value)| (name.into(), value.to_owned()))
    .to_vec();
    let command = |program: &str| Command {
        program: program.into(),
        args: vec![],
        env: vec![],
        cwd: None,
        inherit_env: vec![],
    };

    let launcher = launcher();
    let launch = launcher.prepare(&command("server"), &vars, Path::new("/")).await.unwrap();
    assert_eq!(launch.program, home.join("bin/server"));
    let mut output = String::new();
    launcher.spawn(&launch).unwrap().stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "helped\n");

    let error = launcher.prepare(&command("none"), &vars, Path::new("/")).await.unwrap_err().to_string();
    assert!(error.contains(home.join("bin").to_str().unwrap()), "{error}");
    assert_eq!(fs::read_to_string(home.join("asked")).unwrap(), "asked\n");
    fs::remove_dir_all(&home).unwrap();
}

/// A value of the environment by which all processes of a tree are known.
struct Mark(String);

impl Mark {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self(format!("mcp-workbench-it-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The running processes with this mark. A zombie has no environment any more.
    fn processes(&self) -> Vec<u32> {
        let wanted = format!("MARK={}", self.0);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|process| process.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
            })
            .collect()
    }

    async fn wait_for(&self, count: usize) {
        until(&format!("{count} processes"), || self.processes().len() == count).await;
    }
}

fn launcher() -> Launcher {
    Launcher::with_shim(env!("CARGO_BIN_EXE_mcp-workbench"))
}

fn path() -> OsString {
    std::env::var_os("PATH").unwrap()
}

fn launch(script: &str, mark: &Mark) -> Launch {
    Launch {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), path()), ("MARK".into(), mark.0.clone().into())],
        cwd: None,
        umask: None,
    }
}

fn sh(script: &str, mark: &Mark) -> Child {
    launcher().spawn(&launch(script, mark)).unwrap()
}

async fn stubborn() -> (Child, Mark) {
    let mark = Mark::new();
    let child = sh(STUBBORN, &mark);
    mark.wait_for(STUBBORN_COUNT).await;
    (child, mark)
}

async fn output_of(launch: &Launch) -> String {
    let Child { mut stdout, stdin: _stdin, stderr: _stderr, control } = launcher().spawn(launch).unwrap();
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    control.stop(PATIENCE).await;
    output
}

async fn exit_of(control: &mut Control) -> Exit {
    tokio::time::timeout(PATIENCE, control.exited()).await.expect("it ends")
}

fn kill(signal: &str, pid: u32) {
    #[allow(clippy::disallowed_methods, reason = "there is no safe kill(2)")]
    let status = std::process::Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// `None` when there is no such process, not even a zombie.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn has_open(pid: u32, path: &str) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == Path::new(path))
}

/// Whether a shim runs there; one that whoever inherited it has not reaped does not.
fn is_shim(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("(mcp-shim)") && !stat.contains("(mcp-shim) Z")
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
