//! How much memory processes take, for those who ask what runs.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// All processes of the system at one moment, as far as we may see them.
#[derive(Debug, Default)]
pub struct ProcessTable(HashMap<u32, Process>);

#[derive(Debug, Clone, Copy)]
struct Process {
    parent: u32,
    /// The resident memory in bytes.
    memory: u64,
}

impl ProcessTable {
    /// The processes of this moment; empty where the system does not tell.
    pub fn now() -> Self {
        Self(system::processes())
    }

    /// The resident memory, in bytes, of an upstream and of everything that it started. `main` is its own
    /// process; whatever detached itself from that is a child of its supervisor.
    pub fn of_tree(&self, main: u32) -> u64 {
        let Some(own) = self.0.get(&main) else { return 0 };
        // Windows has no supervisors; there the parent is the gateway itself.
        let supervisor = if cfg!(windows) { main } else { own.parent };
        let below = |pid: u32| {
            let mut at = pid;
            // A chain of parents that is longer than this goes round in a circle.
            for _ in 0..self.0.len() {
                match self.0.get(&at).map(|process| process.parent) {
                    Some(parent) if parent == supervisor || parent == main => return true,
                    Some(parent) if parent > 1 => at = parent,
                    _ => return false,
                }
            }
            false
        };
        let tree = self.0.iter().filter(|(pid, _)| **pid == main || (supervisor > 1 && below(**pid)));
        tree.map(|(_, process)| process.memory).sum()
    }
}

/// The resident memory of this process in bytes; 0 where the system does not tell.
pub fn own_memory() -> u64 {
    ProcessTable::now().0.get(&std::process::id()).map_or(0, |process| process.memory)
}

/// The resident memory of this process in bytes, and its processor time in seconds, where the system tells them at once.
pub fn own_use() -> (Option<u64>, Option<f64>) {
    #[cfg(target_os = "linux")]
    return system::own_use();
    #[cfg(not(target_os = "linux"))]
    (None, None)
}

/// Gives back to the system what this process does not need any more, its own code included, which comes back from
/// the program's file as it is needed. To be called on the first thread of a process that does little for a long time.
pub fn give_back() {
    #[cfg(target_os = "linux")]
    system::give_back();
}

/// Gives free memory of the allocator back to the system.
pub fn trim_heap() {
    #[cfg(target_os = "linux")]
    system::trim_heap();
}

/// Has all threads take their memory from one heap. To be called before there is a second thread, in a process whose
/// threads leave behind what they make: a heap for each of them would stay, with much of it free.
pub fn use_one_heap() {
    #[cfg(target_os = "linux")]
    system::use_one_heap();
}

/// How long a start takes, with the first requests of a client or to a server.
const START: Duration = Duration::from_secs(2);

/// Gives back what a start needed once it is over, and then what it took to read the lists of servers. Never returns,
/// so that it can run beside what was started.
pub async fn give_back_after_start(lists_read: &Notify) {
    sleep(START).await;
    give_back();
    loop {
        lists_read.notified().await;
        sleep(START).await;
        give_back();
    }
}

#[cfg(target_os = "linux")]
mod system {
    #![allow(unsafe_code, reason = "the allocator and the stack have no safe interface in std")]

    use super::{HashMap, Process};
    use std::fs;

    /// The unit of processor time that Linux shows to programs.
    const TICKS: f64 = 100.0;

    pub(super) fn own_use() -> (Option<u64>, Option<f64>) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = kilobytes.and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok());
        // The name of the program, in brackets, may contain anything.
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let ticks: Vec<f64> =
            after.split_ascii_whitespace().skip(11).take(2).filter_map(|text| text.parse().ok()).collect();
        let seconds = (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / TICKS);
        (memory.map(|kilobytes| kilobytes * 1024), seconds)
    }

    /// What is left of the stack below the caller, for the call that gives it back.
    const KEPT_STACK: usize = 4 * 1024;
    /// How far below that the start may have come. The system keeps far more than this free below the stack
    /// of the first thread, so nothing else lies there.
    const DEEPEST_STACK: usize = 4 * 1024 * 1024;

    unsafe extern "C" {
        // The linker's own names for the two ends of the program's code.
        static __executable_start: u8;
        static etext: u8;
    }

    pub(super) fn trim_heap() {
        // SAFETY: gives free memory of the allocator back, and touches nothing that is in use.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
    }

    pub(super) fn use_one_heap() {
        // SAFETY: sets a number of the allocator's.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }

    pub(super) fn give_back() {
        trim_heap();
        // SAFETY: reads a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned() as usize;
        let (here, code) = (0_u8, &raw const __executable_start as usize);
        let stack = (&raw const here as usize - KEPT_STACK) / page * page;
        // SAFETY: on the first thread the one is the unused part of its stack, whose content nobody needs, and
        // pages that are not there are left out. The other is never written to, and what is needed of it comes
        // back from the program's file.
        unsafe {
            if libc::getpid() == libc::gettid() {
                libc::madvise(
                    (stack - DEEPEST_STACK) as *mut libc::c_void,
                    DEEPEST_STACK,
                    libc::MADV_DONTNEED,
                );
            }
            let length = (&raw const etext as usize - code) / page * page;
            libc::madvise(code as *mut libc::c_void, length, libc::MADV_DONTNEED);
        }
    }

    pub(super) fn processes() -> HashMap<u32, Process> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
                let status = fs::read_to_string(entry.path().join("status")).ok()?;
                let number = |key: &str| {
                    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
                    line.split_ascii_whitespace().next()?.parse::<u64>().ok()
                };
                let parent = u32::try_from(number("PPid:")?).ok()?;
                Some((pid, Process { parent, memory: number("VmRSS:").unwrap_or(0) * 1024 }))
            })
            .collect()
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod system {
    use super::{HashMap, Process};

    pub(super) fn processes() -> HashMap<u32, Process> {
        #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
        let output = std::process::Command::new("/bin/ps").args(["-axo", "pid=,ppid=,rss="]).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let process = |line: &str| {
            let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
            let (pid, parent) = (numbers.next()??, numbers.next()??);
            let memory = numbers.next()?? * 1024;
            Some((pid.try_into().ok()?, Process { parent: parent.try_into().ok()?, memory }))
        };
        text.lines().filter_map(process).collect()
    }
}

