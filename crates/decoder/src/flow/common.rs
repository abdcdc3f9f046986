//! The packets that most of a trace is, where nothing else is going on: TNT, TIP and CYC in code that is followed, whose
//! effects are remembered.
//!
//! They mean here what they mean anywhere; this only passes by all the questions whose answers they do not change, and
//! keeps at hand what they do.

use model::{AuxOffset, Avma};
use packet::{MAX_PACKET_LEN, Packet, Tnt};

use super::events::FupUse;
use super::{Flow, State};
use crate::block::BlockId;
use crate::clock::Slot;
use crate::effects::{Asked, Effect, Effects, End, Side};
use crate::output::{Edges, Output};
use crate::return_stack::ReturnStack;
use crate::walk::Step;

/// So many bytes are looked at in one go: few enough for [`crate::clock::Ticker`].
const RUN_BYTES: usize = 1 << 18;

/// The last flow packet, and what has come behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastFlow {
    pub(super) slot: Slot,
    /// It was a TNT: nothing says yet when its last branch was.
    pub(super) open_tnt: bool,
    /// No timing packet has come since the last TNT: TIPs may have waited for it to be sent.
    pub(super) behind_tnt: bool,
    /// What the branches of the last TNT cannot precede: the flow packet before it.
    pub(super) tnt_lo: Slot,
}

impl LastFlow {
    /// A TNT has come, whose slot is `slot`: the step to it.
    #[inline(always)]
    pub(super) fn tnt(&mut self, slot: Slot, at: AuxOffset) -> Step {
        let lo = self.slot;
        *self = Self { slot, open_tnt: true, behind_tnt: true, tnt_lo: lo };
        Step { lo, own: slot, slot, at }
    }

    /// A TIP has come that has not waited, whose slot is `slot`: the step to it.
    #[inline(always)]
    pub(super) fn tip(&mut self, slot: Slot, at: AuxOffset) -> Step {
        let lo = std::mem::replace(&mut self.slot, slot);
        self.open_tnt = false;
        Step { lo, own: slot, slot, at }
    }

    /// The step for a TIP that may have waited for the TNT before it to be sent (SDM, "Deferred TIPs"): its branch is
    /// among those of the TNT, and has no time of its own.
    #[inline(always)]
    pub(super) fn among_tnt(&self, at: AuxOffset) -> Step {
        Step { lo: self.tnt_lo, own: self.tnt_lo, slot: self.slot.next(), at }
    }
}

/// A TNT that is being followed.
#[derive(Clone, Copy)]
pub(super) struct OpenTnt {
    pub(super) step: Step,
    /// All its results, and those that are left.
    pub(super) all: Tnt,
    pub(super) left: Tnt,
    /// Instructions that had passed before it, and at the branch of its first bit if that was reached.
    pub(super) before: u32,
    pub(super) first_bit: Option<u32>,
}

/// A packet that takes more than to look up what it does.
enum Special {
    /// It is another one, or there is none.
    Other,
    /// Its effect is not remembered yet, or is none that the code goes on behind.
    Tnt(OpenTnt),
    /// So is that of this TIP.
    Tip { step: Step, ip: Avma, deferred: bool },
}

/// Where execution is, and who is told what it does.
struct Place<'a> {
    block: BlockId,
    work: u32,
    side: Side,
    stack: &'a mut ReturnStack,
    effects: &'a Effects,
    output: &'a mut Output,
    /// Effects that were found.
    found: u64,
}

impl Place<'_> {
    /// Goes where the effect of what is asked goes, if that is known; a return by a TIP is still to be popped.  `is_first`: it has
    /// the first bit of a TNT.
    #[inline(always)]
    fn pass(&mut self, asked: Asked, step: &Step, is_first: impl FnOnce(&Effect) -> bool) -> Option<Effect> {
        let effect = self.effects.find(self.block, asked)?;
        let (next, call) = match effect.end {
            End::Used => (effect.next, BlockId::NONE),
            End::Return => {
                let call = self.stack.top()?;
                let behind = self.effects.behind_from(self.side, call)?;
                self.stack.pop();
                (behind.block, call)
            }
            _ => return None,
        };
        if let Some(first) = effect.edges() {
            let edges = Edges { first, has_first_bit: is_first(effect), call };
            self.output.effect(step, self.work, edges, self.effects);
            if effect.calls {
                self.effects.push_calls(first, self.stack);
            }
        }
        self.work = self.work.wrapping_add(effect.work);
        self.block = next;
        self.found += 1;
        Some(*effect)
    }
}

