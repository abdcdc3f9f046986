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
use crate::effects::{Asked, Effect, Effects, End};
use crate::output::Output;
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
    /// Results that are left.
    pub(super) left: Tnt,
    /// How many it has.
    pub(super) len: u8,
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
    /// It ends with a return that the next bit may be of.
    is_at_return: bool,
    work: u32,
    stack: &'a mut ReturnStack,
    effects: &'a Effects,
    output: &'a mut Output,
}

impl Place<'_> {
    /// Goes where an effect goes.
    #[inline(always)]
    fn apply(&mut self, step: &Step, effect: &Effect, has_first: bool) {
        if let Some(edges) = effect.edges() {
            self.output.effect(step, self.work, edges, has_first, self.effects);
            if effect.calls {
                self.effects.push_calls(edges, self.stack);
            }
        }
        self.work = self.work.wrapping_add(effect.work);
        self.block = effect.next;
        self.is_at_return = effect.end == End::Return;
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
            match self.follow_run(&mut rest, end) {
                Special::Other => break,
                Special::Tnt(open) => self.follow_rest(open),
                Special::Tip { step, ip, deferred } => self.follow_tip(step, ip, deferred),
            }
        }
        self.reader.passed(run, rest);
    }

    /// Follows what is remembered, up to `end`, where `rest` ends; the packet at which it stopped.
    #[inline(always)]
    fn follow_run(&mut self, rest: &mut &[u8], end: AuxOffset) -> Special {
        let Some(mut ticker) = self.clock.ticker() else { return Special::Other };
        let walk = &mut self.walk;
        let mut place = Place {
            block: walk.block,
            is_at_return: walk.block == walk.at_return,
            work: walk.work,
            stack: &mut walk.stack,
            effects: walk.effects,
            output: walk.output,
        };
        let (mut bytes, mut last, mut last_ip, mut lookups) = (*rest, self.last, self.last_ip, 0);
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
                Packet::Tnt(left) => {
                    let step = last.tnt(ticker.next(), at);
                    let mut open = OpenTnt { step, left, len: left.len(), before: place.work, first_bit: None };
                    ticker.branches(1);
                    while !open.left.is_empty() {
                        let asked = if place.is_at_return {
                            Asked::compressed(place.stack.top(), open.left)
                        } else {
                            Asked::bits(open.left)
                        };
                        let found = place.effects.find(place.block, asked);
                        let Some(effect) = found.filter(|effect| effect.goes_on()) else { break };
                        lookups += 1;
                        if place.is_at_return {
                            place.stack.pop();
                        }
                        let has_first = open.first_bit.is_none() && effect.rest() != open.left;
                        if has_first {
                            open.first_bit = Some(place.work.wrapping_add(effect.first_work));
                        }
                        place.apply(&open.step, effect, has_first);
                        if has_first {
                            open.step.slot = open.step.slot.next();
                        }
                        open.left = effect.rest();
                    }
                    if !open.left.is_empty() {
                        bytes = bytes.get(len..).unwrap_or_default();
                        break Special::Tnt(open);
                    }
                    ticker.slot(open.first_bit.unwrap_or(open.before));
                    ticker.branches(u64::from(open.len) - 1);
                }
                Packet::Tip(payload) => {
                    let Some(ip) = last_ip.expand(payload).map(Avma) else { break Special::Other };
                    let deferred = last.behind_tnt;
                    let step = if deferred { last.among_tnt(at) } else { last.tip(ticker.next(), at) };
                    ticker.branches(1);
                    let found = place.effects.find(place.block, Asked::Address(ip));
                    let Some(effect) = found.filter(|effect| effect.goes_on()) else {
                        bytes = bytes.get(len..).unwrap_or_default();
                        break Special::Tip { step, ip, deferred };
                    };
                    lookups += 1;
                    if effect.returns {
                        place.stack.pop();
                    }
                    place.apply(&step, effect, false);
                    if !deferred {
                        ticker.slot(place.work);
                    }
                }
                _ => break Special::Other,
            }
            bytes = bytes.get(len..).unwrap_or_default();
        };
        let Place { block, is_at_return, work, .. } = place;
        ticker.stop();
        (walk.block, walk.work) = (block, work);
        walk.at_return = if is_at_return { block } else { BlockId::NONE };
        walk.effects.lookups += lookups;
        (self.last, self.last_ip, *rest) = (last, last_ip, bytes);
        special
    }
}
