//! Instructions, callers and children, as rows and reports name them.

use model::{FunctionId, ObjectId, Svma};
use serde::{Deserialize, Serialize};

/// An instruction, the same in every process and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Object.
    pub object: ObjectId,
    /// Linked address.
    pub svma: Svma,
}

/// What took time inside a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChildKind {
    /// A called function.
    Call,
    /// A function that was jumped to.
    Tail,
    /// The function itself, called.
    Recursion,
    /// A system call.
    Syscall,
    /// A signal handler, with the kernel's part.
    Signal,
    /// Interrupts and faults, all in one.
    Interrupt,
    /// The rest: `*self`.
    Own,
}

impl ChildKind {
    /// Of a function that a frame of this other one called.
    #[inline(always)]
    pub(crate) fn of_call(function: FunctionId, caller: Option<FunctionId>) -> Self {
        if caller == Some(function) { Self::Recursion } else { Self::Call }
    }

    /// Short name for tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Tail => "tail",
            Self::Recursion => "recursion",
            Self::Syscall => "syscall",
            Self::Signal => "signal",
            Self::Interrupt => "interrupt",
            Self::Own => "self",
        }
    }
}

/// What entered a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Caller {
    /// An instruction of a function: a call, or a jump if `tail`.
    Function {
        /// The function that the instruction belongs to.
        function: FunctionId,
        /// It jumped.
        tail: bool,
    },
    /// The kernel: `[signal]`.
    Signal,
    /// What interrupted other code, to enter the kernel: `[interrupt]`.
    Interrupt,
    /// Not known: the entry was not seen, or what it returned to was not.
    Unknown,
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CalledFrom {
    /// What entered it.
    pub caller: Caller,
    /// The instruction that entered it: a call, or a jump.
    pub site: Option<Place>,
}

impl CalledFrom {
    /// The entry was not seen.
    pub const UNKNOWN: Self = Self { caller: Caller::Unknown, site: None };
}
