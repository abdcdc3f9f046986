//! How a call ended, and what cut it.

use model::{Cpu, GapCause};
use serde::{Deserialize, Serialize};

/// How much of a call was seen, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Seen running with no known entry.
    OpenStart,
    /// Its entry was seen, then a gap (or a stack switch) fell inside.
    Cut,
    /// In progress when tracing ended.
    OpenEnd,
    /// Control landed in an outer frame.
    Unwound,
    /// It returned.
    Complete,
}

impl Status {
    /// Name in rows and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenStart => "open_start",
            Self::Cut => "cut",
            Self::OpenEnd => "open_end",
            Self::Unwound => "unwound",
            Self::Complete => "complete",
        }
    }

    /// The call enters the figures.
    #[must_use]
    pub const fn counted(self) -> bool {
        matches!(self, Self::Complete | Self::Unwound)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnd {
    /// How much of the call was seen.
    pub status: Status,
    /// What cut it, if it is [`Status::Cut`].
    pub cut_by: Option<Cut>,
    /// It ended at a jump out of the IP filter, or to missing code.
    pub by_jump: bool,
    /// It was open when control landed in one of several frames and nothing told in which: its end is a
    /// guess.
    pub undecided: bool,
}

impl CallEnd {
    /// The end of a call of which nothing else is known.
    #[must_use]
    pub const fn of(status: Status) -> Self {
        Self { status, cut_by: None, by_jump: false, undecided: false }
    }
}

/// What cut a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutCause {
    /// A gap.
    Gap(GapCause),
    /// Control landed where no open frame explains it.
    StackSwitch,
    /// The stack became deeper than the analysis follows.
    StackTooDeep,
    /// It was gone when its thread was seen next: unwound, or on a stack that was switched away from.
    Unseen,
    /// It was unwound at a time that is not known.
    UnwoundUnseen,
    /// A region began again in the same frame, and had not ended.
    BegunAnew,
}

impl CutCause {
    /// Name in rows and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gap(cause) => cause.name(),
            Self::StackSwitch => "stack switch",
            Self::StackTooDeep => "stack too deep",
            Self::Unseen => "end not seen",
            Self::UnwoundUnseen => "unwound out of sight",
            Self::BegunAnew => "begun anew",
        }
    }
}

/// What cut a call, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// What.
    pub cause: CutCause,
    /// The CPU that the thread was on then, if the switch records say.
    pub cpu: Option<Cpu>,
}
