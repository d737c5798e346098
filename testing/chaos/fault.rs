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
    /// The answer itself is not UTF-8.
    Corrupt,
    /// The answer is as long as it may be.
    Large,
    /// The answer is longer than it may be.
    TooLong,
    /// The same, with the id at its end.
    TooLongIdLast,
    /// Answers to ids that nobody has given come before the answer.
    WrongIds,
    /// Answers to ids that were answered before, and that others may use now, come before the answer.
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
}

impl Fault {
    /// Every one.
    pub(crate) const ALL: [Self; 22] = [
        Self::Garbage,
        Self::Pieces,
        Self::ByteOrderMark,
        Self::CarriageReturn,
        Self::NotUtf8,
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
        Self::CrashBefore,
        Self::CrashDuring,
        Self::CrashAfter,
        Self::CrashWithTree,
    ];

    /// As it is written in a call.
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    /// Whether the process ends with it.
    pub(crate) fn is_deadly(self) -> bool {
        self >= Self::CrashBefore
    }
}

impl std::str::FromStr for Fault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| format!("no such fault: {text}"))
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

    /// One of them.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
