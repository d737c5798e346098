//! What a client's file was before we connected to it.

use super::file::{Audience, Snapshot, private_directory};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::text::digest;

/// The backup of one file. All of it is readable by its owner alone, since clients keep secrets in their files.
#[derive(Debug)]
pub struct Backup {
    state: PathBuf,
    directory: PathBuf,
    file: PathBuf,
}

/// What connecting did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The client's file.
    pub file: PathBuf,
    /// Whether there was none before.
    pub created: bool,
    /// Directories that were made for it, outermost first.
    pub directories: Vec<PathBuf>,
    /// Entries that were taken out.
    pub taken: Vec<Vec<String>>,
}

impl Backup {
    /// The backup of `file`, below the directory where programs keep their state.
    pub fn new(state: &Path, name: &str, file: &Path) -> Self {
        // One client may have several files.
        let number = digest::number(file.to_string_lossy().bytes());
        let directory = state.join("mcp-workbench").join("backups").join(format!("{name}-{number:016x}"));
        Self { state: state.to_owned(), directory, file: file.to_owned() }
    }

    /// Where it is kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The record, what the file was before and what we made of it; `None` if there is no sound backup.
    pub fn read(&self) -> Option<(Record, Vec<u8>, Vec<u8>)> {
        let bytes = |name| fs::read(self.directory.join(name)).ok();
        let record: Record = serde_json::from_slice(&bytes("record.json")?).ok()?;
        (record.file == self.file).then_some((record, bytes("before")?, bytes("after")?))
    }

    /// Keeps what is needed to undo a change. The record comes last: without it there is no backup.
    pub fn write(&self, record: &Record, before: &[u8], after: &[u8]) -> io::Result<()> {
        // Only what is ours is closed to others.
        fs::create_dir_all(&self.state)?;
        private_directory(&self.directory)?;
        let record = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
        for (name, bytes) in [("before", before), ("after", after), ("record.json", &record)] {
            Snapshot::read(&self.directory.join(name))?.replace(bytes, Audience::Owner)?;
        }
        Ok(())
    }

    /// Forgets it.
    pub fn discard(&self) {
        for name in ["record.json", "after", "before"] {
            let _ = fs::remove_file(self.directory.join(name));
        }
        let _ = fs::remove_dir(&self.directory);
    }
}
