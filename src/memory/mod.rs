//! Everything that is remembered on disk between runs.
//!
//! Invariant: a file is replaced whole or not at all, and a file that is broken or not ours counts as
//! missing.

pub mod credentials;
pub mod definitions;
pub mod turn;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::turn::Turn;
use crate::text::digest;

/// The switches of one `tools.toml` that were set by hand, by exposed name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// The path of the `tools.toml`, so that a person can tell the files apart.
    pub file: String,
    /// Whether each tool is on.
    pub tools: BTreeMap<String, bool>,
    /// Whether each resource or template is on.
    pub resources: BTreeMap<String, bool>,
}

impl Switched {
    /// The path below the state directory for the switches of a `tools.toml`. It is the same however the file
    /// is named.
    pub fn path(state: &Path, tools_toml: &Path) -> PathBuf {
        let tools_toml = tools_toml.canonicalize().unwrap_or_else(|_| tools_toml.to_owned());
        let name: String = tools_toml
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let tail: String = name.chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        state.join("toolman").join(format!(
            "{}-{:016x}.json",
            tail.trim_matches('-'),
            digest::number(tools_toml.to_string_lossy().bytes())
        ))
    }

    /// Reads the file. If it cannot be used, nothing is remembered.
    pub fn load(path: &Path) -> Self {
        let read = fs::read(path).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other));
        read.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!("{} cannot be used and is ignored: {error}", path.display());
            }
            Self::default()
        })
    }

    /// Changes the contents of the file. Everyone who shares it takes turns, so that no switch is lost.
    pub fn change(state: &Path, path: &Path, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let _turn = Turn::take(Some(state), path)?;
        let mut switched = Self::load(path);
        change(&mut switched);
        replace(path, &serde_json::to_vec_pretty(&switched).map_err(io::Error::other)?)
    }
}

/// Replaces a file by these bytes.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_by(path, |file| file.write_all(bytes))
}

/// Writes a temporary file and renames it, so that no reader and no crash ever sees half a file.
fn replace_by(path: &Path, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{count}.tmp", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    // The list of a user's servers is private.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&beside).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()?;
        drop(file);
        put_in_place(&beside, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Renames a finished file to its place, which an older file may occupy. Windows may refuse the rename while
/// somebody has one of the files open, which lasts milliseconds; the rename itself opens them, so that
/// concurrent attempts would block one another.
pub(crate) fn put_in_place(file: &Path, place: &Path) -> io::Result<()> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = cfg!(windows).then(|| TURN.lock());
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        match fs::rename(file, place) {
            Err(error) if is_held(&error) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// Whether somebody else has the file open (access denied or a sharing violation).
fn is_held(error: &io::Error) -> bool {
    cfg!(windows) && matches!(error.raw_os_error(), Some(5 | 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded_and_a_broken_file_is_none() {
        let state = std::env::temp_dir().join(format!("mcp-workbench-store-{}", std::process::id()));
        let path = Switched::path(&state, Path::new("/a/project/tools.toml"));
        assert_ne!(path, Switched::path(&state, Path::new("/another/project/tools.toml")));
        assert!(path.ends_with("toolman/a-project-tools-toml-22f44ad4db388233.json"), "{}", path.display());
        assert_eq!(Switched::load(&path), Switched::default());
        let switched = Switched {
            file: "/a/project/tools.toml".into(),
            tools: [("a_b".to_owned(), true)].into(),
            resources: [("a_x://y".to_owned(), false)].into(),
        };
        let save = |switched: &Switched| Switched::change(&state, &path, |all| *all = switched.clone());
        save(&switched).unwrap();
        assert_eq!(Switched::load(&path), switched);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(&path, "{\"tools\":[").unwrap();
        assert_eq!(Switched::load(&path), Switched::default());
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn whoever_changes_a_file_at_the_same_time_takes_turns() {
        let state = std::env::temp_dir().join(format!("mcp-workbench-turns-{}", std::process::id()));
        let path = Switched::path(&state, Path::new("/a/project/tools.toml"));
        std::thread::scope(|scope| {
            for who in 0..8 {
                let (state, path) = (&state, &path);
                scope.spawn(move || {
                    for n in 0..10 {
                        let name = format!("{who}-{n}");
                        Switched::change(state, path, |all| all.tools.extend([(name, true)])).unwrap();
                    }
                });
            }
        });
        assert_eq!(Switched::load(&path).tools.len(), 80);
        fs::remove_dir_all(&state).unwrap();
    }
}
