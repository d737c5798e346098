//! What happens in the gateway, told to whoever wants to know: the journal, metrics, traces, the console.
//!
//! ```text
//! Reply ── Exchange ──┐                       ┌─▶ Metrics ──▶ GET /metrics, OTLP
//! lifecycle ── Fact ──┼─▶ Hub (a queue) ═══▶ thread ─▶ Spans ──▶ OTLP
//! reload ──── Fact ───┘                       ├─▶ Happening ─▶ journal files
//!                                             └─▶ Happening ─▶ listeners (the console)
//! ```
//!
//! The engine has one [`Hub`]. A request begins an [`Exchange`] there if anything is switched on, which is one load and
//! a branch if not; the exchange ends with the answer. Servers and reloads tell the hub a [`Fact`]. Everything that
//! costs time happens on the hub's thread: words, secrets, lines, counting, the disk.
//!
//! For readers: [`Hub::listen`] is what happens from now on; [`JournalReader`] is what stands in the
//! files of all processes, and whatever is appended to them; [`Tally`] counts happenings of either kind.
//!
//! Invariant: nobody who tells the hub something waits: what does not fit into its queue is dropped and counted.

pub mod environment;
mod exchange;
mod export;
mod happening;
mod hub;
pub mod journal;
pub mod metrics;
mod otlp;
mod redact;
mod repeats;
mod tally;
mod trace;
mod words;

pub use self::exchange::{
    Asker, Behalf, Carriage, Errand, Exchange, Inquiry, Moment, Network, OwnErrand, known_method,
};
pub use self::happening::{
    AnsweredCall, CallOutcome, ErrorType, Fact, Happening, Millis, Reread, ServerEnd, ServerFailure,
    ServerPath, ServerStart, Subject, Who, write_ms,
};
pub use self::hub::Hub;
pub use self::journal::{JournalLine, JournalReader};
pub use self::tally::{Tally, TallyRow};
