//! `doctor`.
use super::{World, check};
use crate::config::locate::{Face, NotFound};
use std::io;
use std::path::PathBuf;
pub(super) fn run(_: Face, _: Result<PathBuf, NotFound>, _: check::Style, _: World) -> io::Result<u8> {
    Ok(super::UNREACHABLE)
}
