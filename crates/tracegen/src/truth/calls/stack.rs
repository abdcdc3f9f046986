//! One thread's shadow stack.
//!
//! ```text
//!   frames:  main   f   g (tail)   h      top
//!                   '--- group ---'
//! ```
//!
//! A return from a frame that was entered by a tail call ends the whole group: the tail callee and all that
//! jumped to it.

use std::collections::{HashMap, HashSet};

use model::{Avma, Ns, Tid};

use super::code::{Code, FunctionIndex, What};
use super::rows::{ChildKey, Children, Entered, Ran, Row, Status, Sum, Tally};

/// A wanted function in one thread.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) tally: Tally,
    /// Its calls on stacks that control has left.
    elsewhere: u32,
    /// Open activations.
    depth: u32,
    /// Activations so far.
    entries: u64,
}

/// What a frame of a wanted function gathers.
#[derive(Clone, Debug)]
pub(super) struct Activation {
    number: u64,
    pub(super) entry_lost: bool,
    losses_before: u32,
    depth: u32,
    children: Children,
    /// It was reported as cut, and runs again: control came back to its stack.
    reported: bool,
}

/// A function that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) function: FunctionIndex,
    /// Where it returns to, if that is known.
    pub(super) returns_to: Option<Avma>,
    /// It was entered by a jump: it ends together with the frame below.
    pub(super) tail: bool,
    /// It is outside the IP filter.
    pub(super) hidden: bool,
    /// The functions that it has jumped into the middle of.
    pub(super) runs: HashSet<FunctionIndex>,
    /// It stands for the kernel below a signal handler.
    pub(super) signal_mark: bool,
    /// Where the kernel below a signal handler has the interrupted code go on.
    pub(super) goes_on_at: Option<Avma>,
    /// A call to a place inside the calling function: part of it.
    pub(super) inner: bool,
    pub(super) entered: Entered,
    pub(super) site: Avma,
    pub(super) start: Ns,
    /// How many losses were before its entry, if that was not in one.
    pub(super) seen_after: Option<u32>,
    /// The thread's off-CPU time at `start`.
    pub(super) start_off_cpu_ns: u64,
    /// What the thread had executed at `start`.
    pub(super) start_ran: Ran,
    /// It is in its own cold part outside the IP filter, since then.
    pub(super) away: Option<Instant>,
    /// A landing that nothing decides may have ended it.
    pub(super) unsure: bool,
    pub(super) activation: Option<Box<Activation>>,
}

impl Frame {
    /// It may be in this function's code.
    pub(super) fn has_code_of(&self, function: FunctionIndex) -> bool {
        self.function == function || self.runs.contains(&function)
    }

    pub(super) fn returns_to(&self, ip: Avma) -> bool {
        self.returns_to == Some(ip)
    }

    /// It is neither caller nor child: what happens in it happens in its caller.
    fn is_part_of_caller(&self, code: &Code) -> bool {
        // Outside the IP filter a stub is all that ran behind it.
        let is_stub = !self.hidden && code.get(self.function).what == What::Plt;
        self.inner || is_stub && self.entered != Entered::Found
    }
}

/// A time in a thread, on both of its clocks, and what it had executed by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) at: Ns,
    pub(super) off_cpu_ns: u64,
    pub(super) ran: Ran,
}

impl Instant {
    /// One stay from `start` to here.
    fn since(self, start: Self) -> Sum {
        Sum {
            count: 1,
            ns: self.at.since(start.at),
            off_cpu_ns: self.off_cpu_ns - start.off_cpu_ns,
            ran: self.ran.since(start.ran),
        }
    }
}

/// The thread went into the kernel and has not come back.
#[derive(Clone, Copy, Debug)]
pub(super) enum InKernel {
    Syscall { site: Avma, since: Instant, sigreturn: bool, lost: bool },
    Async { ip: Avma, since: Instant, lost: bool },
}

impl InKernel {
    /// Where user code goes on if nothing else happens.
    pub(super) fn goes_on_at(&self) -> Avma {
        /// `syscall` is two bytes long.
        const SYSCALL_LEN: u64 = 2;
        match *self {
            Self::Syscall { site, .. } => site.plus(SYSCALL_LEN),
            Self::Async { ip, .. } => ip,
        }
    }

    /// The trace does not show that it went in.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Syscall { lost: true, .. } | Self::Async { lost: true, .. })
    }
}

