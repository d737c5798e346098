//! Where the daemon is: a directory of this user alone, and in it a socket and a lock for each build.
//!
//! | file | |
//! |---|---|
//! | `BUILD.sock` | where the daemon of this build listens; on Windows a file that names its pipe |
//! | `BUILD.lock` | locked by whoever starts that daemon, then by the daemon itself |
//! | `BUILD.PID.ending` | what the socket of a daemon is called while it ends; a new daemon may be started |
//!
//! On Windows the daemon cannot have the lock of its starter, and has none.

use std::fs::{self, File, Metadata};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::NoDaemon;
use crate::text::digest;

/// The most bytes of a socket's path, the zero at its end included.
const LONGEST_PATH: usize = if cfg!(target_os = "linux") { 108 } else { 104 };
/// The longest that a process id is in decimal, with the rest of the name of an ending daemon's socket.
const LONGEST_ENDING: usize = ".4194304.ending".len() - ".sock".len();

/// The directory of a user's daemons, and the build that is meant.
#[derive(Debug, Clone)]
pub struct DaemonPlace {
    directory: PathBuf,
    build: String,
}

impl DaemonPlace {
    /// The place for this build, given the value of `XDG_RUNTIME_DIR`, the directory for temporary files and
    /// the user.
    pub fn new(runtime: Option<&Path>, temporary: &Path, user: u32) -> Self {
        let directory = match runtime.filter(|runtime| names_directory(runtime)) {
            Some(runtime) => runtime.join("mcp-workbench"),
            None => temporary.join(format!("mcp-workbench-{user}")),
        };
        Self::at(directory)
    }

    /// Where the daemons of sessions may be that have another environment: some clients hand on only a few
    /// variables, and `XDG_RUNTIME_DIR` is not among them. `usual` is where the system has users' runtime directories.
    pub fn elsewhere(&self, runtime: Option<&Path>, usual: &Path, temporary: &Path, user: u32) -> Vec<Self> {
        let usual = usual.join(user.to_string());
        let has_runtime = runtime.is_some_and(names_directory);
        let runtimes = [(!has_runtime).then_some(&*usual), None];
        let places = runtimes.map(|runtime| Self::new(runtime, temporary, user));
        let mut others: Vec<_> =
            places.into_iter().filter(|place| place.directory != self.directory).collect();
        others.dedup_by(|one, other| one.directory == other.directory);
        others
    }

    /// The place for this build in a directory that was found before.
    pub fn at(directory: PathBuf) -> Self {
        // Both executables of a build are told the same, and share a daemon.
        let words =
            [env!("CARGO_PKG_VERSION"), env!("BUILD_COMMIT"), env!("BUILD_TARGET"), env!("BUILD_SOURCE")];
        Self { directory, build: build_name(words) }
    }

    /// What tells this build from others.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory if it is not there, and checks that it is this user's alone. One that is not is
    /// left as it is.
    pub fn prepare(&self, user: u32) -> Result<(), NoDaemon> {
        self.fits()?;
        match make(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(self.not_made(&error)),
            _ => self.inspect(user),
        }
    }

    /// Checks what [`Self::prepare`] would come to, and leaves nothing behind.
    pub fn try_out(&self, user: u32) -> Result<(), NoDaemon> {
        self.fits()?;
        if fs::symlink_metadata(&self.directory).is_err() {
            // The directory itself may be made at this moment by a session, which needs it.
            let trial = self.directory.with_extension(format!("{}.trial", std::process::id()));
            make(&trial).map_err(|error| self.not_made(&error))?;
            let _ = fs::remove_dir(trial);
        }
        self.inspect(user)
    }

    fn not_made(&self, error: &io::Error) -> NoDaemon {
        NoDaemon::new(format!("the directory {} cannot be made: {error}", self.directory.display()))
    }

    /// Whether there is a directory, and it is this user's, whatever others may do with it.
    pub fn is_own(&self, user: u32) -> bool {
        let found = fs::symlink_metadata(&self.directory);
        found.is_ok_and(|found| found.is_dir() && rights(&found, user).0)
    }

