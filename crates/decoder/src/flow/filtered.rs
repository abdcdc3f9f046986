//! The packets that, beside common ones, most of a trace with an IP filter is: tracing starts and ends where the code that is
//! traced is entered and left.  And MTC packets, as they come in any code.

use model::{AuxOffset, Avma};
use packet::Filtered;

use super::{Flow, State};

impl Flow<'_> {
    /// Follows such a packet, if `rest` starts with one, which ends at `end`; false if it does not, or if nobody knows where
    /// execution is.
    pub(super) fn filtered(&mut self, rest: &mut &[u8], end: AuxOffset) -> bool {
        let is_off = match self.state {
            State::On => false,
            State::Off => true,
            _ => return false,
        };
        let Some((packet, behind)) = packet::decode_filtered(rest, &mut self.last_ip) else { return false };
        let at = AuxOffset(end.0 - rest.len() as u64);
        match packet {
            Filtered::Cyc(cycles) => self.cyc(cycles),
            Filtered::Mtc(ctc) => self.mtc(ctc),
            Filtered::Mode64 if is_off => self.long_mode = true,
            Filtered::Mode64 => return false, // it belongs to what comes next
            Filtered::TipPge(ip) => self.start(at, Avma(ip)),
            Filtered::TipPgd(ip) => self.end(at, ip.map(Avma), None),
        }
        *rest = behind;
        matches!(self.state, State::On | State::Off)
    }
}
