//! What replicas share, as the rest of the program sees it: one interface, which
//! [`Valkey`](super::valkey::Valkey) implements. Tests without a server have `InProcess`; the same tests run against both.
//!
//! | part | what it is | what stands on it |
//! |---|---|---|
//! | members | who is there, and for how long each has been silent | homes |
//! | entries | a value with an owner and an epoch that counts the changes of owner | sessions, views, tasks, kept results, single use |
//! | logs | numbered events that are only ever added at the end | streams that can be resumed |
//! | mail | messages to one replica, each received once | requests that are handed on |
//!
//! Names of keys are short texts such as `session:DIGEST`; an implementation makes real ones of them. Values are
//! bytes that only [`Replicas`](super::Replicas) can read, since it seals them.
//!
//! Invariant: no key stands anywhere without a time to live, not even for a moment.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The longest time to live of any key.
pub const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The store cannot be used now: it refuses or drops connections, is silent, is full or answers with errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away(pub String);

/// What a question to the store will have been answered with.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Away>> + Send + 'a>>;

/// A value in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEntry {
    /// The replica that has it; may be empty.
    pub owner: String,
    /// How often it was swapped; the first time is 1.
    pub epoch: u64,
    /// What it holds.
    pub value: Vec<u8>,
}

/// Who is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roll {
    /// How long nobody had heard of the replica that asks; `None` if it is new to the store.
    pub own_silence: Option<Duration>,
    /// All others that were heard of in the last minute, and how long they have been silent.
    pub others: Vec<(String, Duration)>,
}

/// Events to be added to a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition<'a> {
    /// The log.
    pub log: &'a str,
    /// The entry that must have this epoch, or nothing is added.
    pub fence: Option<(&'a str, u64)>,
    /// The oldest event that stays; those before it are forgotten.
    pub first_kept: u64,
    /// The events by their positions, which only grow and are greater than zero.
    pub events: Vec<(u64, Vec<u8>)>,
    /// How long the log lives from now on.
    pub life: Duration,
}

/// What replicas share.
pub trait Store: Send + Sync + 'static {
    /// Notes that the replica `own` lives, and tells who else does.
    fn beat<'a>(&'a self, own: &'a str) -> Pending<'a, Roll>;
    /// Tells who is there, for the replica `own`, which need not be.
    fn roll<'a>(&'a self, own: &'a str) -> Pending<'a, Roll>;
    /// The same store over connections of their own, for another thread.
    fn apart(self: Arc<Self>) -> Result<Arc<dyn Store>, Away>;
    /// Forgets a replica that ends: from now on the others do not find it.
    fn leave<'a>(&'a self, own: &'a str) -> Pending<'a, ()>;

    /// Reads an entry.
    fn read<'a>(&'a self, key: &'a str) -> Pending<'a, Option<StoreEntry>>;
    /// Puts an entry in the place of the one with the epoch `seen`, where 0 means that there was none. Returns the new
    /// epoch, or `None` if another entry is there by now.
    fn swap<'a>(
        &'a self,
        key: &'a str,
        seen: u64,
        owner: &'a str,
        value: &'a [u8],
        life: Duration,
    ) -> Pending<'a, Option<u64>>;
    /// Changes the value of an entry as long as it has this epoch; `false`: it has another by now.
    fn write<'a>(&'a self, key: &'a str, epoch: u64, value: &'a [u8], life: Duration) -> Pending<'a, bool>;
    /// The epochs of entries; 0 for those that are not there.
    fn epochs<'a>(&'a self, keys: &'a [String]) -> Pending<'a, Vec<u64>>;
    /// Lets entries or logs live for this long from now on, if they are there.
    fn touch<'a>(&'a self, keys: &'a [String], life: Duration) -> Pending<'a, ()>;
    /// Deletes entries and logs.
    fn remove<'a>(&'a self, keys: &'a [String]) -> Pending<'a, ()>;

    /// Adds to a log, all or nothing; `false`: the fence does not hold, or the log has gone further.
    fn append<'a>(&'a self, addition: Addition<'a>) -> Pending<'a, bool>;
    /// The events of a log behind this position, in their order.
    fn events<'a>(&'a self, log: &'a str, after: u64) -> Pending<'a, Vec<(u64, Vec<u8>)>>;

    /// Sends a message to a replica.
    fn send<'a>(&'a self, to: &'a str, message: &'a [u8], life: Duration) -> Pending<'a, ()>;
    /// Waits for messages to the replica `own`, for a second or so, and takes them out. One task at a time may do this.
    fn receive<'a>(&'a self, own: &'a str) -> Pending<'a, Vec<Vec<u8>>>;
    /// Takes the messages out that a replica has not received, so that it never does, and returns them with those that were
    /// taken out lately: each of the others looks for its own.
    fn take_back<'a>(&'a self, of: &'a str) -> Pending<'a, Vec<Vec<u8>>>;
}