impl Flow<'_> {
    /// Follows such packets up to the first other one.
    pub(super) fn common(&mut self) {
        let is_plain = self.psb.is_none() && !self.tail;
        if !is_plain || self.fup.is_some() || self.fup_use != FupUse::default() {
            return;
        }
        let truncation = self.segment.truncations.get(self.next_truncation);
        let whole = truncation
            .map_or(self.stop, |at| AuxOffset(at.0.saturating_sub(MAX_PACKET_LEN as u64)).min(self.stop));
        let run = self.reader.run(whole);
        let run = run.get(..RUN_BYTES).unwrap_or(run);
        let end = self.reader.offset().plus(run.len() as u64);
        let mut rest = run;
        while matches!(self.state, State::On) && self.walk.tnt.is_empty() {
            let follow_run =
                if self.clock.has_cyc() { Self::follow_run::<true> } else { Self::follow_run::<false> };
            match follow_run(self, &mut rest, end) {
                Special::Other => break,
                Special::Tnt(open) => self.follow_rest(open),
                Special::Tip { step, ip, deferred } => self.follow_tip(step, ip, deferred),
            }
        }
        self.reader.passed(run, rest);
    }

    /// Follows what is remembered, up to `end`, where `rest` ends; the packet at which it stopped.
    fn follow_run<const HAS_CYC: bool>(&mut self, rest: &mut &[u8], end: AuxOffset) -> Special {
        let Some(mut ticker) = self.clock.ticker::<HAS_CYC>() else { return Special::Other };
        let walk = &mut self.walk;
        let mut place = Place {
            block: walk.block,
            work: walk.work,
            side: Side::User(walk.space),
            stack: &mut walk.stack,
            effects: walk.effects,
            output: walk.output,
            found: 0,
        };
        let (mut bytes, mut last, mut last_ip) = (*rest, self.last, self.last_ip);
        let special = loop {
            let Some((packet, len)) = bytes.first_chunk().and_then(packet::decode_common) else {
                break Special::Other;
            };
            let at = AuxOffset(end.0 - bytes.len() as u64);
            match packet {
                Packet::Cyc(cycles) => {
                    ticker.cyc(cycles);
                    last.behind_tnt = false;
                }
                Packet::Tnt(all) => {
                    let step = last.tnt(ticker.next(), at);
                    let before = place.work;
                    let mut open = OpenTnt { step, all, left: all, before, first_bit: None };
                    ticker.branch();
                    while !open.left.is_empty() {
                        let work = place.work;
                        let is_first = open.first_bit.is_none();
                        let has_first = |effect: &Effect| is_first && effect.rest() != open.left;
                        let Some(effect) = place.pass(Asked::bits(open.left), &open.step, has_first) else {
                            break;
                        };
                        if has_first(&effect) {
                            open.first_bit = Some(work.wrapping_add(effect.first_work));
                            open.step.slot = open.step.slot.next();
                        }
                        open.left = effect.rest();
                    }
                    if !open.left.is_empty() {
                        bytes = bytes.get(len..).unwrap_or_default();
                        break Special::Tnt(open);
                    }
                    ticker.slot(open.first_bit.unwrap_or(before));
                    ticker.other_branches(all);
                }
                Packet::Tip(payload) => {
                    let Some(ip) = last_ip.expand(payload).map(Avma) else { break Special::Other };
                    let deferred = last.behind_tnt;
                    let step = if deferred { last.among_tnt(at) } else { last.tip(ticker.next(), at) };
                    ticker.branch();
                    let Some(effect) = place.pass(Asked::Address(ip), &step, |_| false) else {
                        bytes = bytes.get(len..).unwrap_or_default();
                        break Special::Tip { step, ip, deferred };
                    };
                    if effect.returns {
                        place.stack.pop();
                    }
                    if !deferred {
                        ticker.slot(place.work);
                    }
                }
                _ => break Special::Other,
            }
            bytes = bytes.get(len..).unwrap_or_default();
        };
        ticker.stop();
        let Place { block, work, found, .. } = place;
        (walk.block, walk.work) = (block, work);
        walk.effects.lookups += found;
        (self.last, self.last_ip, *rest) = (last, last_ip, bytes);
        special
    }
}
