//! Backups of clients' files, taken before `connect` changes them and used by `disconnect` to undo the
//! change.
//!
//! Invariant: a backup exists exactly when its `record.json` does, because the record is written last and
//! removed first.

use super::file::{Audience, Snapshot, private_directory};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::text::digest;

/// The backup of one file. Only the user can read it, because clients keep secrets in their files.
#[derive(Debug)]
pub struct Backup {
    state: PathBuf,
    directory: PathBuf,
    file: PathBuf,
}

/// What `connect` did to the client's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The client's file.
    pub file: PathBuf,
    /// Whether `connect` created the file.
    pub created: bool,
    /// Directories that `connect` created for the file, outermost first.
    pub directories: Vec<PathBuf>,
    /// Paths of the entries that `connect` took out.
    pub taken: Vec<Vec<String>>,
}

impl Backup {
    /// The backup of `file`, below the directory where programs keep their state.
    pub fn new(state: &Path, name: &str, file: &Path) -> Self {
        // The name alone is not enough, because one client may have several files.
        let number = digest::number(file.to_string_lossy().bytes());
        let directory = state.join("mcp-workbench").join("backups").join(format!("{name}-{number:016x}"));
        Self { state: state.to_owned(), directory, file: file.to_owned() }
    }

    /// The directory that holds the backup.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The record, what the file was before and what we made of it; `None` if there is no sound backup.
    pub fn read(&self) -> Option<(Record, Vec<u8>, Vec<u8>)> {
        let bytes = |name| fs::read(self.directory.join(name)).ok();
        let record: Record = serde_json::from_slice(&bytes("record.json")?).ok()?;
        (record.file == self.file).then_some((record, bytes("before")?, bytes("after")?))
    }

    /// Stores what is needed to undo a change. The record is written last: without it there is no backup.
    pub fn write(&self, record: &Record, before: &[u8], after: &[u8]) -> io::Result<()> {
        // The state directory is shared, so only our own directory below it is made private.
        fs::create_dir_all(&self.state)?;
        private_directory(&self.directory)?;
        let record = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
        for (name, bytes) in [("before", before), ("after", after), ("record.json", &record)] {
            Snapshot::read(&self.directory.join(name))?.replace(bytes, Audience::Owner)?;
        }
        Ok(())
    }

    /// Deletes the backup.
    pub fn discard(&self) {
        for name in ["record.json", "after", "before"] {
            let _ = fs::remove_file(self.directory.join(name));
        }
        let _ = fs::remove_dir(&self.directory);
    }
}
