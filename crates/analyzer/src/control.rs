//! Where control of a thread is, as far as its frames do not say.

use model::{Avma, EventTime, FunctionId, Gap, GapCause, Ns, Site, SpaceId, Target};

use crate::own_code::Going;
use crate::thread_clock::ThreadTime;

/// Functions of a thread that are remembered as handlers: there are 64 signals.
const HANDLERS_MAX: usize = 64;

/// What is below the frames of a thread that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StackBase {
    /// Frames may be older than the recording.
    #[default]
    Unknown,
    /// The trace begins at the first instruction of a function: no frame is older, as long as that function
    /// does not return. Handlers of signals do, which a trace may begin with, too.
    Assumed,
    /// The thread was seen from its first instruction: no frame is older.
    Seen,
}

impl StackBase {
    pub(crate) const fn seen(is_seen: bool) -> Self {
        if is_seen { Self::Seen } else { Self::Unknown }
    }

    /// No frame is older than the recording.
    pub(crate) const fn is_known(self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// The outermost frame has returned.
    pub(crate) fn returned(&mut self) {
        if *self == Self::Assumed {
            *self = Self::Unknown;
        }
    }
}

/// Where control is, and the past that the next event may depend on.
#[derive(Clone, Default)]
pub(crate) struct Control {
    /// Address space of the current event.
    pub(crate) space: SpaceId,
    /// How control left the traced code, while it is outside.
    pub(crate) left: Option<Left>,
    /// The frame on top has left the IP filter for a part of its own function: since when.
    pub(crate) away: Option<ThreadTime>,
    /// The straight code that runs, if that is asked for.
    pub(crate) going: Option<Going>,
    /// The thread was interrupted at this address when a gap began.
    pub(crate) interrupted_at: Option<Avma>,
    /// Nothing was seen yet.
    pub(crate) is_new: bool,
    /// What is below the frames that were seen.
    pub(crate) base: StackBase,
    /// It executed a new program: if nothing was seen before, it is as if it was born then.
    pub(crate) executed: Option<Ns>,
    /// Functions that the kernel has entered as handlers of signals.
    handlers: Vec<FunctionId>,
}

impl Control {
    /// Of a thread of which nothing was seen yet.
    pub(crate) fn new(base: StackBase, executed: Option<Ns>) -> Self {
        Self { is_new: true, base, executed, ..Self::default() }
    }

    /// Of kernel code; `is_entered`: it was entered in sight.
    pub(crate) fn in_kernel(space: SpaceId, is_entered: bool) -> Self {
        Self { space, base: StackBase::seen(is_entered), ..Self::default() }
    }

    /// The kernel enters this function as a handler.
    pub(crate) fn add_handler(&mut self, function: FunctionId) {
        if self.handlers.len() < HANDLERS_MAX && !self.is_handler(function) {
            self.handlers.push(function);
        }
    }

    /// Functions that were added.
    pub(crate) fn handlers(&self) -> &[FunctionId] {
        &self.handlers
    }

    pub(crate) fn is_handler(&self, function: FunctionId) -> bool {
        self.handlers.contains(&function)
    }

    /// Control is in code out of sight, and all that the gap hides is more of that: control left for it, or
    /// the thread's first instruction is there.
    pub(crate) fn stays_out(&self, gap: &Gap) -> bool {
        let is_out =
            matches!(self.left, Some(Left::OutOfSight)) || self.is_new && self.is_from_first(gap.from);
        is_out && matches!(gap.cause, GapCause::MissingCode { .. })
    }

    /// What is seen first, now, is the first that the thread does: no frame is older than the recording.
    pub(crate) fn is_from_first(&self, now: EventTime) -> bool {
        self.base.is_known() || self.executed.is_some_and(|executed| executed <= now.hi)
    }

    /// A handler was entered in sight.
    pub(crate) fn has_handlers(&self) -> bool {
        !self.handlers.is_empty()
    }
}

/// How control left the traced code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    /// Into the kernel.
    Kernel(KernelEntry),
    /// By a branch to code outside of the IP filter, or to code that is missing.
    OutOfSight,
}

/// Where and when the kernel was entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEntry {
    /// By a far transfer; otherwise asynchronously.
    pub(crate) syscall: bool,
    /// The instruction, or the one that was interrupted.
    pub(crate) from: Site,
    /// Where control went, if the trace says.
    pub(crate) to: Option<Avma>,
    pub(crate) space: SpaceId,
    pub(crate) since: ThreadTime,
}

impl KernelEntry {
    /// What starts at `to` is the kernel code that was entered.
    pub(crate) fn leads_to(&self, to: Target, has_ip_filter: bool) -> bool {
        self.to.map_or(to.at_entry && !has_ip_filter, |entry| entry == to.ip)
    }

    /// Control is back where the kernel returns to if nothing happens.
    pub(crate) fn goes_on_at(&self, ip: Avma) -> bool {
        ip == self.from.ip || self.syscall && ip == self.from.next_ip()
    }
}
