//! Stands for `direct.rs` where no system call moves bytes between pipes and files: relays pass all messages along.

use std::io;

use tokio::io::{AsyncWrite, Empty};

use super::endpoint::DaemonStream;

/// What the relay of such a session has. There is none.
pub(super) enum Custody {}

impl Custody {
    pub(super) fn new(_first: &[u8]) -> Option<Self> {
        None
    }

    pub(super) async fn send(&self, _stream: &DaemonStream, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn settled(&mut self) -> Vec<u64> {
        match *self {}
    }

    pub(super) fn each_part(&mut self, _take: impl FnMut(&[u8])) {
        match *self {}
    }

    pub(super) fn each_carried_part(&mut self, _take: impl FnMut(&[u8])) {
        match *self {}
    }

    pub(super) fn unsent(&mut self) -> Vec<u8> {
        match *self {}
    }
}

/// The client's own pipes in the daemon. There are none.
pub enum DirectEnds {}

impl DirectEnds {
    /// What the relay behind a connection has sent with its first bytes: nothing.
    pub async fn receive(_stream: &DaemonStream) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Both directions.
    pub fn split<R: AsyncWrite + Unpin>(self, _relay: R) -> (Empty, R) {
        match self {}
    }
}