/// A thread of the traced program.
pub(super) struct Stack<'a> {
    pub(super) code: &'a mut Code,
    pub(super) wanted: HashMap<FunctionIndex, Wanted>,
    pub(super) frames: Vec<Frame>,
    pub(super) now: Ns,
    /// Packets are being lost.
    pub(super) lost: bool,
    /// Losses so far.
    pub(super) losses: u32,
    pub(super) off_cpu_ns: u64,
    pub(super) off_since: Option<Ns>,
    /// What it has executed so far.
    pub(super) ran: Ran,
    pub(super) kernel: Option<InKernel>,
    /// Control has left the IP filter, or a loss hides the end of an rt_sigreturn: a handler may return out
    /// of sight.
    pub(super) is_away: bool,
    /// The last event in sight was an interruption: its address, and the number of losses before it.
    pub(super) interrupted: Option<(Avma, u32)>,
    /// The thread was seen from its first instruction, without a loss: no frame is older.
    pub(super) base_known: bool,
    /// All that is known is that the first event was at the entry of a function: if that returns, frames
    /// are older.
    pub(super) base_assumed: bool,
    /// Control has landed in one of several frames, and what came after told in which.
    pub(super) has_chosen: bool,
    /// The frame that was told (`has_chosen`) was wrong, or the thread has switched stacks.
    pub(super) is_astray: bool,
    /// No event of it has come yet.
    pub(super) is_new: bool,
    /// Functions that were seen to be entered as handlers of signals.
    pub(super) handlers: HashSet<FunctionIndex>,
    /// Landings in frames that are older than the recording.
    pub(super) odd_flow: u64,
    tid: Tid,
    /// Activations of wanted functions so far.
    pub(super) entries: u64,
}

impl<'a> Stack<'a> {
    pub(super) fn new(code: &'a mut Code, wanted: &[FunctionIndex], tid: Tid) -> Self {
        let is_born = code.is_born(tid);
        Self {
            code,
            wanted: wanted.iter().map(|function| (*function, Wanted::default())).collect(),
            frames: vec![],
            now: Ns(0),
            lost: false,
            losses: 0,
            off_cpu_ns: 0,
            off_since: None,
            ran: Ran::default(),
            kernel: None,
            is_away: false,
            interrupted: None,
            base_known: is_born,
            base_assumed: false,
            has_chosen: false,
            is_astray: false,
            is_new: true,
            handlers: HashSet::new(),
            odd_flow: 0,
            tid,
            entries: 0,
        }
    }

    pub(super) fn instant(&self) -> Instant {
        Instant { at: self.now, off_cpu_ns: self.off_cpu_ns, ran: self.ran }
    }

    /// A frame begins now.  A tail callee returns to where the frame that it replaces would have.
    pub(super) fn push(
        &mut self,
        function: FunctionIndex,
        returns_to: Option<Avma>,
        entered: Entered,
        site: Avma,
        at_entry: bool,
    ) -> &mut Frame {
        let below = self.frames.last().filter(|_| entered == Entered::Tail);
        // It returns for a frame that may be gone.
        let unsure = below.is_some_and(|f| f.unsure) || self.is_astray && entered == Entered::Found;
        let (tail, returns_to) = (below.is_some(), below.map_or(returns_to, |f| f.returns_to));
        let mut activation = None;
        if let Some(wanted) = self.wanted.get_mut(&function).filter(|_| at_entry) {
            activation = Some(Box::new(Activation {
                number: wanted.entries,
                entry_lost: self.lost,
                losses_before: self.losses,
                depth: wanted.depth,
                children: Children::default(),
                reported: false,
            }));
            wanted.depth += 1;
            wanted.entries += 1;
            self.entries += 1;
        }
        let frame = Frame {
            function,
            returns_to,
            tail,
            hidden: false,
            runs: HashSet::new(),
            signal_mark: false,
            inner: false,
            goes_on_at: None,
            entered,
            site,
            start: self.now,
            seen_after: (!self.lost).then_some(self.losses),
            start_off_cpu_ns: self.off_cpu_ns,
            start_ran: self.ran,
            away: None,
            unsure,
            activation,
        };
        let last = self.frames.len();
        self.frames.push(frame);
        &mut self.frames[last]
    }

    /// The trace shows how the frame on top was entered, and all since.
    pub(super) fn sees_top(&self) -> bool {
        !self.lost && self.frames.last().is_some_and(|top| top.seen_after == Some(self.losses))
    }

    /// Code runs that no frame explains.
    pub(super) fn found(&mut self, ip: Avma) {
        let function = self.code.function(ip);
        self.push(function, None, Entered::Found, Avma(0), true);
        let is_back = |wanted: &&mut Wanted| wanted.elsewhere > 0;
        if let Some(wanted) = self.wanted.get_mut(&function).filter(is_back)
            && let Some(activation) = self.frames.last_mut().and_then(|top| top.activation.as_mut())
        {
            activation.reported = true;
            wanted.elsewhere -= 1;
            wanted.entries -= 1;
            self.entries -= 1;
        }
    }

    /// Control is on another stack: calls that are open here may go on later.
    pub(super) fn leave_stack(&mut self) {
        for frame in self.frames.iter().filter(|frame| frame.activation.is_some()) {
            if let Some(wanted) = self.wanted.get_mut(&frame.function) {
                wanted.elsewhere += 1;
            }
        }
        self.close_to(0, Status::Cut);
    }

