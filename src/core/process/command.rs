//! Turns a configured command into an existing program and its environment, for [`super::Launcher`].

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::Launch;
use crate::config::{self, Secret};

/// The variables that every upstream gets, as with the official SDKs.
#[cfg(not(windows))]
const HANDED_ON: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TZ", "TMPDIR"];
#[cfg(windows)]
const HANDED_ON: &[&str] = &[
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];

/// Finds the program and builds its environment.
///
/// A bare name is looked for in the absolute entries of the upstream's `PATH`, then of `login_path`, and
/// never in a working directory. An upstream that was found in `login_path` gets that `PATH` as well;
/// otherwise `npx` would not find `node`. A name with a slash is a path relative to the upstream's working
/// directory.
pub(super) async fn prepare<Login: Future<Output = Option<OsString>>>(
    command: &config::Command,
    vars: &[(OsString, OsString)],
    directory: &Path,
    login_path: impl FnOnce() -> Login,
) -> Result<Launch, CommandError> {
    let cwd = command.cwd.as_deref().unwrap_or(directory);
    if !cwd.is_dir() {
        return Err(CommandError::WorkingDirectory { path: cwd.into(), exists: cwd.exists() });
    }
    let mut env = environment(vars, &command.inherit_env, &command.env);
    let program = if is_bare(&command.program) {
        let path = value_of(&env, "PATH").unwrap_or_default();
        let searched = directories(path);
        match find(&command.program, &searched) {
            Ok(program) => program,
            Err(unusable) => {
                let login = login_path().await.unwrap_or_default();
                match find(&command.program, &directories(&login)) {
                    Ok(program) => {
                        let declared = command.env.iter().any(|(name, _)| same_name(name.as_ref(), "PATH"));
                        let path = if declared { joined(path, &login) } else { login };
                        set(&mut env, "PATH".into(), path);
                        program
                    }
                    Err(also_unusable) => {
                        let login = directories(&login);
                        return Err(CommandError::NotFound {
                            program: command.program.clone(),
                            searched,
                            login,
                            unusable: unusable.or(also_unusable),
                            local: is_executable(&cwd.join(&command.program)),
                        });
                    }
                }
            }
        }
    } else {
        let path = named(cwd, &command.program);
        match kind_of(&path) {
            FileKind::Executable => path,
            FileKind::Directory => return Err(CommandError::Directory { path }),
            FileKind::Other => return Err(CommandError::NotExecutable { path }),
            FileKind::Missing => return Err(CommandError::Missing { path }),
        }
    };
    Ok(Launch { program, args: command.args.clone(), env, cwd: command.cwd.clone(), umask: None })
}

/// The variables that an upstream gets from our environment, overridden by those that its entry declares.
pub(super) fn environment(
    vars: &[(OsString, OsString)],
    inherit: &[String],
    declared: &[(String, Secret)],
) -> Vec<(OsString, OsString)> {
    let all = inherit.iter().any(|name| name == "*");
    let handed_on = |name: &OsStr| {
        all || HANDED_ON.iter().chain(&["LC_*"]).any(|known| match known.strip_suffix('*') {
            Some(prefix) => name.as_encoded_bytes().starts_with(prefix.as_bytes()),
            None => same_name(name, known),
        }) || inherit.iter().any(|known| same_name(name, known))
    };
    let mut env: Vec<_> = vars.iter().filter(|(name, _)| handed_on(name)).cloned().collect();
    for (name, value) in declared {
        set(&mut env, name.into(), value.expose().into());
    }
    env
}

/// The reason why a command cannot be started, with a hint.
#[derive(Debug, PartialEq, Eq)]
pub enum CommandError {
    /// No directory has a program of this bare name.
    NotFound {
        /// The name.
        program: String,
        /// The directories of the upstream's `PATH`.
        searched: Vec<PathBuf>,
        /// The directories of the login shell's `PATH`.
        login: Vec<PathBuf>,
        /// A file of that name that is not executable.
        unusable: Option<PathBuf>,
        /// Whether the working directory has such a file, which is deliberately not used.
        local: bool,
    },
    /// The path does not exist.
    Missing {
        /// The absolute path.
        path: PathBuf,
    },
    /// The path is a directory.
    Directory {
        /// The absolute path.
        path: PathBuf,
    },
    /// The path is not executable.
    NotExecutable {
        /// The absolute path.
        path: PathBuf,
    },
    /// The working directory does not exist or is not a directory.
    WorkingDirectory {
        /// The absolute path.
        path: PathBuf,
        /// Whether something else exists at the path.
        exists: bool,
    },
}

impl CommandError {
    /// The places that were searched, if there are several.
    pub fn places(&self) -> Option<String> {
        match self {
            Self::NotFound { program, searched, login, .. } => {
                Some(format!("'{program}' is not in {searched:?}, nor in the login shell's {login:?}"))
            }
            _ => None,
        }
    }

    /// A hint on how to fix it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "install it, or give its absolute path as the command",
            Self::Missing { .. } => "correct the path",
            Self::Directory { .. } => "name the program in it",
            Self::NotExecutable { .. } => {
                "chmod +x it, or name its interpreter as the command and the file as an argument"
            }
            Self::WorkingDirectory { exists: true, .. } => "correct 'cwd'",
            Self::WorkingDirectory { exists: false, .. } => "create it or correct 'cwd'",
        }
    }
}

