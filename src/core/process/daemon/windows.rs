//! The daemon as a process on Windows: detached from the console and the job of whoever starts it, and
//! reached by a named pipe that only this user may open.
#![allow(unsafe_code, reason = "tokens, descriptors and pipes have no safe interface in std")]

use std::ffi::{OsString, c_void};
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::os::windows::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::ptr::null_mut;

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use windows_sys::Win32::Foundation::{HANDLE, HANDLE_FLAG_INHERIT, LocalFree, SetHandleInformation};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::{
    GetTokenInformation, SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::System::Pipes::{GetNamedPipeClientProcessId, GetNamedPipeServerProcessId};
use windows_sys::Win32::System::SystemInformation::GetWindowsDirectoryW;
use windows_sys::Win32::System::Threading::{
    CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_PROCESS_GROUP, DETACHED_PROCESS, GetCurrentProcess, OpenProcess,
    OpenProcessToken, PROCESS_QUERY_LIMITED_INFORMATION,
};

use super::super::Launcher;

/// Starts this very executable with these arguments as the daemon.
pub fn start(launcher: &Launcher, arguments: &[OsString]) -> io::Result<std::process::Child> {
    keep_own_streams();
    let system = system_directory()?;
    let root = system.ancestors().last().unwrap_or(&system);
    let spawn = |flags| {
        #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
        let mut command = std::process::Command::new(&launcher.shim);
        command
            .args(arguments)
            .env_clear()
            // Nothing that needs the system's libraries works without it.
            .env("SystemRoot", &system)
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .creation_flags(DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP | flags)
            .spawn()
    };
    // A client may keep all that it starts in a job that nobody is allowed to leave.
    spawn(CREATE_BREAKAWAY_FROM_JOB).or_else(|_| spawn(0))
}

/// Keeps the pipes to our client from whatever we start: else the client would wait for the daemon's end when
/// it waits for ours.
fn keep_own_streams() {
    for stream in [io::stdin().as_raw_handle(), io::stdout().as_raw_handle(), io::stderr().as_raw_handle()] {
        // SAFETY: changes a flag of a handle of our own; where there is none, the call fails and changes
        // nothing.
        unsafe { SetHandleInformation(stream, HANDLE_FLAG_INHERIT, 0) };
    }
}

fn system_directory() -> io::Result<PathBuf> {
    let mut text = [0u16; 260];
    // SAFETY: the pointer and the length are those of one array, which lives through the call.
    let length = unsafe { GetWindowsDirectoryW(text.as_mut_ptr(), text.len() as u32) } as usize;
    match text.get(..length) {
        Some(text) if length > 0 => Ok(OsString::from_wide(text).into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Windows has no such limit.
pub fn raise_open_files() {}

/// Windows has no numbers for users; [`is_own_process`] tells whose a process is.
pub fn user() -> u32 {
    0
}

/// Windows has no umask.
pub fn umask() -> Option<u32> {
    None
}

/// A new instance of a named pipe that this user alone may open, from this machine alone. `first`: there must
/// be no other instance, whoever made it.
pub fn new_pipe(name: &str, first: bool) -> io::Result<NamedPipeServer> {
    // SAFETY: a handle that always stands for this process, and need not be closed.
    let own = user_of(unsafe { GetCurrentProcess() })?;
    let rights: Vec<u16> = format!("D:P(A;;GA;;;{own})").encode_utf16().chain([0]).collect();
    let mut descriptor = null_mut();
    // SAFETY: the text ends with a zero, and the place for the result is valid.
    checked(unsafe {
        ConvertStringSecurityDescriptorToSecurityDescriptorW(
            rights.as_ptr(),
            SDDL_REVISION_1,
            &mut descriptor,
            null_mut(),
        )
    })?;
    let mut attributes = SECURITY_ATTRIBUTES {
        nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
        lpSecurityDescriptor: descriptor,
        bInheritHandle: 0,
    };
    let attributes: *mut SECURITY_ATTRIBUTES = &mut attributes;
    let mut options = ServerOptions::new();
    options.first_pipe_instance(first).reject_remote_clients(true);
    // SAFETY: the attributes and the descriptor that they name live through the call.
    let made = unsafe { options.create_with_security_attributes_raw(name, attributes.cast::<c_void>()) };
    // SAFETY: the system made the descriptor for us to free, and nobody uses it any more.
    unsafe { LocalFree(descriptor) };
    made
}

/// Which end of a pipe is ours.
#[derive(Debug, Clone, Copy)]
pub enum PipeEnd {
    /// The end of whoever made the pipe.
    Server,
    /// The end of whoever opened it.
    Client,
}

/// The id of the process at the other end of a pipe, and whether it belongs to this user.
pub fn is_own_process(pipe: RawHandle, end: PipeEnd) -> io::Result<(u32, bool)> {
    let mut pid = 0;
    // SAFETY: the handle is open, and the place for the result is valid.
    checked(unsafe {
        match end {
            PipeEnd::Server => GetNamedPipeClientProcessId(pipe, &mut pid),
            PipeEnd::Client => GetNamedPipeServerProcessId(pipe, &mut pid),
        }
    })?;
    // SAFETY: asks for a handle, which is checked; nobody else owns it.
    let process = unsafe {
        let process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid);
        if process.is_null() {
            return Err(io::Error::last_os_error());
        }
        OwnedHandle::from_raw_handle(process)
    };
    // SAFETY: a handle that always stands for this process, and need not be closed.
    let own = user_of(unsafe { GetCurrentProcess() })?;
    Ok((pid, user_of(process.as_raw_handle())? == own))
}

/// The user of a process, as the text of an identifier.
fn user_of(process: HANDLE) -> io::Result<String> {
    let mut token = null_mut();
    // SAFETY: the place for the result is valid.
    checked(unsafe { OpenProcessToken(process, TOKEN_QUERY, &mut token) })?;
    // SAFETY: it was made just now, and nobody else owns it.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // Room for the structure and the identifier behind it, aligned as the structure is.
    let (mut room, mut length) = ([0u64; 32], 0);
    // SAFETY: the pointer and the size are those of one array, which lives through the call.
    checked(unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            TokenUser,
            room.as_mut_ptr().cast(),
            size_of_val(&room) as u32,
            &mut length,
        )
    })?;
    let mut text = null_mut();
    // SAFETY: the call before has written such a structure there, whose identifier lies in the same room.
    checked(unsafe {
        let user = room.as_ptr().cast::<TOKEN_USER>();
        ConvertSidToStringSidW((*user).User.Sid, &mut text)
    })?;
    // SAFETY: the system made a text that ends with a zero, for us to free.
    unsafe {
        let length = (0..).take_while(|at| *text.add(*at) != 0).count();
        let user = String::from_utf16_lossy(std::slice::from_raw_parts(text, length));
        LocalFree(text.cast());
        Ok(user)
    }
}

fn checked(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_user_and_the_system_a_directory() {
        // SAFETY: a handle that always stands for this process.
        let own = user_of(unsafe { GetCurrentProcess() }).expect("it has a token");
        assert!(own.starts_with("S-1-"), "{own}");
        assert!(system_directory().is_ok_and(|directory| directory.is_absolute()));
    }
}
