//! Packets and a little code in, transfers and gaps out, as text.

mod properties;
mod rules;

use model::{
    AuxBuffer, AuxOffset, AuxOwner, AuxPiece, AuxRecord, Avma, CodeSource, Cpu, EventSink, FileOffset,
    FunctionAt, FunctionId, FunctionKind, FunctionLookup, Mmap, NoCode, Ns, ObjectId, Pid, PtConfig,
    Recording, Schedule, Sideband, SidebandRecord, SpaceId, Svma, Tid, TraceEvent, Transfer, TscClock,
};
use packet::{LastIp, Packet, Tnt};

use crate::{DecodeOptions, DecodeStats, decode};

/// Code at 0x1000 in functions of 0x100 bytes; all that is not given is `nop`.
struct Code(Vec<u8>);

const BASE: u64 = 0x1000;

impl Code {
    fn new(parts: &[(u64, &[u8])]) -> Self {
        let mut bytes = vec![0x90; 0x400];
        for (at, part) in parts {
            let at = (at - BASE) as usize;
            bytes[at..at + part.len()].copy_from_slice(part);
        }
        Self(bytes)
    }
}

impl CodeSource for Code {
    fn space(&self, _: Pid, _: Ns) -> SpaceId {
        SpaceId(1)
    }

    fn code(&self, _: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
        if ip.is_kernel() {
            return Err(NoCode::Kernel);
        }
        let at = usize::try_from(ip.0.wrapping_sub(BASE)).unwrap_or(usize::MAX);
        self.0.get(at..).filter(|rest| !rest.is_empty()).ok_or(NoCode::Unmapped)
    }
}

impl FunctionLookup for Code {
    fn function_at(&self, _: SpaceId, ip: Avma) -> FunctionAt {
        FunctionAt { id: FunctionId((ip.0 >> 8) as u32), at_entry: ip.0 & 0xff == 0 }
    }

    fn place(&self, _: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)> {
        Some((ObjectId(0), Svma(ip.0)))
    }

    fn kind(&self, _: FunctionId) -> FunctionKind {
        FunctionKind::Symbol
    }

    fn object(&self, _: FunctionId) -> Option<ObjectId> {
        Some(ObjectId(0))
    }
}

