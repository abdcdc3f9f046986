//! What is known of a thread that is in kernel code ([`crate::kernel_part`]).

use model::{AuxOffset, Counters, EventTime};

use crate::control::{Control, KernelEntry, Left};
use crate::thread_clock::ThreadTime;

/// Control has not been seen in a frame that was open then.
#[derive(Clone, Copy)]
pub(crate) struct Unseen {
    pub(crate) since: ThreadTime,
    /// Number of frames of the level then.
    pub(crate) depth: usize,
}

/// Kernel code that a system call or an interrupt entered, and that has not been left.
pub(crate) struct KernelLevel {
    /// Number of frames below it.
    pub(crate) floor: usize,
    /// Where control is in it.
    pub(crate) control: Control,
    /// Since when frames may have ended out of sight.
    pub(crate) unseen: Option<Unseen>,
    /// The thread's counters when control left the frames below.
    pub(crate) left: Counters,
}

/// Where a thread is in the kernel.
#[derive(Default)]
pub(crate) struct KernelPart {
    /// What interrupted what, outermost first; none in user code.
    pub(crate) levels: Vec<KernelLevel>,
    /// Time and AUX packet of the last event of user code.
    pub(crate) user: (EventTime, AuxOffset),
    /// The last event in the kernel.
    pub(crate) last: ThreadTime,
    /// The frame that ends is a level's first: no child of the frame below, which is of another level, or of
    /// user code.
    pub(crate) closes_base: bool,
    /// The thread has left its CPU, and nothing is followed until it is back in user code.
    pub(crate) is_lost: bool,
}

impl KernelPart {
    #[inline(always)]
    pub(crate) fn is_entered(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Nothing is known of the thread any more.
    pub(crate) fn forget(&mut self) {
        self.levels.clear();
        self.is_lost = false;
    }

    /// Control was seen to leave the kernel for user code.
    pub(crate) fn is_left(&self) -> bool {
        let left = self.levels.last().and_then(|level| level.control.left);
        matches!(left, Some(Left::Kernel(KernelEntry { syscall: true, to: Some(to), .. })) if !to.is_kernel())
    }

    /// All frames have ended.
    pub(crate) fn forget_frames_below(&mut self) {
        self.levels.iter_mut().for_each(|level| level.floor = 0);
    }
}