    /// A child of the function on top has ended.
    pub(super) fn child(&mut self, key: ChildKey, spent: Sum) {
        let code = &self.code;
        let parent =
            self.frames.iter_mut().rev().find(|f| f.activation.is_some() || !f.is_part_of_caller(code));
        if let Some(activation) = parent.and_then(|f| f.activation.as_mut()) {
            activation.children.add(key, spent);
        }
    }

    /// A child without a frame, that began at `since`, has ended.
    pub(super) fn kernel_child(&mut self, site: Avma, entered: Entered, since: Instant) {
        let spent = self.instant().since(since);
        self.child((FunctionIndex::UNKNOWN, site, entered), spent);
    }

    /// The frame on top ends now.
    pub(super) fn close(&mut self, how: Status, by_jump: bool) -> Option<Frame> {
        let mut frame = self.frames.pop()?;
        let by_jump = by_jump || frame.away.is_some();
        let end = frame.away.unwrap_or(self.instant());
        let start = Instant { at: frame.start, off_cpu_ns: frame.start_off_cpu_ns, ran: frame.start_ran };
        let spent = end.since(start);
        if let Some(activation) = frame.activation.take() {
            self.finish(&frame, &activation, how, by_jump, spent);
        }
        let is_part = frame.is_part_of_caller(self.code);
        // A handler's time is its mark's: from the interruption.
        let has_mark = frame.entered == Entered::Signal && !frame.signal_mark;
        if !is_part && !has_mark && frame.entered != Entered::Found {
            self.child((frame.function, frame.site, frame.entered), spent);
        }
        Some(frame)
    }

    /// An activation of a wanted function has ended: its row.
    fn finish(&mut self, frame: &Frame, activation: &Activation, how: Status, by_jump: bool, spent: Sum) {
        let Some(wanted) = self.wanted.get_mut(&frame.function) else { return };
        wanted.depth -= 1;
        let tally = &mut wanted.tally;
        if activation.reported {
            tally.add_open(activation, Sum { count: 0, ..spent });
            return;
        }
        let one_loss = activation.losses_before == self.losses;
        let status = if frame.entered == Entered::Found {
            Status::OpenStart
        } else if activation.entry_lost && self.lost && one_loss {
            tally.hidden += 1;
            return;
        } else if activation.entry_lost || !one_loss {
            Status::Cut
        } else {
            how
        };
        if status.is_whole() {
            tally.children.add_all(&activation.children);
        } else {
            tally.add_open(activation, spent);
        }
        tally.rows.push(Row {
            tid: self.tid,
            number: activation.number,
            start: frame.start,
            latency_ns: spent.ns,
            off_cpu_ns: spent.off_cpu_ns,
            ran: spent.ran,
            status,
            caller_ip: frame.site,
            entered: frame.entered,
            depth: activation.depth,
            by_jump: by_jump && status.is_whole(),
            entry_lost: activation.entry_lost,
            unsure: frame.unsure,
        });
    }

    /// Where frames are left for no return of theirs, and one may have ended before, so may the others.
    pub(super) fn end_is_guess(&mut self) {
        if self.frames.iter().any(|frame| frame.unsure) {
            self.doubt_from(0);
        }
    }

    /// All frames but the outermost `keep` end now.
    pub(super) fn close_to(&mut self, keep: usize, how: Status) {
        while self.frames.len() > keep {
            self.close(how, false);
        }
    }

    /// Control returned from the frame on top, and so from all that tail-called it.
    pub(super) fn pop_group(&mut self, by_jump: bool) {
        while self.close(Status::Complete, by_jump).is_some_and(|f| f.tail) {}
    }

    /// The frame that was called, of the group that frame `i` belongs to.
    pub(super) fn group_base(&self, i: usize) -> usize {
        (0..=i).rev().find(|&j| self.frames.get(j).is_none_or(|f| !f.tail)).unwrap_or(0)
    }

    /// A landing that nothing decides may have ended the frames from this one on.
    pub(super) fn doubt_from(&mut self, first: usize) {
        self.frames.iter_mut().skip(first).for_each(|frame| frame.unsure = true);
    }

    /// Control may have landed in another frame before than it seemed, if there were several.
    pub(super) fn doubt_choice(&mut self) {
        if self.has_chosen {
            self.doubt_from(0);
            self.is_astray = true;
        }
    }

    /// The first frame after the group of frame `i`.
    pub(super) fn group_end(&self, i: usize) -> usize {
        i + 1 + self.frames.iter().skip(i + 1).take_while(|frame| frame.tail).count()
    }
}

impl Tally {
    /// What was seen of a call that is not whole, or is seen again after it had its row.
    fn add_open(&mut self, activation: &Activation, seen: Sum) {
        if activation.depth == 0 {
            self.open.add(seen);
            self.open_children.add_all(&activation.children);
        }
    }
}
