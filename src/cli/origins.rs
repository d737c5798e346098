//! Which server of which client's file a variable was made of. Two accounts at one service look alike once their secrets
//! are variables; by this they are not mixed up.

use super::World;
use crate::client_files::Origins;
use crate::edit::file::{Audience, Snapshot};
use crate::memory::turn::Turn;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Of all configurations, by their paths.
type Book = BTreeMap<String, Origins>;

/// What was remembered of a configuration.
pub(super) fn remembered(config: &Path, world: &World) -> Origins {
    let snapshot = file(world).and_then(|file| Snapshot::read(&file).ok());
    snapshot.and_then(|snapshot| book(&snapshot).remove(&key(config))).unwrap_or_default()
}

/// Remembers more of it. No secret is written.
pub(super) fn remember(config: &Path, more: Origins, world: &World) -> io::Result<()> {
    let Some(file) = file(world).filter(|_| !more.is_empty()) else { return Ok(()) };
    let _turn = Turn::take(world.state_directory().as_deref(), &file)?;
    let snapshot = Snapshot::read(&file)?;
    let mut book = book(&snapshot);
    book.entry(key(config)).or_default().extend(more);
    let bytes = serde_json::to_vec_pretty(&book).map_err(io::Error::other)?;
    snapshot.replace(&bytes, Audience::Owner).map(drop)
}

fn book(snapshot: &Snapshot) -> Book {
    snapshot.bytes.as_deref().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

fn key(config: &Path) -> String {
    config.to_string_lossy().into_owned()
}

fn file(world: &World) -> Option<PathBuf> {
    Some(world.state_directory()?.join("mcp-workbench").join("origins.json"))
}
