//! The trace of a `.ptt` file: its directives as bytes.

use std::collections::BTreeMap;

use packet::{ControlFlowEvent, EventData, IpPayload, Packet, Tnt};

use crate::program::Program;
use crate::source::Directive;

/// The bytes, and where the packets that have a label begin.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) bytes: Vec<u8>,
    pub(crate) labels: BTreeMap<String, u64>,
}

impl Trace {
    pub(crate) fn of(directives: &[Directive], program: &Program) -> Result<Self, String> {
        let mut trace = Self::default();
        for directive in directives {
            if let Some(label) = &directive.label {
                trace.labels.insert(label.clone(), trace.bytes.len() as u64);
            }
            let Directive { name, arguments, .. } = directive;
            let written = write(name, &Arguments::of(arguments, program), &mut trace.bytes);
            written.ok_or_else(|| format!("cannot encode {name}({arguments})"))?;
        }
        trace.labels.insert("eos".to_owned(), trace.bytes.len() as u64);
        Ok(trace)
    }
}

/// The arguments of a directive, which commas and a colon divide.
struct Arguments<'a> {
    words: Vec<&'a str>,
    program: &'a Program,
}

impl<'a> Arguments<'a> {
    fn of(text: &'a str, program: &'a Program) -> Self {
        let words = text.split([',', ':']).map(str::trim).filter(|word| !word.is_empty()).collect();
        Self { words, program }
    }

    fn has(&self, flag: &str) -> bool {
        self.words.contains(&flag)
    }

    /// A number, or the address of `%label`.
    fn number(&self, index: usize) -> Option<u64> {
        let word = *self.words.get(index)?;
        match word.strip_prefix('%') {
            Some(label) => self.program.labels.get(label).copied(),
            None => number(word),
        }
    }

    fn ip(&self) -> Option<IpPayload> {
        let ip_bytes = self.number(0)? as u8;
        let stored_bits = 8 * IpPayload::stored_len(ip_bytes)? as u32;
        let mask = u64::MAX.checked_shr(64 - stored_bits).unwrap_or(0);
        Some(IpPayload { ip_bytes, value: self.number(1)? & mask })
    }

    /// `c1.2`: a C-state and a sub C-state, which packets store less one.
    fn c_state(&self, index: usize) -> Option<(u8, u8)> {
        let text = self.words.get(index)?.strip_prefix('c')?;
        let (state, sub_state) = text.split_once('.').unwrap_or((text, "0"));
        let stored = |text: &str| Some((text.parse::<u8>().ok()?.wrapping_sub(1)) & 0xf);
        Some((stored(state)?, stored(sub_state)?))
    }

    /// `t.n t`: taken and not taken.
    fn tnt(&self) -> Option<Tnt> {
        let mut tnt = Tnt::default();
        let bits = self.words.concat();
        bits.chars().filter(|bit| matches!(bit, 't' | 'n')).all(|bit| tnt.push(bit == 't')).then_some(tnt)
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn write(name: &str, arguments: &Arguments<'_>, out: &mut Vec<u8>) -> Option<()> {
    if let Some(bits) = name.strip_prefix("raw-") {
        let len = usize::try_from(number(bits)? / 8).ok()?;
        out.extend(arguments.number(0)?.to_le_bytes().into_iter().take(len));
    } else if name == "tnt64" {
        let tnt = arguments.tnt()?;
        out.extend([0x02, 0xa3]);
        out.extend((1_u64 << tnt.len() | tnt.bits()).to_le_bytes().into_iter().take(6));
    } else {
        packet::encode(&flow_packet(name, arguments).or_else(|| event_packet(name, arguments))?, out);
    }
    Some(())
}

/// Packets of flow, mode and time.
fn flow_packet(name: &str, arguments: &Arguments<'_>) -> Option<Packet> {
    let operand = || arguments.number(0);
    Some(match name {
        "pad" => Packet::Pad,
        "psb" => Packet::Psb,
        "psbend" => Packet::PsbEnd,
        "ovf" => Packet::Ovf,
        "stop" => Packet::TraceStop,
        "tnt" => Packet::Tnt(arguments.tnt()?),
        "tip" => Packet::Tip(arguments.ip()?),
        "tip.pge" => Packet::TipPge(arguments.ip()?),
        "tip.pgd" => Packet::TipPgd(arguments.ip()?),
        "fup" => Packet::Fup(arguments.ip()?),
        "mode.exec" => Packet::ModeExec {
            long: arguments.has("64bit"),
            default_32: arguments.has("32bit"),
            interrupts: arguments.has("if"),
        },
        "mode.tsx" => {
            Packet::ModeTsx { in_transaction: arguments.has("begin"), aborted: arguments.has("abort") }
        }
        "pip" => Packet::Pip { cr3: operand()?, non_root: arguments.has("nr") },
        "tsc" => Packet::Tsc(operand()?),
        "cbr" => Packet::Cbr(operand()? as u8),
        "tma" => Packet::Tma { ctc: operand()? as u16, fast: arguments.number(1)? as u16 },
        "mtc" => Packet::Mtc(operand()? as u8),
        "cyc" => Packet::Cyc(operand()?),
        "vmcs" => Packet::Vmcs(operand()?),
        "mnt" => Packet::Mnt(operand()?),
        _ => return None,
    })
}

/// Packets of power events, PTWRITE and event trace.
fn event_packet(name: &str, arguments: &Arguments<'_>) -> Option<Packet> {
    let operand = || arguments.number(0);
    let ip = arguments.has("ip");
    Some(match name {
        "exstop" => Packet::Exstop { ip },
        "mwait" => Packet::Mwait { hints: operand()? as u32, extensions: arguments.number(1)? as u32 },
        "pwre" => {
            let (state, sub_state) = arguments.c_state(0)?;
            Packet::Pwre { hardware: arguments.has("hw"), state, sub_state }
        }
        "pwrx" => {
            let reasons = [("int", 1), ("st", 4), ("hw", 8)];
            let reason = reasons.iter().find(|(name, _)| arguments.has(name))?.1;
            Packet::Pwrx { last: arguments.c_state(1)?.0, deepest: arguments.c_state(2)?.0, reason }
        }
        "ptw" => Packet::Ptw { value: arguments.number(1)?, wide: operand()? == 1, ip },
        "cfe" => {
            let vector = arguments.number(1).unwrap_or(0) as u8;
            Packet::Cfe { ip, event: ControlFlowEvent::from_bits(operand()? as u8), vector }
        }
        "evd" => Packet::Evd { data: EventData::from_bits(operand()? as u8), value: arguments.number(1)? },
        _ => return None,
    })
}
