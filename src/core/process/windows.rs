//! The process tree on Windows: a job object for each upstream.
//!
//! The program is started suspended, put into the job, and only then resumed, so that everything it starts is
//! in the job as well; nothing may leave it. The system kills the job with its last handle. We hold that
//! handle, and the system closes it when we end, however we end.
#![allow(unsafe_code, reason = "job objects and suspended threads have no safe interface in std")]

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation, QueryInformationJobObject,
    SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NO_WINDOW, CREATE_SUSPENDED, OpenThread, ResumeThread, THREAD_SUSPEND_RESUME,
};

use super::{Child, Exit, Launch};

/// The longest time that a killed tree may take to disappear, and how often we check.
const GONE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// The exit status of processes that we kill.
const KILLED: u32 = 1;

/// Starts the program in its own job. There is no shim on Windows.
pub(super) fn spawn(_shim: &Path, launch: &Launch) -> io::Result<Child> {
    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = std::process::Command::new(&launch.program);
    match shell_text(launch) {
        // The shell takes the text between the outer quotes literally.
        Some(text) => command.raw_arg(format!("/D /S /C \"{text}\"")),
        None => command.args(&launch.args),
    };
    command
        .env_clear()
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // No window opens, and Ctrl-C in a terminal does not reach the program.
        .creation_flags(CREATE_SUSPENDED | CREATE_NO_WINDOW);
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    let job = Job::new()?;
    let mut command = tokio::process::Command::from(command);
    // If the process cannot be put into the job, it is killed when this function returns the error.
    let mut child = command.kill_on_drop(true).spawn()?;
    let pid = child.id().ok_or_else(|| io::Error::other("the process has no id"))?;
    job.take_in(child.raw_handle().ok_or_else(|| io::Error::other("the process has no handle"))?)?;
    resume(pid)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("a pipe is missing"));
    };
    Ok(Child { stdin, stdout, stderr, control: Control { child, job, pid, exit: None } })
}

/// Holds a tree of processes. Dropping it kills the tree.
#[derive(Debug)]
pub struct Control {
    child: tokio::process::Child,
    job: Job,
    pid: u32,
    exit: Option<Exit>,
}

impl Control {
    /// Where the process id stands.
    pub fn pid_cell(&self) -> std::sync::Arc<std::sync::atomic::AtomicU32> {
        std::sync::Arc::new(self.pid.into())
    }

    /// The process id of the running program.
    pub async fn started(&mut self) -> Result<u32, Exit> {
        Ok(self.pid)
    }

    /// Resolves as soon as the program's own process has ended, and kills the rest of its tree. The future
    /// may be dropped and requested again.
    pub async fn exited(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let status = self.child.wait().await;
        let exit = status.ok().and_then(|status| status.code()).map_or(Exit::Lost, Exit::Code);
        self.exit = Some(exit);
        self.job.kill();
        exit
    }

    /// Gives the program, whose stdin is already closed, the grace to end by itself, kills the rest of its
    /// tree, and resolves when nothing is left. No signal would reach a program without a console.
    pub async fn stop(mut self, grace: Duration) {
        let _ = tokio::time::timeout(grace, self.child.wait()).await;
        self.job.kill();
        let gone = async {
            while self.job.members() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(GONE, gone).await.is_err() {
            tracing::warn!("processes of an upstream are still there after they were killed");
        }
    }
}

/// The text for the command interpreter, if the launch is `cmd /C` with a single text.
fn shell_text(launch: &Launch) -> Option<&str> {
    let name = launch.program.file_stem()?;
    match launch.args.as_slice() {
        [flag, text] if name.eq_ignore_ascii_case("cmd") && flag.eq_ignore_ascii_case("/c") => Some(text),
        _ => None,
    }
}

/// A job object that is killed when its handle is closed.
#[derive(Debug)]
struct Job(OwnedHandle);

impl Job {
    fn new() -> io::Result<Self> {
        // SAFETY: neither attributes nor a name are given, so the handle is not inherited and the job is
        // nobody else's; the result is checked, and then owned by nobody else.
        let job = unsafe {
            let handle = CreateJobObjectW(std::ptr::null(), std::ptr::null());
            if handle.is_null() {
                return Err(io::Error::last_os_error());
            }
            Self(OwnedHandle::from_raw_handle(handle))
        };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        // SAFETY: the pointer and the size are those of one structure, which is the one of this class.
        let set = unsafe {
            SetInformationJobObject(
                job.handle(),
                JobObjectExtendedLimitInformation,
                std::ptr::from_ref(&limits).cast::<c_void>(),
                size_of_val(&limits) as u32,
            )
        };
        checked(set)?;
        Ok(job)
    }

    fn take_in(&self, process: HANDLE) -> io::Result<()> {
        // SAFETY: both handles are open.
        checked(unsafe { AssignProcessToJobObject(self.handle(), process) })
    }

    /// Kills all members. Fails only for a job that we do not own.
    fn kill(&self) {
        // SAFETY: the handle is open.
        unsafe { TerminateJobObject(self.handle(), KILLED) };
    }

    /// The number of processes in the job.
    fn members(&self) -> u32 {
        let mut account = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: the pointer and the size are those of one structure, which is the one of this class.
        let told = unsafe {
            QueryInformationJobObject(
                self.handle(),
                JobObjectBasicAccountingInformation,
                std::ptr::from_mut(&mut account).cast::<c_void>(),
                size_of_val(&account) as u32,
                std::ptr::null_mut(),
            )
        };
        if told == 0 { 0 } else { account.ActiveProcesses }
    }