    /// Checks that the directory is this user's alone, if it is there.
    pub fn inspect(&self, user: u32) -> Result<(), NoDaemon> {
        self.fits()?;
        let shown = self.directory.display();
        let found = match fs::symlink_metadata(&self.directory) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(NoDaemon::new(format!("the directory {shown} cannot be read: {error}")));
            }
        };
        let kind = match found.file_type() {
            kind if kind.is_symlink() => Occupant::Link,
            kind if kind.is_dir() => Occupant::Directory,
            _ => Occupant::Other,
        };
        let (own, mode) = rights(&found, user);
        match distrust(kind, own, mode) {
            Some(why) => Err(NoDaemon::new(format!("{shown} {why}"))),
            None => Ok(()),
        }
    }

    /// Whether sockets in the directory can have names.
    fn fits(&self) -> Result<(), NoDaemon> {
        let socket = self.socket();
        if cfg!(unix) && socket.as_os_str().len() + LONGEST_ENDING >= LONGEST_PATH {
            let problem = format!("the path of the socket would be too long: {}", socket.display());
            return Err(NoDaemon::new(problem));
        }
        Ok(())
    }

    /// Where the daemon of this build listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(format!("{}.sock", self.build))
    }

    /// What that socket is called while the daemon with this process id ends.
    pub fn ending_socket(&self, pid: u32) -> PathBuf {
        self.directory.join(format!("{}.{pid}.ending", self.build))
    }

    /// The sockets of all daemons, of any build, also of those that are ending.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let is_socket =
            |path: &PathBuf| path.extension().is_some_and(|ending| ending == "sock" || ending == "ending");
        let mut sockets: Vec<_> = paths.filter(is_socket).collect();
        sockets.sort();
        sockets
    }

    /// The sockets of the daemons of other builds, also of those that are ending.
    pub fn other_builds(&self) -> Vec<PathBuf> {
        let mut sockets = self.sockets();
        let name = |socket: &Path| socket.file_name().map(|name| name.as_encoded_bytes().to_vec());
        sockets.retain(|socket| !name(socket).is_some_and(|name| name.starts_with(self.build.as_bytes())));
        sockets
    }

    /// The file that only one process at a time locks: who starts the daemon, then the daemon itself.
    pub(super) fn lock(&self) -> io::Result<File> {
        let path = self.directory.join(format!("{}.lock", self.build));
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        options.mode(0o600);
        options.open(path)
    }
}

/// What stands for a build in the names of files: its version, its commit, its target and a digest of its source.
fn build_name(words: [&str; 4]) -> String {
    format!("{:016x}", digest::number(words.join(" ").bytes()))
}

/// Whether a value of `XDG_RUNTIME_DIR` counts.
fn names_directory(runtime: &Path) -> bool {
    runtime.is_absolute() && runtime.is_dir()
}

/// Makes the directory, for this user alone.
#[cfg(unix)]
fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(directory)
}

/// Makes the directory. It lies in the user's profile, whose rights it inherits.
#[cfg(windows)]
fn make(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)
}

/// Whether a directory is this user's, and what others may do with it.
#[cfg(unix)]
fn rights(found: &Metadata, user: u32) -> (bool, u32) {
    (found.uid() == user, found.permissions().mode())
}

/// What others may do follows from the rights of the user's profile.
#[cfg(windows)]
fn rights(_found: &Metadata, _user: u32) -> (bool, u32) {
    (true, 0o700)
}

/// What stands where the directory should be.
#[derive(Debug, Clone, Copy)]
enum Occupant {
    Directory,
    Link,
    Other,
}

