//! The trace of a case: packets as `dump --packets` prints them, with labels for addresses.
//!
//! ```text
//! PSB+ off              PSB TSC CBR MODE.TSX PSBEND; each TSC is 1000 later than the last
//! PSB+ at f             ... MODE.Exec, FUP f
//! TIP g                 IP compression chosen;  `TIP g (6)`: this one;  `TIP.PGD`: no address
//! TNT TTN
//! raw 02 f3             any bytes
//! truncated             the kernel lost data here (PERF_RECORD_AUX)
//! started               the kernel started the trace unit here: an AUX record begins
//! hole 100              bytes of the stream are not in the file
//! ```

use packet::{ControlFlowEvent, EventData, IpPayload, LastIp, Packet, Tnt};

use super::code::{Code, number};

/// An AUX stream.
#[derive(Default)]
pub(super) struct Trace {
    /// Its bytes, in pieces with their offsets.
    pub(super) pieces: Vec<(u64, Vec<u8>)>,
    pub(super) truncations: Vec<u64>,
    pub(super) starts: Vec<u64>,
    last_ip: LastIp,
    tsc: u64,
}

impl Trace {
    /// Any bytes, each piece at its offset.
    pub(super) fn of_bytes(pieces: Vec<(u64, Vec<u8>)>) -> Self {
        Self { pieces, ..Self::default() }
    }

    /// This trace's bytes in pieces so small that no packet is among the common ones of its piece.
    pub(super) fn in_small_pieces(&self) -> Self {
        let small = |(at, bytes): &(u64, Vec<u8>)| {
            let at = *at;
            bytes.chunks(5).zip(0..).map(move |(part, n)| (at + 5 * n, part.to_vec())).collect::<Vec<_>>()
        };
        Self {
            pieces: self.pieces.iter().flat_map(small).collect(),
            truncations: self.truncations.clone(),
            starts: self.starts.clone(),
            ..Self::default()
        }
    }

    pub(super) fn assemble(lines: &[&str], code: &Code) -> Self {
        let mut trace = Self { pieces: vec![(0, vec![])], tsc: 1000, ..Self::default() };
        for line in lines {
            trace.line(line.trim(), code);
        }
        trace
    }

    fn line(&mut self, line: &str, code: &Code) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => (),
            ["PSB+", "off"] => self.psb_plus(None),
            ["PSB+", "at", ip] => self.psb_plus(Some(code.address(ip))),
            ["truncated"] => self.truncations.push(self.end()),
            ["started"] => self.starts.push(self.end()),
            ["hole", bytes] => {
                let offset = self.end() + number(bytes);
                self.pieces.push((offset, vec![]));
            }
            ["raw", ref bytes @ ..] => {
                self.bytes().extend(bytes.iter().map(|b| u8::from_str_radix(b, 16).unwrap()));
            }
            _ => {
                let packet = packet(&words, code, &mut self.last_ip);
                self.put(&packet.unwrap_or_else(|| panic!("no packet {line:?}")));
            }
        }
    }

    fn psb_plus(&mut self, ip: Option<u64>) {
        self.tsc += 1000;
        self.put(&Packet::Psb);
        self.put(&Packet::Tsc(self.tsc));
        self.put(&Packet::Cbr(10));
        self.put(&Packet::ModeTsx { in_transaction: false, aborted: false });
        if let Some(ip) = ip {
            self.put(&Packet::ModeExec { long: true, default_32: false, interrupts: false });
            let payload = self.last_ip.compress(ip);
            self.put(&Packet::Fup(payload));
        }
        self.put(&Packet::PsbEnd);
    }

    fn put(&mut self, packet: &Packet) {
        if let Packet::Psb = packet {
            self.last_ip.reset();
        }
        packet::encode(packet, self.bytes());
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.pieces.last_mut().unwrap().1
    }

    fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |(at, bytes)| at + bytes.len() as u64)
    }
}

