//! The journal's files: `*.jsonl` in one directory, shared by all gateways of a user, whichever face they have.
//!
//! The hub's thread appends ([`JournalWriter`]), `log`, `stats` and the console read ([`JournalReader`]). Names of files
//! begin with the time at which they were made, so that they sort by age; whoever writes appends to the newest.
//!
//! Invariant: a line is written whole, at the end of a file that ends with a line break, or not at all.

mod read;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub use self::read::{JournalLine, JournalReader};
pub use self::write::JournalWriter;

/// Where the journal is, below the directory for what programs remember about a user.
pub fn directory(state: &Path) -> PathBuf {
    state.join("mcp-workbench").join("journal")
}

/// The files of a directory, oldest first; none if there is no such directory.
pub(super) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    Ok(paths)
}
