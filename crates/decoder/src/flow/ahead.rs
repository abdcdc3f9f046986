//! Looking at packets ahead: where an erratum makes a FUP mean less than it says, what follows tells.

use model::Avma;
use packet::{LastIp, Packet};

use crate::reader::{Item, Reader};

/// Packets that are looked at; far more than stand between the packets that answer.
const MAX_PACKETS: usize = 1 << 10;

impl Reader<'_> {
    /// The first answer that a packet ahead gives; false if none does.
    fn ahead(mut self, mut answer: impl FnMut(Packet) -> Option<bool>) -> bool {
        for _ in 0..MAX_PACKETS {
            let Some(Item::Packet(_, packet)) = self.next() else { return false };
            if let Some(answer) = answer(packet) {
                return answer;
            }
        }
        false
    }

    /// In PSB+: only packets that tell how things are stand between here and a TIP.PGE (BDM70).
    pub(crate) fn tracing_starts_after_psb_plus(self) -> bool {
        self.ahead(|packet| match packet {
            Packet::TipPge(_) => Some(true),
            Packet::Pad
            | Packet::Tsc(_)
            | Packet::Cbr(_)
            | Packet::PsbEnd
            | Packet::Pip { .. }
            | Packet::ModeExec { .. }
            | Packet::ModeTsx { .. }
            | Packet::Vmcs(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Mnt(_)
            | Packet::Mwait { .. }
            | Packet::Pwre { .. }
            | Packet::Pwrx { .. }
            | Packet::Exstop { .. } => None,
            _ => Some(false),
        })
    }

    /// Where tracing starts, if that comes next.
    pub(crate) fn next_start(mut self, mut last_ip: LastIp) -> Option<Avma> {
        for _ in 0..MAX_PACKETS {
            match self.next()? {
                Item::Packet(_, Packet::TipPge(ip)) => return last_ip.expand(ip).map(Avma),
                Item::Packet(_, Packet::Tnt(_) | Packet::Tip(_) | Packet::TipPgd(_) | Packet::Fup(_))
                | Item::Packet(_, Packet::Psb | Packet::Ovf)
                | Item::Bad(..) => return None,
                Item::Packet(..) => (),
            }
        }
        None
    }

    /// Where tracing starts again, if it ends here.
    pub(crate) fn next_start_after_end(mut self, mut last_ip: LastIp) -> Option<Avma> {
        for _ in 0..MAX_PACKETS {
            match self.next()? {
                Item::Packet(_, Packet::TipPge(ip)) => return last_ip.expand(ip).map(Avma),
                Item::Packet(_, Packet::Fup(ip) | Packet::TipPgd(ip)) => _ = last_ip.expand(ip),
                Item::Packet(_, Packet::Tnt(_) | Packet::Tip(_) | Packet::Psb | Packet::Ovf)
                | Item::Bad(..) => return None,
                Item::Packet(..) => (),
            }
        }
        None
    }

    /// After a FUP: the packets that follow say that tracing was off there (APL12): a TIP.PGE, a TraceStop,
    /// or a PSB+ without FUP.
    pub(crate) fn tracing_is_off(self) -> bool {
        let mut in_psb_plus = false;
        self.ahead(|packet| match packet {
            Packet::TipPge(_) | Packet::TraceStop => Some(true),
            Packet::Tnt(_) | Packet::Tip(_) | Packet::TipPgd(_) | Packet::Ovf => Some(false),
            Packet::Psb => {
                in_psb_plus = true;
                None
            }
            Packet::Fup(_) if in_psb_plus => Some(false),
            Packet::PsbEnd if in_psb_plus => Some(true),
            _ => None,
        })
    }
}
