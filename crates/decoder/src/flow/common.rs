//! The packets that most of a trace is, where nothing else is going on: TNT, TIP and CYC in code that is
//! followed, whose effects are remembered.
//!
//! They mean here what they mean anywhere; this only passes by all the questions whose answers they do not
//! change.

use model::{AuxOffset, Avma};
use packet::{Common, MAX_PACKET_LEN};

use super::events::FupUse;
use super::filtered::Borders;
use super::{Flow, State};
use crate::block::BlockId;
use crate::clock::Slot;
use crate::effects::{Asked, Effect, Effects, End, Remembered, Side};
use crate::output::Output;
use crate::record::Edges;
use crate::return_stack::ReturnStack;
use crate::walk::Step;

/// So many bytes are looked at in one go: few enough for [`crate::clock::Ticker`].
const WINDOW: usize = 1 << 11;

/// A CYC packet and one after it have no more.
const PAIR: usize = 2 + MAX_PACKET_LEN;

/// The last flow packet, and what has come after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastFlow {
    pub(super) slot: Slot,
    /// It was a TNT: nothing says yet when its last branch was.
    pub(super) open_tnt: bool,
    /// No timing packet has come since the last TNT: TIPs may have waited for it to be sent.
    pub(super) after_tnt: bool,
    /// What the branches of the last TNT cannot precede: the flow packet before it.
    pub(super) tnt_lo: Slot,
}

impl LastFlow {
    /// The step to a flow packet that has not waited, whose slot is `slot`.
    #[inline(always)]
    pub(super) fn step(&self, slot: Slot, at: AuxOffset) -> Step {
        Step { lo: self.slot, own: slot, slot, at }
    }

    /// A TNT has come, whose slot is `slot`.
    #[inline(always)]
    pub(super) fn tnt(&mut self, slot: Slot) {
        *self = Self { slot, open_tnt: true, after_tnt: true, tnt_lo: self.slot };
    }

    /// Tracing starts or ends at a packet whose slot is `slot`.
    #[inline(always)]
    fn border(&mut self, slot: Slot) {
        (self.slot, self.open_tnt, self.after_tnt) = (slot, false, false);
    }

    /// A TIP has come that has not waited, whose slot is `slot`.
    #[inline(always)]
    pub(super) fn tip(&mut self, slot: Slot) {
        (self.slot, self.open_tnt) = (slot, false);
    }

    /// The step to the branches of the last TNT after its first one.
    #[inline(always)]
    pub(super) fn rest_of_tnt(&self, at: AuxOffset) -> Step {
        Step { lo: self.tnt_lo, own: self.slot, slot: self.slot.next(), at }
    }

    /// The step for a TIP that may have waited for the TNT before it to be sent (SDM, "Deferred TIPs"): its
    /// branch is among those of the TNT, and has no time of its own.
    #[inline(always)]
    pub(super) fn among_tnt(&self, at: AuxOffset) -> Step {
        Step { own: self.tnt_lo, ..self.rest_of_tnt(at) }
    }
}

/// Where execution is, and who is told what it does.
pub(super) struct Place<'a> {
    pub(super) block: BlockId,
    pub(super) work: u32,
    pub(super) side: Side,
    pub(super) stack: &'a mut ReturnStack,
    pub(super) effects: &'a Effects,
    pub(super) remembered: Remembered<'a>,
    pub(super) output: &'a mut Output,
}