/// Why a directory is not to be used.
fn distrust(kind: Occupant, own: bool, mode: u32) -> Option<String> {
    match kind {
        Occupant::Link => Some("is a symbolic link, which may lead anywhere".to_owned()),
        Occupant::Other => Some("is no directory".to_owned()),
        Occupant::Directory if !own => Some("belongs to somebody else".to_owned()),
        Occupant::Directory if mode & 0o077 != 0 => {
            Some(format!("has the mode {:04o}, so that others can use it; it should be 0700", mode & 0o7777))
        }
        Occupant::Directory => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn the_directory_is_that_of_the_session_or_a_temporary_one() {
        let here = std::env::temp_dir();
        for (runtime, expected) in [
            (Some(here.clone()), here.join("mcp-workbench")),
            (Some(here.join("nothing here")), "/t/mcp-workbench-7".into()),
            (Some(".".into()), "/t/mcp-workbench-7".into()),
            (None, "/t/mcp-workbench-7".into()),
        ] {
            let place = DaemonPlace::new(runtime.as_deref(), Path::new("/t"), 7);
            assert_eq!(place.directory(), expected, "{runtime:?}");
            assert_eq!(place.socket().parent(), Some(&*expected));
        }
    }

    #[test]
    #[cfg(unix)]
    fn daemons_of_other_environments_are_found() {
        let (here, temporary) = (std::env::temp_dir(), Path::new("/t"));
        let usual = here.join(format!("mcp-workbench-usual-{}", std::process::id()));
        let (own, none) = (usual.join("7"), here.join("nothing here"));
        fs::create_dir_all(&own).expect("the directory can be made");
        let [in_temporary, in_usual] = [temporary.join("mcp-workbench-7"), own.join("mcp-workbench")];
        for (runtime, usual, elsewhere) in [
            (Some(&*here), &usual, vec![&in_temporary]),
            (Some(&*own), &usual, vec![&in_temporary]),
            // What names no directory is as good as nothing.
            (None, &usual, vec![&in_usual]),
            (Some(&*none), &usual, vec![&in_usual]),
            (Some(Path::new("")), &usual, vec![&in_usual]),
            (Some(Path::new(".")), &usual, vec![&in_usual]),
            (None, &none, vec![]),
        ] {
            let place = DaemonPlace::new(runtime, temporary, 7);
            let found = place.elsewhere(runtime, usual, temporary, 7);
            let found: Vec<_> = found.iter().map(|place| &place.directory).collect();
            assert_eq!(found, elsewhere, "{runtime:?}");
        }
        fs::remove_dir_all(&usual).expect("it is ours");
    }

    #[test]
    fn whatever_differs_between_builds_gives_each_a_daemon_of_its_own() {
        let ours = build_name(["0.1.0", "0123abc", "x86_64-unknown-linux-gnu", "1f2e3d"]);
        assert_eq!(ours.len(), 16);
        for other in [
            ["0.1.1", "0123abc", "x86_64-unknown-linux-gnu", "1f2e3d"],
            ["0.1.0", "0123abd", "x86_64-unknown-linux-gnu", "1f2e3d"],
            ["0.1.0", "0123abc", "x86_64-unknown-linux-musl", "1f2e3d"],
            ["0.1.0", "0123abc", "x86_64-unknown-linux-gnu", "1f2e3e"],
        ] {
            assert_ne!(build_name(other), ours, "{other:?}");
        }
    }

    #[test]
    fn only_a_directory_of_this_user_alone_is_trusted() {
        for (kind, own, mode, expected) in [
            (Occupant::Directory, true, 0o40700, None),
            (Occupant::Directory, true, 0o40500, None),
            (Occupant::Directory, true, 0o40750, Some("has the mode 0750")),
            (Occupant::Directory, true, 0o40701, Some("has the mode 0701")),
            (Occupant::Directory, true, 0o41777, Some("has the mode 1777")),
            (Occupant::Directory, false, 0o40700, Some("belongs to somebody else")),
            (Occupant::Link, true, 0o120777, Some("is a symbolic link")),
            (Occupant::Other, true, 0o100600, Some("is no directory")),
        ] {
            let why = distrust(kind, own, mode);
            assert_eq!(why.is_some(), expected.is_some(), "{kind:?} {mode:o}");
            if let (Some(why), Some(expected)) = (why, expected) {
                assert!(why.starts_with(expected), "{why}");
            }
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_path_that_no_socket_can_have_is_refused_before_anything_is_made() {
        let directory = std::env::temp_dir().join("x".repeat(LONGEST_PATH));
        let refused = DaemonPlace::at(directory.clone()).prepare(0).expect_err("it is too long");
        assert!(refused.to_string().starts_with("the path of the socket would be too long"), "{refused}");
        assert!(!directory.exists());
    }

    #[test]
    fn daemons_of_other_builds_are_told_from_the_own_one_that_ends() {
        let directory = std::env::temp_dir().join(format!("mcp-workbench-builds-{}", std::process::id()));
        let place = DaemonPlace::at(directory.clone());
        place.prepare(crate::core::process::daemon::user()).expect("the directory can be made");
        let foreign = ["0123456789abcdef.sock", "0123456789abcdef.7.ending"].map(|name| directory.join(name));
        let own = [place.socket(), place.ending_socket(7), directory.join("0123456789abcdef.lock")];
        for file in foreign.iter().chain(&own) {
            fs::write(file, "").expect("the directory is ours");
        }
        let mut others = place.other_builds();
        others.sort();
        assert_eq!(others, [foreign[1].clone(), foreign[0].clone()]);
        assert_eq!(place.sockets().len(), 4, "all that `stop` ends");
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn the_longest_name_of_a_socket_fits_where_the_check_lets_it_pass() {
        let place = DaemonPlace::at("/".into());
        let grows = place.ending_socket(4_194_304).as_os_str().len() - place.socket().as_os_str().len();
        assert_eq!(grows, LONGEST_ENDING);
    }
}