/// The packet that these words stand for.
fn packet(words: &[&str], code: &Code, last_ip: &mut LastIp) -> Option<Packet> {
    let flag = |name| words.contains(&name);
    let field = |name| {
        let at = words.iter().position(|word| *word == name)?;
        Some(number(words.get(at + 1)?))
    };
    let c_state = |at: usize| words.get(at)?.strip_prefix('C').map(|n| number(n) as u8);
    let operand = || words.get(1).copied().map(number);
    let mut ip = || match words[1..] {
        [] | ["no", "ip"] => IpPayload::NONE,
        [ip] => last_ip.compress(code.address(ip)),
        [ip, bytes] => {
            let ip_bytes = number(bytes.trim_matches(['(', ')'])) as u8;
            let stored = 8 * IpPayload::stored_len(ip_bytes).unwrap() as u32;
            let payload = IpPayload { ip_bytes, value: code.address(ip) & (u64::MAX >> (64 - stored)) };
            last_ip.expand(payload);
            payload
        }
        _ => panic!("{words:?}: one address"),
    };
    Some(match *words.first()? {
        "PAD" => Packet::Pad,
        "PSB" => Packet::Psb,
        "PSBEND" => Packet::PsbEnd,
        "TNT" => Packet::Tnt(tnt(words.get(1)?)),
        "TIP" => Packet::Tip(ip()),
        "TIP.PGE" => Packet::TipPge(ip()),
        "TIP.PGD" => Packet::TipPgd(ip()),
        "FUP" => Packet::Fup(ip()),
        "PIP" => Packet::Pip { cr3: field("cr3")?, non_root: flag("non-root") },
        "MODE.Exec" => Packet::ModeExec { long: flag("64"), default_32: flag("32"), interrupts: flag("IF") },
        "MODE.TSX" => Packet::ModeTsx { in_transaction: flag("InTX"), aborted: flag("abort") },
        "TSC" => Packet::Tsc(operand()?),
        "TMA" => Packet::Tma { ctc: field("ctc")? as u16, fast: field("fast")? as u16 },
        "MTC" => Packet::Mtc(operand()? as u8),
        "CYC" => Packet::Cyc(operand()?),
        "CBR" => Packet::Cbr(operand()? as u8),
        "OVF" => Packet::Ovf,
        "TraceStop" => Packet::TraceStop,
        "VMCS" => Packet::Vmcs(operand()?),
        "MNT" => Packet::Mnt(operand()?),
        "PTW" => Packet::Ptw { value: operand()?, wide: field("size")? == 8, ip: flag("FUP") },
        "EXSTOP" => Packet::Exstop { ip: flag("FUP") },
        "MWAIT" => Packet::Mwait { hints: field("hints")? as u32, extensions: field("extensions")? as u32 },
        "PWRE" => {
            Packet::Pwre { hardware: flag("hardware"), state: c_state(1)?, sub_state: field("sub")? as u8 }
        }
        "PWRX" => {
            let wake = [("interrupt", 1), ("store", 4), ("hardware", 8)];
            let reason = wake.iter().filter(|(name, _)| flag(name)).map(|(_, bit)| bit).sum();
            Packet::Pwrx { last: c_state(2)?, deepest: c_state(4)?, reason }
        }
        "BBP" => Packet::Bbp { short_items: field("size")? == 4, group: field("type")? as u8 },
        "BIP" => Packet::Bip { id: field("id")? as u8, value: number(words.last()?) },
        "BEP" => Packet::Bep { ip: flag("FUP") },
        "CFE" => {
            let event = (0..32).map(ControlFlowEvent::from_bits).find(|e| e.to_string() == words[1])?;
            Packet::Cfe { ip: flag("FUP"), event, vector: field("vector")? as u8 }
        }
        "EVD" => {
            let data = (0..64).map(EventData::from_bits).find(|d| d.to_string() == words[1])?;
            Packet::Evd { data, value: number(words.last()?) }
        }
        "TRIG" => Packet::Trig {
            ip: flag("FUP"),
            multiple: flag("multiple"),
            triggers: operand()? as u8,
            instructions: field("instructions").map(|n| n as u16),
        },
        _ => return None,
    })
}

fn tnt(bits: &str) -> Tnt {
    let mut tnt = Tnt::default();
    bits.chars().for_each(|bit| assert!(tnt.push(bit == 'T')));
    tnt
}

/// What `dump --packets` prints, a case reads.
#[test]
fn packets_are_read_as_they_are_printed() {
    let code = Code::default();
    let mut bytes = vec![0; 16];
    for head in 0..=u16::MAX {
        bytes[..2].copy_from_slice(&head.to_le_bytes());
        for fill in [0, 0x7f, 0xe5] {
            bytes[2..].fill(fill);
            let Ok((printed, _)) = packet::decode(&bytes, packet::Context::Flow) else { continue };
            let line = printed.to_string();
            let words: Vec<&str> = line.split_whitespace().collect();
            let read = packet(&words, &code, &mut LastIp::default());
            assert_eq!(read.map(|p| p.to_string()), Some(line));
        }
    }
}
