//! The faults that can be asked for, and chance that a seed decides. Shared by the fake upstream and the driver.

/// What goes wrong with one call. Whatever can be answered in spite of it is answered with the call's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Lines that are no message come before the answer.
    Garbage,
    /// The answer comes in many small pieces.
    Pieces,
    /// A byte order mark stands before the answer.
    ByteOrderMark,
    /// The answer ends in a carriage return and a line feed.
    CarriageReturn,
    /// A line that is not UTF-8 comes before the answer.
    NotUtf8,
    /// A log line with the call's id comes before the answer.
    LogLine,
    /// The answer holds a character that no JSON text may hold.
    Corrupt,
    /// The answer is as long as it may be.
    Large,
    /// The answer is longer than it may be.
    TooLong,
    /// The same, with the id at its end.
    TooLongIdLast,
    /// Answers to ids that nobody has given come before the answer.
    WrongIds,
    /// Answers to ids that were answered before come before the answer.
    ForeignIds,
    /// The answer comes twice.
    Twice,
    /// The answer comes after the call was cancelled.
    Late,
    /// No answer comes.
    Hang,
    /// The answer comes late enough for others to overtake it.
    Slow,
    /// The answer is an error.
    Refused,
    /// A flood on stderr comes before the answer.
    Stderr,
    /// A storm of `list_changed` comes before the answer.
    Storm,
    /// The process ends without an answer.
    CrashBefore,
    /// The process ends in the middle of its answer.
    CrashDuring,
    /// The process ends after the answer.
    CrashAfter,
    /// The process spawns descendants that do not want to die, and ends.
    CrashWithTree,
    /// The result stands beside `"error": null`.
    NullError,
    /// The error stands beside `"result": null`.
    NullResult,
    /// The id comes back as a text.
    IdAsText,
    /// The id comes back with a decimal point.
    IdAsDecimal,
    /// The answer does not say that it is JSON-RPC.
    NoVersion,
    /// The answer spells its version with escapes.
    EscapedVersion,
    /// The answer stands in a list.
    InList,
    /// The answer is an error whose id is null.
    ErrorWithoutId,
    /// The answer is an error without a code.
    ErrorWithoutCode,
    /// The answer is both a result and an error.
    BothOutcomes,
    /// The answer is neither a result nor an error.
    NoOutcome,
    /// The result is a text.
    ResultAsText,
    /// The error is a text.
    ErrorAsText,
    /// The answer has two results.
    TwoResults,
    /// The answer breaks off in the middle of its line.
    Truncated,
}

/// How a call ends whose server did this to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With its own answer.
    Answer,
    /// With the server's own error.
    Refusal,
    /// With the gateway's error that the answer is too long.
    TooLong,
    /// With the gateway's error that the answer is malformed, and what is wrong with it.
    Malformed(&'static str),
    /// With the gateway's error that the time is over, unless it is cancelled before.
    Silence,
    /// As a refusal if no other call is open on the connection, else as silence.
    RefusalOrSilence,
    /// With the gateway's error that the server has ended.
    End,
    /// In the same way, or with the error that what came of the answer is malformed, and what is wrong with it.
    EndOrMalformed(&'static str),
}

impl Fault {
    /// Every one but crashes.
    pub(crate) const ANSWERS: [Self; 34] = [
        Self::Garbage,
        Self::Pieces,
        Self::ByteOrderMark,
        Self::CarriageReturn,
        Self::NotUtf8,
        Self::LogLine,
        Self::Corrupt,
        Self::Large,
        Self::TooLong,
        Self::TooLongIdLast,
        Self::WrongIds,
        Self::ForeignIds,
        Self::Twice,
        Self::Late,
        Self::Hang,
        Self::Slow,
        Self::Refused,
        Self::Stderr,
        Self::Storm,
        Self::NullError,
        Self::NullResult,
        Self::IdAsText,
        Self::IdAsDecimal,
        Self::NoVersion,
        Self::EscapedVersion,
        Self::InList,
        Self::ErrorWithoutId,
        Self::ErrorWithoutCode,
        Self::BothOutcomes,
        Self::NoOutcome,
        Self::ResultAsText,
        Self::ErrorAsText,
        Self::TwoResults,
        Self::Truncated,
    ];

    /// Those by which the process ends.
    pub(crate) const CRASHES: [Self; 4] =
        [Self::CrashBefore, Self::CrashDuring, Self::CrashAfter, Self::CrashWithTree];

    /// Every one.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::ANSWERS.into_iter().chain(Self::CRASHES)
    }

    /// As it is written in a call.
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    /// The status that the process ends with, if it does.
    pub(crate) fn exit_status(self) -> Option<i32> {
        match self {
            Self::CrashBefore => Some(3),
            Self::CrashDuring => Some(4),
            Self::CrashAfter => Some(0),
            Self::CrashWithTree => Some(5),
            _ => None,
        }
    }

    /// What the call that it happens to is promised.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Refused | Self::NullResult | Self::ErrorWithoutCode => Outcome::Refusal,
            Self::TooLong | Self::TooLongIdLast => Outcome::TooLong,
            Self::Corrupt | Self::Truncated => Outcome::Malformed("it is not JSON"),
            Self::BothOutcomes => Outcome::Malformed("it has both a result and an error"),
            Self::NoOutcome => Outcome::Malformed("it has neither a result nor an error"),
            Self::ResultAsText => Outcome::Malformed("its result is not an object"),
            Self::ErrorAsText => Outcome::Malformed("its error is not an object"),
            Self::TwoResults => Outcome::Malformed("a member of its envelope appears twice"),
            Self::Hang => Outcome::Silence,
            Self::ErrorWithoutId => Outcome::RefusalOrSilence,
            Self::CrashBefore | Self::CrashWithTree => Outcome::End,
            Self::CrashDuring => Outcome::EndOrMalformed("it is not JSON"),
            _ => Outcome::Answer,
        }
    }

    /// Whether the server turns to other calls before it has answered this one, so that it may end over them.
    pub(crate) fn takes_time(self) -> bool {
        matches!(self, Self::Slow | Self::Late | Self::Hang | Self::ErrorWithoutId)
    }

    /// Whether a server over HTTP can do it. There are no lines to spoil there, and one process serves all gateways.
    pub(crate) fn is_possible_over_http(self) -> bool {
        use Fault::{Hang, Large, Late, Refused, Slow, Storm};
        matches!(self, Large | Slow | Late | Hang | Refused | Storm) || self >= Self::NullError
    }
}

impl std::str::FromStr for Fault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|fault| fault.name() == text).ok_or_else(|| format!("no such fault: {text}"))
    }
}

/// Chance that a seed decides (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// True once in `times`, on average.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
