//! Turns: of all processes that want to change a file, only one does so at a time.
//!
//! The lock is the system's, so it ends with its process, however the process ends. The locked file is not
//! the changed one, which is replaced, may not exist yet, and on Windows could not be read while it is
//! locked. Nor is it beside the changed file in somebody's project: it is an empty file in the state
//! directory, named after the real path.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::text::digest;

/// The longest wait for a turn. A turn takes milliseconds, so after this time its holder hangs.
const PATIENCE: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// The right to change a file. Dropping it passes the turn on.
#[derive(Debug)]
pub struct Turn {
    _lock: Option<File>,
}

impl Turn {
    /// Waits until nobody else is changing this file. Without a state directory, or if nothing can be locked
    /// in it, nobody waits, because going on is better than failing.
    pub fn take(state: Option<&Path>, file: &Path) -> io::Result<Self> {
        Self::take_within(PATIENCE, state, file)
    }

    fn take_within(patience: Duration, state: Option<&Path>, file: &Path) -> io::Result<Self> {
        let Some(lock) = state.and_then(|state| open(state, file).ok()) else {
            return Ok(Self { _lock: None });
        };
        let begun = Instant::now();
        let mut told = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { _lock: Some(lock) }),
                Err(TryLockError::Error(_)) => return Ok(Self { _lock: None }),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => {
                    let words = "another process has been changing it for too long";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, words));
                }
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::info!("another process changes {}; waiting for it", file.display());
                    }
                    sleep(BETWEEN_LOOKS);
                }
            }
        }
    }
}

/// Opens the lock file for `file`.
fn open(state: &Path, file: &Path) -> io::Result<File> {
    // The state directory is shared, so only our own directory below it is made private.
    fs::create_dir_all(state)?;
    let directory = state.join("mcp-workbench").join("locks");
    let mut builder = fs::DirBuilder::new();
    let mut options = File::options();
    #[cfg(unix)]
    {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    builder.recursive(true).create(&directory)?;
    let name = format!("{:016x}.lock", digest::number(real(file).to_string_lossy().bytes()));
    options.create(true).append(true).open(directory.join(name))
}

/// The real path of a file, which may not exist yet. It is the same however the file is named.
fn real(file: &Path) -> PathBuf {
    let mut file = file.to_owned();
    // Links may lead to a file that does not exist yet. We follow no more of them than the system does.
    for _ in 0..40 {
        match fs::read_link(&file) {
            Ok(next) => file = file.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => break,
        }
    }
    let known = file.ancestors().find_map(|known| Some((known, known.canonicalize().ok()?)));
    let Some((known, mut real)) = known else { return file };
    real.extend(file.strip_prefix(known).unwrap_or(Path::new("")));
    real
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_by_whatever_name() {
        let room = std::env::temp_dir().join(format!("mcp-workbench-turn-{}", std::process::id()));
        let (state, project) = (room.join("state"), room.join("project"));
        fs::create_dir_all(&project).unwrap();
        let file = project.join("new/x.json");
        let take = |file: &Path| Turn::take_within(Duration::ZERO, Some(&state), file);
        let mut names = vec![file.clone(), project.join("./new/x.json")];
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&project, room.join("link")).unwrap();
            std::os::unix::fs::symlink("project/new/x.json", room.join("x.json")).unwrap();
            names.extend([room.join("link/new/x.json"), room.join("x.json")]);
        }
        for name in &names {
            let turn = take(name).unwrap();
            // The turn is the same before anything exists, once the directory does, and once the file does.
            for made in 0..3 {
                if made == 1 {
                    fs::create_dir_all(project.join("new")).unwrap();
                }
                if made == 2 {
                    fs::write(&file, "{}").unwrap();
                }
                for other in &names {
                    assert_eq!(take(other).unwrap_err().kind(), io::ErrorKind::TimedOut, "{other:?}, {made}");
                }
                take(&project.join("new/y.json")).unwrap();
            }
            drop(turn);
            take(&file).unwrap();
            fs::remove_dir_all(project.join("new")).unwrap();
        }
        fs::create_dir_all(project.join("new")).unwrap();
        fs::write(&file, "{}").unwrap();
        assert_eq!(fs::read_dir(project.join("new")).unwrap().count(), 1, "nothing is left beside it");
        // If nothing can be locked, nobody waits.
        let _turn = take(&file).unwrap();
        assert!(Turn::take(None, &file).is_ok());
        assert!(Turn::take(Some(&file.join("no directory")), &file).is_ok());
        fs::remove_dir_all(&room).unwrap();
    }
}
