//! Instructions that uprobes have replaced. The kernel runs them in a page of its own (`[uprobes]`), of which
//! the code is not known; what it stands for is.
//!
//! ```text
//!   f+0   int3       FUP f+0, TIP.PGD        the kernel: what is attached to the probe
//!   page+80          TIP.PGE page+80         a copy of the instruction         stands for f+0
//!                    FUP page+81, TIP.PGD    the kernel                        stands for f+1
//!   f+1              TIP.PGE f+1
//!
//!   f+40  ret        TIP page                a return address was rewritten    stands for main+15
//!   page+0 int3      FUP page, TIP.PGD       the kernel
//!   main+15          TIP.PGE main+15
//! ```
//! An instruction that the kernel carries out itself (`push`, `nop`, a jump) has no copy: tracing starts
//! after it. Since Linux 6.11 a rewritten return leads to a system call in that page, which has no FUP.
//!
//! kernel/events/uprobes.c, arch/x86/kernel/uprobes.c

use std::collections::BTreeMap;

use model::{AsyncCause, Avma, Tid};

use super::fup::{Fup, Interruption};
use super::{Flow, State};
use crate::work::Work;

/// `UPROBE_XOL_SLOT_BYTES`.
const SLOT_BYTES: u64 = 128;

/// What is known of the pages while a segment is decoded.
#[derive(Debug, Default)]
pub(super) struct Uprobes {
    /// There are any.
    there_are: bool,
    /// Where each thread was interrupted last: there may have been a probe.
    interrupted: BTreeMap<Tid, Avma>,
    /// What runs in the page.
    here: Option<InPage>,
}

/// Code in the page.
#[derive(Clone, Copy, Debug)]
struct InPage {
    at: Avma,
    stands_for: Avma,
    /// It is a copy of an instruction, and not the way back to a caller.
    is_copy: bool,
}

impl InPage {
    fn place_of(self, ip: Avma) -> Option<Avma> {
        let past = ip.0.checked_sub(self.at.0).filter(|past| *past < SLOT_BYTES)?;
        Some(if self.is_copy { self.stands_for.plus(past) } else { self.stands_for })
    }
}

impl Uprobes {
    pub(super) fn new(there_are: bool) -> Self {
        Self { there_are, ..Self::default() }
    }
}

impl<W: Work> Flow<'_, W> {
    /// The thread that runs was interrupted in front of an instruction.
    #[inline]
    pub(super) fn note_interrupted(&mut self, ip: Avma) {
        if self.uprobes.there_are {
            self.uprobes.interrupted.insert(self.running.tid, ip);
        }
    }

    /// Tracing has ended, by an interruption if there is a FUP, and in whatever state.
    #[inline]
    pub(super) fn note_end(&mut self, fup: Option<Fup>) {
        if !self.uprobes.there_are {
            return;
        }
        if matches!(self.state, State::Off) {
            self.attribute();
            match fup {
                Some(fup) => self.note_interrupted(fup.ip),
                None => _ = self.uprobes.interrupted.remove(&self.running.tid),
            }
        } else {
            self.forget_interruptions();
        }
    }

    /// Packets were lost: threads may have been interrupted elsewhere since.
    pub(super) fn forget_interruptions(&mut self) {
        self.uprobes.interrupted.clear();
        self.uprobes.here = None;
    }

    /// Tracing starts at `ip`: where a copy of an instruction runs, at that instruction.
    #[inline]
    pub(super) fn start_in_place(&mut self, ip: Avma) -> Avma {
        if !self.uprobes.there_are {
            return ip;
        }
        self.uprobes.here = None;
        if !self.context.code.is_in_uprobes_page(self.walk.space, ip) {
            return ip;
        }
        let Some(&stands_for) = self.uprobes.interrupted.get(&self.running.tid) else { return ip };
        self.uprobes.here = Some(InPage { at: ip, stands_for, is_copy: true });
        stands_for
    }

    /// A TIP leads to `ip`: a rewritten return, to its caller.
    #[inline]
    pub(super) fn return_in_place(&mut self, ip: Avma) -> Avma {
        if !self.uprobes.there_are || !matches!(self.state, State::On | State::Lost(_)) {
            return ip;
        }
        if !self.context.code.is_in_uprobes_page(self.walk.space, ip) {
            return ip;
        }
        let Some(stands_for) = self.caller().or_else(|| self.reader.next_start_after_end(self.last_ip))
        else {
            return ip;
        };
        self.uprobes.here = Some(InPage { at: ip, stands_for, is_copy: false });
        stands_for
    }

    /// Where the innermost call returns to that was followed since the last PSB.
    fn caller(&self) -> Option<Avma> {
        let is_certain = matches!(self.state, State::On) && self.walk.unknown_callers.is_none();
        if is_certain { self.walk.innermost_return() } else { None }
    }

    /// The address of a FUP: in the page, that for which it stands.
    #[inline]
    pub(super) fn fup_in_place(&self, ip: Avma) -> Avma {
        self.uprobes.here.and_then(|here| here.place_of(ip)).unwrap_or(ip)
    }

    /// The second FUP of an `int3` has the address after it (SDM, "Packet Generation under Different Enable
    /// Conditions"), where the instruction that it has replaced may not end.
    #[inline]
    pub(super) fn is_second_of_probe(&self, ip: Avma) -> bool {
        self.uprobes.there_are && self.fup.is_some_and(|first| first.ip.plus(1) == ip)
    }

    /// Tracing ends. In the way back to a caller that is the end of what stands there, whether it has a FUP
    /// or not.
    #[inline]
    pub(super) fn end_in_place(&mut self, fup: Option<Fup>) -> Option<Fup> {
        let here = self.uprobes.here.take().filter(|here| !here.is_copy);
        let at_caller = |here: InPage| Fup {
            ip: here.stands_for,
            interruption: Interruption::Event(AsyncCause::Unknown),
            may_be_ovf: false,
        };
        fup.or_else(|| here.map(at_caller))
    }
}
