//! The packets that, beside common ones, most of a trace with an IP filter is: tracing starts and ends where
//! the code that is traced is entered and left. And MTC packets, as they come in any code.

use model::{AuxOffset, Avma, Ns, SpaceId};
use packet::{Filtered, LastIp};

use super::attributed::Attributed;
use super::common::Place;
use super::{Flow, State};
use crate::block::BlockId;
use crate::clock::{Slot, Ticker};
use crate::effects::{Asked, End, Side};
use crate::owner::Running;

impl Flow<'_> {
    /// Follows such a packet, if `rest` starts with one, which ends at `end`; false if it does not, or if
    /// nobody knows where execution is.
    pub(super) fn filtered(&mut self, rest: &mut &[u8], end: AuxOffset) -> bool {
        let is_off = match self.state {
            State::On => false,
            State::Off => true,
            _ => return false,
        };
        let Some((packet, after)) = packet::decode_filtered(rest, &mut self.last_ip) else { return false };
        let at = AuxOffset(end.0 - rest.len() as u64);
        match packet {
            Filtered::Cyc(cycles) => self.cyc(cycles),
            Filtered::Mtc(ctc) => self.mtc(ctc),
            Filtered::Mode64 if is_off => self.long_mode = true,
            Filtered::Mode64 => return false, // it belongs to what comes next
            Filtered::TipPge(ip) => self.start(at, Avma(ip)),
            Filtered::TipPgd(ip) => self.end(at, ip.map(Avma), None),
        }
        *rest = after;
        matches!(self.state, State::On | State::Off)
    }
}

/// Where tracing starts and ends, followed as far as only what is remembered is asked, and who runs is the
/// same as before.
pub(super) struct Borders {
    pub(super) is_off: bool,
    pub(super) running: Running,
    pub(super) space: SpaceId,
    may_start: bool,
    may_end: bool,
    attributed: Attributed,
    /// Up to so many cycles of the clock's run it is.
    same_until: u64,
}

impl Borders {
    /// If there are any.
    #[inline(always)]
    pub(super) fn of(flow: &Flow<'_>, is_filtered: bool) -> Self {
        let attributed = flow.attributed;
        let Attributed { running, space, .. } = attributed;
        let may_end = is_filtered && !flow.walk.own_calls;
        let may_start = may_end
            && !flow.guest
            && flow.long_mode
            && running.is_known()
            && flow.away.is_nobody_but(running.tid)
            && flow.walk.output.is_of(running, space);
        Self {
            is_off: is_filtered && matches!(flow.state, State::Off),
            running: flow.running,
            space: flow.walk.space,
            may_start,
            may_end,
            attributed,
            same_until: 0,
        }
    }

    /// The clock begins, or an MTC packet has come.
    #[inline(always)]
    pub(super) fn mtc<const HAS_CYC: bool>(&mut self, ticker: &Ticker<'_, HAS_CYC>) {
        if self.may_start {
            self.same_until = ticker.stays_until(self.attributed.first, self.attributed.last);
        }
    }

    /// Passes the packets at the start of `bytes`, at `at`, if they are such a border; how many bytes these
    /// are.
    #[inline(always)]
    pub(super) fn pass<const HAS_CYC: bool>(
        &mut self,
        bytes: &[u8],
        at: AuxOffset,
        last_ip: &mut LastIp,
        place: &mut Place<'_>,
        ticker: &mut Ticker<'_, HAS_CYC>,
    ) -> Option<usize> {
        let slot = ticker.next();
        if !self.is_off {
            let (ip, len) = packet::decode_end(bytes, last_ip).filter(|_| self.may_end)?;
            if self.running.to != Ns::MAX && ticker.now_lo() > self.running.to {
                return None;
            }
            cross(place, place.block, Asked::End(Avma(ip)), slot, at)?;
            ticker.branch();
            self.is_off = true;
            return Some(len);
        }
        let (ip, before, len) = packet::decode_start(bytes, last_ip).filter(|_| self.may_start)?;
        let Attributed { running, space, .. } = self.attributed;
        let runs =
            ticker.is_before(self.same_until) || ticker.now().is_some_and(|now| self.attributed.holds(now));
        if !runs || Avma(ip).is_kernel() {
            return None;
        }
        cross(place, BlockId(space.0), Asked::Start(Avma(ip)), slot, at.plus(before as u64))?;
        (self.running, self.space, place.side) = (running, space, Side::User(space));
        ticker.starts();
        self.is_off = false;
        Some(len)
    }
}

/// Does what tracing's start or end is, if that is known: as [`crate::walk::Walk::follow_start`] and
/// [`crate::walk::Walk::follow_end`].
#[inline(always)]
fn cross(place: &mut Place<'_>, block: BlockId, asked: Asked, slot: Slot, at: AuxOffset) -> Option<()> {
    let effect = place.remembered.find(block, asked)?;
    let first = effect.edges().filter(|_| effect.end != End::Lost)?;
    if effect.returns() {
        place.stack.pop();
    }
    place.block = effect.next;
    place.output.border(first, slot, place.work, at, place.effects);
    Some(())
}
