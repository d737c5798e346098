//! Stands for `direct.rs` where no system call moves bytes between pipes and files: relays pass all messages along.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;

use tokio::io::Empty;

use super::endpoint::DaemonStream;
use crate::core::aside::InputPlace;
use crate::transport::outbox::{Destination, Gathered};

/// What the relay of such a session has. There is none.
pub(super) enum Custody {}

impl Custody {
    pub(super) fn new(_first: &[u8]) -> Option<Self> {
        None
    }

    pub(super) async fn send(&self, _stream: &DaemonStream, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn settled(&mut self, _numbers: &mut Vec<u64>) {
        match *self {}
    }

    pub(super) fn told(&mut self, _place: Option<InputPlace>) -> Option<InputPlace> {
        match *self {}
    }

    pub(super) fn skip_to(&mut self, _place: InputPlace) {
        match *self {}
    }

    pub(super) fn read_by_daemon(&mut self) -> u64 {
        match *self {}
    }

    pub(super) fn each_part(&mut self, _until: u64, _take: impl FnMut(&[u8])) {
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
    pub fn split<R>(self, _relay: R) -> (Empty, DirectOutput<R>) {
        match self {}
    }
}

/// What the client is told. There is none.
pub struct DirectOutput<R>(Infallible, PhantomData<R>);

impl<R: Send> Destination for DirectOutput<R> {
    async fn write_gathered(
        &mut self,
        _gathered: &Gathered,
        _left: impl Fn(usize) + Send + Sync,
    ) -> io::Result<()> {
        match self.0 {}
    }
}