impl<'a> Place<'a> {
    /// Goes where the effect of what is asked goes, if that is known; a return by a TIP is still to be
    /// popped. Of bits it has used one at least. The step is only asked for if somebody is told of it.
    #[inline(always)]
    fn pass(&mut self, asked: Asked, has_first_bit: bool, step: impl FnOnce() -> Step) -> Option<&'a Effect> {
        let effects = self.effects;
        let effect = self.remembered.find(self.block, asked)?;
        let mut next = effect.next;
        if let Some(first) = effect.edges() {
            let mut call = BlockId::NONE;
            match effect.end {
                End::Used => (),
                End::Return => {
                    call = self.stack.top();
                    next = effects.return_site_from(self.side, call)?.block;
                    self.stack.pop();
                }
                _ => return None,
            }
            let edges = Edges { first, has_first_bit, quiet: effect.quiet, call };
            self.output.effect(&step(), self.work, edges, effects);
            if effect.calls > 0 {
                effects.push_calls(effect, self.stack);
            }
        } else if effect.end != End::Used {
            return None;
        }
        self.work = self.work.wrapping_add(effect.work);
        self.block = next;
        Some(effect)
    }
}

impl Flow<'_> {
    /// Follows such packets up to the first other one.
    pub(super) fn common(&mut self) {
        let is_plain = self.psb.is_none() && !self.tail;
        let is_after_missing_code = self.walk.unknown_callers.is_some() || !self.waiting.is_empty();
        if !is_plain || is_after_missing_code || self.fup.is_some() || self.fup_use != FupUse::default() {
            return;
        }
        let truncation = self.segment.truncations.get(self.next_truncation);
        let whole = truncation
            .map_or(self.stop, |at| AuxOffset(at.0.saturating_sub(MAX_PACKET_LEN as u64)).min(self.stop));
        let run = self.reader.run(whole);
        let end = self.reader.offset().plus(run.len() as u64);
        let mut rest = run;
        let is_filtered = self.context.recording.pt.has_ip_filter;
        while self.walk.tnt.is_empty() {
            let goes_on = match (self.state, self.clock.has_cyc()) {
                (State::On | State::Off, true) if is_filtered => {
                    self.follow_run::<true, true>(&mut rest, end)
                }
                (State::On | State::Off, false) if is_filtered => {
                    self.follow_run::<false, true>(&mut rest, end)
                }
                (State::On, true) => self.follow_run::<true, false>(&mut rest, end),
                (State::On, false) => self.follow_run::<false, false>(&mut rest, end),
                _ => false,
            };
            match rest.split_first() {
                Some((_, after)) if !self.walk.tnt.is_empty() => {
                    self.follow_rest(AuxOffset(end.0 - rest.len() as u64));
                    rest = after;
                }
                _ if goes_on || self.filtered(&mut rest, end) => (),
                _ => break,
            }
        }
        self.reader.passed(run, rest);
    }

    /// Follows what is remembered, up to a packet that takes more than to look up what it does: another one,
    /// or one whose effect is not remembered yet, or is none that the code goes on after. That packet is
    /// left as if it had not been seen, but of a TNT the first bits may have been followed: then the others
    /// wait. If there is none in the first bytes of `rest`, which end at `end`, it goes on after these.
    ///
    /// With an IP filter it follows where tracing starts and ends, and MTC, too: with CYC, that is most of
    /// the packets there. Anywhere else there are too few of these to be worth the registers.
    // On its own, so that the registers are all its.
    #[inline(never)]
    fn follow_run<const HAS_CYC: bool, const IS_FILTERED: bool>(
        &mut self,
        rest: &mut &[u8],
        end: AuxOffset,
    ) -> bool {
        let mut borders = Borders::of(self, IS_FILTERED);
        let walk = &mut self.walk;
        let Some(remembered) = walk.effects.remembered() else { return false };
        let Some(mut ticker) = self.clock.ticker::<HAS_CYC>(WINDOW) else { return false };
        borders.mtc(&ticker);
        let mut place = Place {
            block: walk.block,
            work: walk.work,
            side: Side::User(walk.space),
            stack: &mut walk.stack,
            effects: walk.effects,
            remembered,
            output: walk.output,
        };
        // What is mostly written stays in memory: the processor has too few registers for all.
        let (last, last_ip) = (&mut self.last, &mut self.last_ip);
        // A length that is known when this is compiled needs no register.
        let mut few;
        let window = match rest.first_chunk() {
            Some(window) => window,
            None => {
                few = [0; WINDOW];
                few[WINDOW - rest.len()..].copy_from_slice(rest);
                &few
            }
        };
        let begin = WINDOW - rest.len().min(WINDOW);
        let offset = end.0 - rest.len() as u64;
        // Nothing has come but MTC if `pos` is at `after_mtc`, and no CYC since the last flow packet if it
        // is at `after_flow`.
        let (mut pos, mut after_mtc, mut after_flow) = (begin, begin, begin);
        'run: while let Some(bytes) = window[pos..].first_chunk::<PAIR>() {
            let mut cyc_len = 0;
            if let Some((cycles, len)) = packet::decode_common_cyc(bytes) {
                ticker.cyc(cycles);
                last.after_tnt = false;
                cyc_len = len;
            }
            pos += cyc_len;
            let bytes = &bytes[cyc_len..];
            let at = || AuxOffset(offset + (pos - begin) as u64);
            let common = if borders.is_off { None } else { packet::decode_common(bytes, last_ip) };
            let Some((packet, len)) = common else {
                if !IS_FILTERED {
                    break;
                }
                if let Some(ctc) = packet::decode_mtc(bytes) {
                    // As [`Flow::mtc`].
                    let forced_out = std::mem::take(&mut last.open_tnt).then_some(place.work);
                    if forced_out.is_some() {
                        after_flow = pos;
                    } else {
                        after_mtc += packet::MTC_LEN;
                    }
                    last.after_tnt = false;
                    ticker.mtc(ctc, forced_out);
                    borders.mtc(&ticker);
                    (pos, after_flow) = (pos + packet::MTC_LEN, after_flow + packet::MTC_LEN);
                    continue;
                }
                let Some(len) = borders.pass(bytes, at(), last_ip, &mut place, &mut ticker) else { break };
                last.border(ticker.next());
                ticker.slot(place.work);
                if borders.is_off {
                    ticker.ends();
                }
                pos += len;
                after_flow = pos;
                continue;
            };
            match packet {
                Common::Tnt(all) => {
                    let before = place.work;
                    let step = || last.step(ticker.next(), at());
                    let Some(first) = place.pass(Asked::bits(all), true, step) else { break };
                    let first_bit = before.wrapping_add(first.first_work);
                    last.tnt(ticker.next());
                    ticker.branch();
                    ticker.slot(first_bit);
                    ticker.other_branches(all);
                    let mut left = first.rest();
                    while !left.is_empty() {
                        let step = || last.rest_of_tnt(at());
                        let Some(effect) = place.pass(Asked::bits(left), false, step) else {
                            (walk.tnt, walk.first_bit) = (left, Some(first_bit));
                            after_flow = pos; // a CYC was before its slot
                            break 'run;
                        };
                        place.effects.looked_up(1);
                        left = effect.rest();
                    }
                }
                Common::Tip(ip) => {
                    let step = || {
                        if last.after_tnt { last.among_tnt(at()) } else { last.step(ticker.next(), at()) }
                    };
                    let Some(effect) = place.pass(Asked::Address(Avma(ip)), false, step) else { break };
                    if effect.returns() {
                        place.stack.pop();
                    }
                    ticker.branch();
                    if last.after_tnt {
                        place.effects.looked_up(1);
                    } else {
                        last.tip(ticker.next());
                        ticker.slot(place.work);
                    }
                }
            }
            pos += len;
            after_flow = pos;
        }
        let Place { block, work, effects, .. } = place;
        (walk.block, walk.work) = (block, work);
        if IS_FILTERED {
            self.state = if borders.is_off { State::Off } else { State::On };
            (self.running, walk.space) = (borders.running, borders.space);
        }
        let goes_on = pos > WINDOW - PAIR && pos > begin;
        let cyc_is_last = (pos > after_mtc).then_some(pos > after_flow);
        effects.looked_up(ticker.stop(cyc_is_last));
        *rest = &rest[pos - begin..];
        goes_on
    }
}