/// Packets with addresses in full.
#[derive(Clone, Copy, Debug)]
enum P {
    /// PSB+ of tracing code at the address; of tracing nothing.
    PsbAt(u64),
    PsbOff,
    Pge(u64),
    Pgd(Option<u64>),
    Tip(u64),
    Fup(u64),
    Tnt(&'static str),
    Raw(Packet),
    Bytes(&'static [u8]),
}

fn bytes_of(packets: &[P]) -> Vec<u8> {
    let (mut out, mut last_ip) = (vec![], LastIp::default());
    let mut tsc = 1000;
    for packet in packets {
        match *packet {
            P::PsbAt(_) | P::PsbOff => {
                tsc += 1000;
                last_ip.reset();
                packet::encode(&Packet::Psb, &mut out);
                packet::encode(&Packet::Tsc(tsc), &mut out);
                packet::encode(&Packet::Cbr(10), &mut out);
                packet::encode(&Packet::ModeTsx { in_transaction: false, aborted: false }, &mut out);
                if let P::PsbAt(ip) = *packet {
                    packet::encode(&Packet::Fup(last_ip.compress(ip)), &mut out);
                }
                packet::encode(&Packet::PsbEnd, &mut out);
            }
            P::Pge(ip) => packet::encode(&Packet::TipPge(last_ip.compress(ip)), &mut out),
            P::Pgd(Some(ip)) => packet::encode(&Packet::TipPgd(last_ip.compress(ip)), &mut out),
            P::Pgd(None) => packet::encode(&Packet::TipPgd(packet::IpPayload::NONE), &mut out),
            P::Tip(ip) => packet::encode(&Packet::Tip(last_ip.compress(ip)), &mut out),
            P::Fup(ip) => packet::encode(&Packet::Fup(last_ip.compress(ip)), &mut out),
            P::Tnt(bits) => {
                let mut tnt = Tnt::default();
                bits.chars().for_each(|bit| assert!(tnt.push(bit == 'T')));
                packet::encode(&Packet::Tnt(tnt), &mut out);
            }
            P::Raw(raw) => {
                if raw == Packet::Ovf {
                    last_ip.reset();
                }
                packet::encode(&raw, &mut out);
            }
            P::Bytes(raw) => out.extend_from_slice(raw),
        }
    }
    out
}

#[derive(Default)]
struct Text(Vec<String>);

impl EventSink for Text {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        assert_eq!(tid, Tid(7));
        self.0.extend(events.iter().map(|event| match event {
            TraceEvent::Gap(gap) => format!("gap {} {} bytes", gap.cause.name(), gap.bytes),
            TraceEvent::Branch(branch) => match branch.transfer {
                Transfer::Branch { kind, from, to } => format!("{kind:?} {} -> {}", from.ip, to.ip),
                Transfer::Start { to, after_gap: false } => format!("start {}", to.ip),
                Transfer::Start { to, after_gap: true } => format!("resume {}", to.ip),
                Transfer::End { kind, from, to } => {
                    let to = to.map_or(String::new(), |to| format!(" -> {to}"));
                    format!("end {kind:?} {}{to}", from.ip)
                }
            },
        }));
    }
}

fn run(
    code: &Code,
    aux: &[u8],
    records: Vec<AuxRecord>,
    segment_bytes: u64,
    sink: &mut dyn EventSink,
) -> DecodeStats {
    let piece = AuxPiece { offset: AuxOffset(0), bytes: aux, file_offset: 0 };
    let owner = AuxOwner::Thread(Tid(7));
    let buffer = AuxBuffer { index: 0, owner, pieces: vec![piece], records };
    run_buffer(code, buffer, &Schedule::default(), segment_bytes, sink)
}

fn run_buffer(
    code: &Code,
    buffer: AuxBuffer<'_>,
    schedule: &Schedule,
    segment_bytes: u64,
    sink: &mut dyn EventSink,
) -> DecodeStats {
    let recording = Recording {
        buffers: vec![buffer],
        sideband: vec![],
        pt: PtConfig {
            cyc: true,
            cyc_threshold: 0,
            mtc_period: None,
            tsc: true,
            branch: true,
            return_compression: true,
            kernel: false,
            user: true,
            tsc_ctc_ratio: (2, 1),
            max_nonturbo_ratio: 10,
            has_ip_filter: true,
            snapshot: false,
        },
        clock: Some(TscClock { shift: 0, mult: 1, zero: 0 }),
        ip_filter: String::new(),
        cpu_model: None,
        command_line: vec![],
        first_pid: None,
        time_span: Some((Ns(0), Ns(1_000_000))),
        damage: None,
    };
    let options = DecodeOptions { segment_bytes, ..DecodeOptions::default() };
    decode(&recording, schedule, code, code, &options, &|_| (), sink)
}

/// Decodes `packets` in one segment, and in as many as there are PSBs: both must give `expect`.
#[track_caller]
fn check_truncated(code: &Code, packets: &[P], truncated_at: Option<u64>, expect: &[&str]) {
    let aux = bytes_of(packets);
    let record = |size| AuxRecord { offset: AuxOffset(0), size, flags: AuxRecord::TRUNCATED, time: None };
    for segment_bytes in [1, 1 << 20] {
        let mut text = Text::default();
        run(code, &aux, truncated_at.map(record).into_iter().collect(), segment_bytes, &mut text);
        assert_eq!(text.0, expect, "cut at {segment_bytes}");
    }
}

#[track_caller]
fn check(code: &Code, packets: &[P], expect: &[&str]) {
    check_truncated(code, packets, None, expect);
}

/// 1000: call 1100; jz 1010; syscall · 1010: jmp *rax · 1100: ret · 1200: call *rax; ret
fn program() -> Code {
    Code::new(&[
        (0x1000, &[0xe8, 0xfb, 0x00, 0x00, 0x00, 0x74, 0x09, 0x0f, 0x05]),
        (0x1010, &[0xff, 0xe0]),
        (0x1100, &[0xc3]),
        (0x1200, &[0xff, 0xd0, 0xc3]),
    ])
}