/// The problem, without the [`hint`](CommandError::hint).
impl fmt::Display for CommandError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { program, searched, login, unusable, local } => {
                write!(out, "command '{program}' not found; looked in PATH ({})", Listed(searched))?;
                match login {
                    login if login.is_empty() => write!(out, "; the login shell printed no PATH")?,
                    login if login == searched => write!(out, ", which is also the login shell's")?,
                    login => write!(out, " and in the login shell's ({})", Listed(login))?,
                }
                if let Some(path) = unusable {
                    write!(out, "; {} is there but not executable (chmod +x)", path.display())?;
                }
                if *local {
                    let hint = "the working directory has one, which a bare name never means";
                    write!(out, "; {hint} (write './{program}' for that)")?;
                }
                Ok(())
            }
            Self::Missing { path } => write!(out, "command '{}' does not exist", path.display()),
            Self::Directory { path } => write!(out, "command '{}' is a directory", path.display()),
            Self::NotExecutable { path } => write!(out, "command '{}' is not executable", path.display()),
            Self::WorkingDirectory { path, exists } => {
                let what = if *exists { "is not a directory" } else { "does not exist" };
                write!(out, "working directory '{}' {what}", path.display())
            }
        }
    }
}

impl std::error::Error for CommandError {}

/// Directories in an error message. If there are many, they are only counted, because a model reads the
/// message too.
struct Listed<'a>(&'a [PathBuf]);

/// The largest number of directories that are named one by one.
const NAMED: usize = 4;

impl fmt::Display for Listed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return out.write_str("which has no absolute entry");
        }
        if self.0.len() > NAMED {
            return write!(out, "{} directories", self.0.len());
        }
        for (index, directory) in self.0.iter().enumerate() {
            write!(out, "{}{}", if index == 0 { "" } else { ", " }, directory.display())?;
        }
        Ok(())
    }
}

fn is_bare(program: &str) -> bool {
    !program.contains(std::path::is_separator)
}

/// The file that a path names. On Windows its extension may be omitted.
fn named(cwd: &Path, program: &str) -> PathBuf {
    let path = cwd.join(program);
    #[cfg(windows)]
    if let Some(found) = candidates(cwd, program).find(|path| is_executable(path)) {
        return found;
    }
    path
}

/// The first executable file of that name; otherwise one that is not executable.
fn find(program: &str, directories: &[PathBuf]) -> Result<PathBuf, Option<PathBuf>> {
    let mut unusable = None;
    for path in directories.iter().flat_map(|directory| candidates(directory, program)) {
        match kind_of(&path) {
            FileKind::Executable => return Ok(path),
            FileKind::Other => unusable = unusable.or(Some(path)),
            FileKind::Directory | FileKind::Missing => {}
        }
    }
    Err(unusable)
}

#[cfg(not(windows))]
fn candidates(directory: &Path, program: &str) -> impl Iterator<Item = PathBuf> {
    // An empty name, or one of dots only, would mean the directory itself.
    (!matches!(program, "" | "." | "..")).then(|| directory.join(program)).into_iter()
}

/// The files that a name can mean. A name without an extension means any file that the system itself can
/// start; `PATHEXT` may list others.
#[cfg(windows)]
fn candidates(directory: &Path, program: &str) -> impl Iterator<Item = PathBuf> {
    const ENDINGS: [&str; 4] = ["exe", "cmd", "bat", "com"];
    let ending = Path::new(program).extension();
    let whole = ending.is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)));
    let endings = if whole { &[][..] } else { &ENDINGS[..] };
    let names = whole.then(|| program.to_owned()).into_iter();
    names
        .chain(endings.iter().map(move |ending| format!("{program}.{ending}")))
        .map(|name| directory.join(name))
        .collect::<Vec<_>>()
        .into_iter()
}

/// The absolute entries of a `PATH`, without duplicates.
fn directories(path: impl AsRef<OsStr>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::env::split_paths(path.as_ref()).filter(|entry| entry.is_absolute()) {
        if !found.contains(&entry) {
            found.push(entry);
        }
    }
    found
}

fn joined(first: &OsStr, second: &OsStr) -> OsString {
    let entries = std::env::split_paths(first).chain(std::env::split_paths(second));
    // Entries that came from splitting can always be joined again.
    std::env::join_paths(entries).unwrap_or_else(|_| first.into())
}

enum FileKind {
    Executable,
    Directory,
    Other,
    Missing,
}

fn kind_of(path: &Path) -> FileKind {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => FileKind::Directory,
        Ok(metadata) if metadata.is_file() && may_execute(&metadata) => FileKind::Executable,
        Ok(_) => FileKind::Other,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => FileKind::Other,
        Err(_) => FileKind::Missing,
    }
}

fn is_executable(path: &Path) -> bool {
    matches!(kind_of(path), FileKind::Executable)
}

#[cfg(unix)]
fn may_execute(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn may_execute(_metadata: &fs::Metadata) -> bool {
    true
}

fn same_name(name: &OsStr, other: &str) -> bool {
    match cfg!(windows) {
        true => name.eq_ignore_ascii_case(other),
        false => name == other,
    }
}

fn value_of<'a>(env: &'a [(OsString, OsString)], wanted: &str) -> Option<&'a OsStr> {
    env.iter().find(|(name, _)| same_name(name, wanted)).map(|(_, value)| value.as_os_str())
}

fn set(env: &mut Vec<(OsString, OsString)>, name: OsString, value: OsString) {
    let known =
        env.iter_mut().find(|(other, _)| name.to_str().map_or(*other == name, |n| same_name(other, n)));
    match known {
        Some((_, old)) => *old = value,
        None => env.push((name, value)),
    }
}

#[cfg(all(test, unix))]
mod tests;
#[cfg(all(test, windows))]
mod windows_tests;
