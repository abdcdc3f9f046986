//! A few packets and a little code through libipt, as text; and whatever bytes, without a crash or a hang.

use decoder::{Context, DecodeOptions, decode_with};
use model::{
    AuxBuffer, AuxOffset, AuxOwner, AuxPiece, Avma, CodeSource, EventSink, FunctionAt, FunctionId,
    FunctionKind, FunctionLookup, NoCode, Ns, ObjectId, Pid, PtConfig, Recording, Schedule, SpaceId, Svma,
    Tid, TraceEvent, Transfer, TscClock,
};
use packet::{LastIp, Packet, Tnt};
use proptest::prelude::*;

use crate::Libipt;

const BASE: u64 = 0x1000;

/// Code at [`BASE`], one function.
struct Code(Vec<u8>);

impl CodeSource for Code {
    fn space(&self, _: Pid, _: Ns) -> SpaceId {
        SpaceId(1)
    }

    fn code(&self, _: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
        let at = usize::try_from(ip.0.wrapping_sub(BASE)).unwrap_or(usize::MAX);
        self.0.get(at..).filter(|rest| !rest.is_empty()).ok_or(NoCode::Unmapped)
    }
}

impl FunctionLookup for Code {
    fn function_at(&self, _: SpaceId, ip: Avma) -> FunctionAt {
        FunctionAt { id: FunctionId(1), at_entry: ip.0 == BASE }
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

/// PSB+ of tracing code at an address, or of tracing nothing.
fn psb(ip: Option<u64>, out: &mut Vec<u8>, last_ip: &mut LastIp) {
    last_ip.reset();
    packet::encode(&Packet::Psb, out);
    packet::encode(&Packet::Tsc(1000 + out.len() as u64), out);
    packet::encode(&Packet::Cbr(10), out);
    packet::encode(&Packet::ModeExec { long: true, default_32: false, interrupts: true }, out);
    if let Some(ip) = ip {
        packet::encode(&Packet::Fup(last_ip.compress(ip)), out);
    }
    packet::encode(&Packet::PsbEnd, out);
}

fn tnt(bits: &str) -> Packet {
    let mut tnt = Tnt::default();
    bits.chars().for_each(|bit| assert!(tnt.push(bit == 'T')));
    Packet::Tnt(tnt)
}

#[derive(Default)]
struct Text(Vec<String>);

impl EventSink for Text {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        assert_eq!(tid, Tid(7));
        self.0.extend(events.iter().map(|event| {
            let time = event.time();
            assert!(time.lo <= time.point && time.point <= time.hi, "{event:?}");
            match event {
                TraceEvent::Gap(gap) => format!("gap {} {} bytes", gap.cause.name(), gap.bytes),
                TraceEvent::Branch(branch) => match branch.transfer {
                    Transfer::Branch { kind, from, to } => format!("{kind:?} {} -> {}", from.ip, to.ip),
                    Transfer::Start { to, after_gap: false } => format!("start {}", to.ip),
                    Transfer::Start { to, after_gap: true } => format!("resume {}", to.ip),
                    Transfer::End { kind, from, to } => format!("end {kind:?} {} -> {to:?}", from.ip),
                },
            }
        }));
    }
}

/// Decodes in segments that end at each PSB, or in one.
fn run(code: &Code, aux: &[u8], segment_bytes: u64) -> Vec<String> {
    let piece = AuxPiece { offset: AuxOffset(0), bytes: aux, file_offset: 0 };
    let buffer =
        AuxBuffer { index: 0, owner: AuxOwner::Thread(Tid(7)), pieces: vec![piece], records: vec![] };
    let pt = PtConfig {
        cyc: true,
        mtc_period: None,
        tsc_ctc_ratio: (2, 1),
        max_nonturbo_ratio: 10,
        has_ip_filter: true,
        ..PtConfig::default()
    };
    let recording = Recording {
        buffers: vec![buffer],
        pt,
        clock: Some(TscClock { shift: 0, mult: 1, zero: 0 }),
        kernel_symbols: String::new(),
        time_span: Some((Ns(0), Ns(1_000_000))),
        ..Recording::default()
    };
    let schedule = Schedule::default();
    let context = Context::new(&recording, &schedule, code, true);
    let mut text = Text::default();
    let options = DecodeOptions { segment_bytes, ..DecodeOptions::default() };
    decode_with(Box::new(Libipt::new().unwrap()), &context, &options, &|_| (), &mut text);
    text.0
}

/// call f; syscall; nop...; f: jz g; nop; g: ret
const PROGRAM: &[u8] = &[
    0xe8, 0x05, 0, 0, 0, // 0x1000 call 0x100a
    0x0f, 0x05, // 0x1005 syscall
    0x90, 0x90, 0x90, // 0x1007
    0x74, 0x01, // 0x100a jz 0x100d
    0x90, // 0x100c
    0xc3, // 0x100d ret
];

#[track_caller]
fn check(packets: impl Fn(&mut Vec<u8>, &mut LastIp), expect: &[&str]) {
    let mut aux = vec![];
    packets(&mut aux, &mut LastIp::default());
    for segment_bytes in [1, 1 << 20] {
        assert_eq!(run(&Code(PROGRAM.to_vec()), &aux, segment_bytes), expect, "cut at {segment_bytes}");
    }
}

#[test]
fn a_call_a_jump_and_a_compressed_return() {
    check(
        |out, last_ip| {
            psb(None, out, last_ip);
            packet::encode(&Packet::TipPge(last_ip.compress(BASE)), out);
            packet::encode(&tnt("TT"), out);
            packet::encode(&Packet::TipPgd(packet::IpPayload::NONE), out);
        },
        &[
            "start 0x1000",
            "Call 0x1000 -> 0x100a",
            "ConditionalJump 0x100a -> 0x100d",
            "Return 0x100d -> 0x1005",
            "end Syscall 0x1005 -> None",
        ],
    );
}

#[test]
fn what_ran_before_a_psb_is_seen_once() {
    check(
        |out, last_ip| {
            psb(Some(BASE), out, last_ip);
            packet::encode(&tnt("T"), out);
            psb(Some(0x100d), out, last_ip);
            packet::encode(&Packet::Tip(last_ip.compress(0x1005)), out);
            packet::encode(&Packet::TipPgd(packet::IpPayload::NONE), out);
        },
        &[
            "start 0x1000",
            "Call 0x1000 -> 0x100a",
            "ConditionalJump 0x100a -> 0x100d",
            "Return 0x100d -> 0x1005",
            "end Syscall 0x1005 -> None",
        ],
    );
}

#[test]
fn damage_is_a_gap_until_the_next_psb() {
    check(
        |out, last_ip| {
            psb(Some(BASE), out, last_ip);
            packet::encode(&tnt("T"), out);
            out.extend([0x02, 0xff, 0xff, 0xff]); // no packet
            psb(Some(0x100d), out, last_ip);
            packet::encode(&Packet::Tip(last_ip.compress(0x1005)), out);
            packet::encode(&Packet::TipPgd(packet::IpPayload::NONE), out);
        },
        &[
            "start 0x1000",
            "Call 0x1000 -> 0x100a",
            "gap damaged packet 4 bytes",
            "resume 0x100d",
            "Return 0x100d -> 0x1005",
            "end Syscall 0x1005 -> None",
        ],
    );
}

#[test]
fn an_endless_loop_ends() {
    let mut aux = vec![];
    psb(Some(BASE), &mut aux, &mut LastIp::default());
    packet::encode(&tnt("T"), &mut aux);
    assert_eq!(run(&Code(vec![0xeb, 0xfe]), &aux, 1), ["start 0x1000", "gap desync 1 bytes"]);
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let ip = BASE..BASE + 0x40;
    let with_ip = |packet: fn(packet::IpPayload) -> Packet| {
        ip.clone().prop_map(move |ip| encoded(&packet(LastIp::default().compress(ip))))
    };
    prop_oneof![
        prop::option::of(ip.clone()).prop_map(|ip| {
            let mut out = vec![];
            psb(ip, &mut out, &mut LastIp::default());
            out
        }),
        with_ip(Packet::Tip),
        with_ip(Packet::TipPge),
        with_ip(Packet::TipPgd),
        with_ip(Packet::Fup),
        prop::sample::select(vec!["T", "N", "TN", "NNTT", "TTTTTT"]).prop_map(|bits| encoded(&tnt(bits))),
        Just(encoded(&Packet::Ovf)),
        any::<u8>().prop_map(|ctc| encoded(&Packet::Mtc(ctc))),
        any::<u32>().prop_map(|cycles| encoded(&Packet::Cyc(cycles.into()))),
        prop::collection::vec(any::<u8>(), 0..12),
    ]
}

fn encoded(packet: &Packet) -> Vec<u8> {
    let mut out = vec![];
    packet::encode(packet, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    /// `run` holds each event's time inside its bounds.
    #[test]
    fn any_packets_over_any_code(
        pieces in prop::collection::vec(piece(), 0..40),
        code in prop::collection::vec(any::<u8>(), 1..64),
        jumps in prop::collection::vec((0usize..60, any::<i8>()), 0..16),
        segment_bytes in prop::sample::select(vec![1, 64, 1 << 20]),
    ) {
        let mut code = code;
        for (at, to) in jumps {
            if let Some(jump) = code.get_mut(at..at + 2) {
                jump.copy_from_slice(&[if at % 2 == 0 { 0x74 } else { 0xeb }, to as u8]);
            }
        }
        run(&Code(code), &pieces.concat(), segment_bytes);
    }
}