#[cfg(windows)]
mod system {
    #![allow(unsafe_code, reason = "lists of processes have no safe interface in std")]

    use super::{HashMap, Process};
    use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

    use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
    use windows_sys::Win32::System::Diagnostics::ToolHelp::{
        CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
    };
    use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
    use windows_sys::Win32::System::Threading::{OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION};

    pub(super) fn processes() -> HashMap<u32, Process> {
        let mut found = HashMap::new();
        // SAFETY: asks for a handle, which is checked; nobody else owns it.
        let snapshot = unsafe {
            match CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) {
                INVALID_HANDLE_VALUE => return found,
                handle => OwnedHandle::from_raw_handle(handle),
            }
        };
        // SAFETY: a structure of numbers, of which zeros are valid values.
        let mut entry: PROCESSENTRY32W = unsafe { std::mem::zeroed() };
        entry.dwSize = size_of::<PROCESSENTRY32W>() as u32;
        // SAFETY: the handle is open, and the structure says how large it is.
        let mut more = unsafe { Process32FirstW(snapshot.as_raw_handle(), &mut entry) };
        while more != 0 {
            let memory = memory(entry.th32ProcessID).unwrap_or(0);
            found.insert(entry.th32ProcessID, Process { parent: entry.th32ParentProcessID, memory });
            // SAFETY: as above.
            more = unsafe { Process32NextW(snapshot.as_raw_handle(), &mut entry) };
        }
        found
    }

    /// The resident memory of a process, as far as we may see it.
    fn memory(pid: u32) -> Option<u64> {
        // SAFETY: asks for a handle, which is checked; nobody else owns it. The structure is one of numbers,
        // of which zeros are valid values, and the call is told how large it is.
        unsafe {
            let process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid);
            if process.is_null() {
                return None;
            }
            let process = OwnedHandle::from_raw_handle(process);
            let mut counters: PROCESS_MEMORY_COUNTERS = std::mem::zeroed();
            let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
            let told = K32GetProcessMemoryInfo(process.as_raw_handle(), &mut counters, size);
            (told != 0).then_some(counters.WorkingSetSize as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_can_be_given_back_at_any_time() {
        let kept = vec![7_u8; 1 << 20];
        give_back();
        assert!(kept.iter().all(|byte| *byte == 7));
    }

    /// Blocks of this size come from the heap, and free ones stay there while others lie between them and its end.
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    fn free_memory_between_what_is_in_use_is_given_back() {
        const MOST: usize = 64 << 20;
        let (mut blocks, mut between) = (Vec::new(), Vec::new());
        for _ in 0..MOST / 8192 {
            blocks.push(vec![7_u8; 8192]);
            between.push(Box::new(7_u8));
        }
        let places: Vec<_> = blocks.iter().map(|block| block.as_ptr().addr() + 4096).collect();
        assert_eq!(in_memory(&places), places.len());
        drop(blocks);
        trim_heap();
        let (left, all) = (in_memory(&places), places.len());
        assert!(left < all / 2, "{left} of {all}");
        assert!(between.iter().all(|byte| **byte == 7));
    }

    /// How many of these addresses lie in pages that have memory. Unlike the memory of the process, that does not depend on what
    /// other tests do meanwhile.
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    fn in_memory(places: &[usize]) -> usize {
        use std::os::unix::fs::FileExt;
        let pages = std::fs::File::open("/proc/self/pagemap").expect("the system tells");
        let is_present = |place: &&usize| {
            let mut entry = [0; 8];
            pages.read_exact_at(&mut entry, (**place / 4096 * 8) as u64).expect("it is an address of ours");
            u64::from_ne_bytes(entry) >> 63 == 1
        };
        places.iter().filter(is_present).count()
    }

    #[test]
    #[cfg(unix)]
    fn a_tree_is_all_that_its_supervisor_has() {
        let table = [
            (1, 0, 1),
            (10, 1, 10),
            (20, 10, 100),
            (21, 20, 1000),
            (22, 21, 10_000),
            (23, 10, 100_000),
            (30, 1, 1_000_000),
            (40, 41, 5),
            (41, 40, 5),
        ];
        let table = table.map(|(pid, parent, memory)| (pid, Process { parent, memory }));
        let table = ProcessTable(HashMap::from(table));
        // The supervisor itself, 10, is ours and not the upstream's.
        assert_eq!(table.of_tree(20), 111_100);
        assert_eq!(table.of_tree(99), 0, "it is gone");
        assert_eq!(table.of_tree(30), 1_000_000, "one without a supervisor is counted alone");
    }

    #[test]
    #[cfg(any(target_os = "linux", windows))]
    fn this_process_takes_some_memory() {
        assert!(own_memory() > 100_000);
        let (memory, seconds) = own_use();
        assert!(
            memory.is_some_and(|bytes| bytes > 100_000) && seconds.is_some_and(|seconds| seconds < 3600.0)
        );
    }
}