    fn handle(&self) -> HANDLE {
        self.0.as_raw_handle()
    }
}

/// Resumes a process that was started suspended. It has only one thread so far, whose handle std does not
/// expose.
fn resume(pid: u32) -> io::Result<()> {
    // SAFETY: the results are checked, and then owned by nobody else; the entry knows its own size.
    unsafe {
        let snapshot = CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0);
        if snapshot == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        let snapshot = OwnedHandle::from_raw_handle(snapshot);
        let mut entry = THREADENTRY32 { dwSize: size_of::<THREADENTRY32>() as u32, ..Default::default() };
        let mut there = Thread32First(snapshot.as_raw_handle(), &mut entry);
        while there != 0 {
            if entry.th32OwnerProcessID == pid {
                let thread = OpenThread(THREAD_SUSPEND_RESUME, 0, entry.th32ThreadID);
                if thread.is_null() {
                    return Err(io::Error::last_os_error());
                }
                let thread = OwnedHandle::from_raw_handle(thread);
                return match ResumeThread(thread.as_raw_handle()) {
                    u32::MAX => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                };
            }
            there = Thread32Next(snapshot.as_raw_handle(), &mut entry);
        }
    }
    Err(io::Error::other("the new process has no thread"))
}

fn checked(result: i32) -> io::Result<()> {
    match result {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::io::{BufRead, BufReader, Write};
    use std::time::Instant;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader as AsyncBufReader};
    use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
    use windows_sys::Win32::System::Threading::{
        OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, WaitForSingleObject,
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const ROLE: &str = "MCP_WORKBENCH_TEST_ROLE";

    /// The role of this executable when a test starts it again: a tree of processes, each of which prints its
    /// id.
    #[test]
    fn role() {
        let Some(role) = std::env::var_os(ROLE) else { return };
        println!("\npid={}", std::process::id());
        let _ = std::io::stdout().flush();
        match role.to_str() {
            Some("gateway") => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut child = spawn(Path::new(""), &acting("parent")).unwrap();
                    tokio::io::copy(&mut child.stdout, &mut tokio::io::stdout()).await.unwrap();
                });
            }
            Some("parent") => {
                let leaf = acting("leaf");
                #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
                let mut command = std::process::Command::new(&leaf.program);
                command.args(&leaf.args).envs(leaf.env).status().unwrap();
            }
            _ => std::thread::sleep(Duration::from_secs(1000)),
        }
    }

    /// A launch of this executable in that role.
    fn acting(role: &str) -> Launch {
        let mut env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        env.retain(|(name, _)| name != ROLE);
        env.push((ROLE.into(), role.into()));
        let args = ["--exact", "core::process::windows::tests::role", "--nocapture"];
        Launch {
            program: std::env::current_exe().unwrap(),
            args: args.map(String::from).to_vec(),
            env,
            cwd: None,
            umask: None,
        }
    }

    fn pid_in(line: &str) -> Option<u32> {
        line.strip_prefix("pid=")?.trim().parse().ok()
    }

    fn wait_until_gone(pids: &[u32]) {
        let end = Instant::now() + PATIENCE;
        while pids.iter().any(|pid| lives(*pid)) {
            assert!(Instant::now() < end, "some of {pids:?} are left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn lives(pid: u32) -> bool {
        // SAFETY: the result is checked, and then owned by nobody else.
        unsafe {
            let handle = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE, 0, pid);
            if handle.is_null() {
                return false;
            }
            let handle = OwnedHandle::from_raw_handle(handle);
            WaitForSingleObject(handle.as_raw_handle(), 0) != WAIT_OBJECT_0
        }
    }

    async fn pids_of(child: &mut Child, count: usize) -> Vec<u32> {
        let mut lines = AsyncBufReader::new(&mut child.stdout).lines();
        let mut pids = Vec::new();
        while pids.len() < count {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
            pids.extend(pid_in(&line));
        }
        pids
    }

    #[tokio::test]
    async fn a_tree_ends_when_it_is_stopped_or_dropped() {
        for stop in [true, false] {
            let mut child = spawn(Path::new(""), &acting("parent")).unwrap();
            let pids = pids_of(&mut child, 2).await;
            assert!(pids.iter().all(|pid| lives(*pid)), "{pids:?}");
            match stop {
                true => child.control.stop(Duration::ZERO).await,
                false => drop(child),
            }
            wait_until_gone(&pids);
        }
    }

    #[test]
    fn a_tree_ends_with_a_gateway_that_is_killed() {
        let gateway = acting("gateway");
        #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
        let mut child = std::process::Command::new(&gateway.program)
            .args(&gateway.args)
            .envs(gateway.env)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pids: Vec<_> = lines.map_while(Result::ok).filter_map(|line| pid_in(&line)).take(3).collect();
        assert_eq!(pids.len(), 3, "the gateway, the program and what it started");
        assert!(pids.iter().all(|pid| lives(*pid)), "{pids:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_gone(&pids);
    }

    #[tokio::test]
    async fn a_shell_gets_its_text_as_it_is_and_the_exit_is_told() {
        let root = std::env::var_os("SystemRoot").unwrap();
        let launch = Launch {
            program: Path::new(&root).join("System32").join("cmd.exe"),
            args: vec!["/C".into(), r#"echo "one  two" three& exit 7"#.into()],
            env: vec![("SystemRoot".into(), root)],
            cwd: None,
            umask: None,
        };
        let mut child = spawn(Path::new(""), &launch).unwrap();
        let mut output = String::new();
        child.stdout.read_to_string(&mut output).await.unwrap();
        assert_eq!(output.trim_end(), r#""one  two" three"#);
        assert_eq!(child.control.exited().await, Exit::Code(7));
    }
}
