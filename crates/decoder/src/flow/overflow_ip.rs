//! The last IP after an overflow: processors may keep it, or begin at 0 as they do after a PSB.
//!
//! ```text
//! last IP 0x7f12_3456_0000, then OVF, then FUP with four bytes 0x0040_1000
//!   kept   0x7f12_0040_1000
//!   zero   0x0000_0040_1000     a program below 4 GB (not PIE)
//! ```
//! The SDM has it kept ("Overflow (OVF) Packet"); libipt has 0.  Six and eight bytes are a whole address.
//! Two bytes after a last IP of 0 would be an address below 64 KB, where nothing is mapped.  So only four
//! bytes have two readings: that which is code is taken; where both are, that which the packets after it
//! fit; where they fit both, or neither is code, the SDM's.

use model::{Avma, Ns, Tsc};
use packet::{IpPayload, LastIp, Packet, Tnt};

use super::Flow;
use crate::reader::{Item, Reader};
use crate::work::Work;

/// `IPBytes` of an address of four bytes.
const FOUR_BYTES: u8 = 2;

/// The first address after an OVF.
struct FirstIp<'a> {
    payload: IpPayload,
    /// The last TSC packet before it.
    tsc: Option<u64>,
    /// After it.
    reader: Reader<'a>,
}

impl<W: Work> Flow<'_, W> {
    /// At an OVF: sets the last IP to 0 if the first address after it is compressed against that.
    pub(super) fn choose_last_ip(&mut self) {
        let Some(FirstIp { payload, tsc, reader }) = FirstIp::after(self.reader) else { return };
        if payload.ip_bytes != FOUR_BYTES {
            return;
        }
        let time = tsc.map_or(self.clock.now_lo(), |tsc| self.time_of(tsc));
        let space = self.space_of(self.present(time));
        let before = std::mem::replace(&mut self.walk.space, space);
        if self.fits(self.last_ip, payload, reader) < self.fits(LastIp::default(), payload, reader) {
            self.last_ip.reset();
        }
        self.walk.space = before;
    }

    fn time_of(&self, low_56: u64) -> Ns {
        self.context.conversion().to_ns(Tsc::of_packet(low_56, self.context.reference()))
    }

    /// Whether `payload` is an address of code if it is compressed against `last_ip`, and the packets in
    /// `reader` fit that.
    fn fits(&mut self, mut last_ip: LastIp, payload: IpPayload, reader: Reader<'_>) -> (bool, bool) {
        let Some(ip) = last_ip.expand(payload).map(Avma) else { return (false, false) };
        let is_code = self.walk.is_code(ip);
        (is_code, is_code && self.choices_after((ip, last_ip), Tnt::default(), reader).is_some())
    }
}

impl<'a> FirstIp<'a> {
    /// `None`: there is none before the next OVF or PSB, at which the last IP is 0.
    fn after(mut reader: Reader<'a>) -> Option<Self> {
        let mut tsc = None;
        loop {
            let Some(Item::Packet(_, packet)) = reader.next() else { return None };
            let payload = match packet {
                Packet::Psb | Packet::Ovf => return None,
                Packet::Tsc(low_56) => {
                    tsc = Some(low_56);
                    continue;
                }
                Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => ip,
                _ => continue,
            };
            if payload != IpPayload::NONE {
                return Some(Self { payload, tsc, reader });
            }
        }
    }
}
