//! Packets and a little code in, transfers and gaps out, as text.

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

#[test]
fn calls_compressed_returns_and_jumps() {
    let expect = [
        "start 0x1000",
        "Call 0x1000 -> 0x1100",
        "Return 0x1100 -> 0x1005",
        "IndirectJump 0x1010 -> 0x1200",
        "IndirectCall 0x1200 -> 0x1100",
        "Return 0x1100 -> 0x1202",
        "Return 0x1202 -> 0x1007",
        "end Syscall 0x1007",
    ];
    let packets = [
        P::PsbOff,
        P::Pge(0x1000),
        P::Tnt("TT"),
        P::Tip(0x1200),
        P::Tip(0x1100),
        P::Tnt("T"),
        P::Tip(0x1007),
        P::Pgd(None),
    ];
    check(&program(), &packets, &expect);
    // Deferred TIPs: the bits behind the indirect branches come before their TIPs.
    let packets = [
        P::PsbOff,
        P::Pge(0x1000),
        P::Tnt("TTT"),
        P::Tip(0x1200),
        P::Tip(0x1100),
        P::Tip(0x1007),
        P::Pgd(None),
    ];
    check(&program(), &packets, &expect);
}

#[test]
fn the_return_stack_survives_pgd_but_not_psb() {
    let code = Code::new(&[
        (0x1000, &[0xe8, 0xfb, 0x00, 0x00, 0x00, 0x0f, 0x05]), // call 1100; syscall
        (0x1100, &[0x0f, 0x05, 0xc3]),                         // syscall; ret
    ]);
    let call = ["start 0x1000", "Call 0x1000 -> 0x1100", "end Syscall 0x1100", "start 0x1102"];
    let packets = [P::PsbOff, P::Pge(0x1000), P::Pgd(None), P::Pge(0x1102), P::Tnt("T"), P::Pgd(None)];
    check(&code, &packets, &[&call[..], &["Return 0x1102 -> 0x1005", "end Syscall 0x1005"]].concat());
    let packets = [
        P::PsbOff,
        P::Pge(0x1000),
        P::Pgd(None),
        P::Pge(0x1102),
        P::PsbAt(0x1102),
        P::Tnt("T"),
        P::Pgd(None),
    ];
    check(&code, &packets, &[&call[..], &["gap desync 1 bytes"]].concat());
}

#[test]
fn a_call_to_the_next_instruction_is_not_pushed() {
    // call +0; jz 1000 · the return goes to the caller of 1000
    let code = Code::new(&[
        (0x1000, &[0xe8, 0, 0, 0, 0, 0xc3]),
        (0x1100, &[0xe8, 0xfb, 0xfe, 0xff, 0xff, 0x0f, 0x05]),
    ]);
    check(
        &code,
        &[P::PsbOff, P::Pge(0x1100), P::Tnt("T"), P::Pgd(None)],
        &[
            "start 0x1100",
            "Call 0x1100 -> 0x1000",
            "Call 0x1000 -> 0x1005",
            "Return 0x1005 -> 0x1105",
            "end Syscall 0x1105",
        ],
    );
}

#[test]
fn what_ran_before_a_psb_is_seen_once() {
    let packets = [P::PsbOff, P::Pge(0x1000), P::PsbAt(0x1100), P::Tip(0x1005), P::Tnt("N"), P::Pgd(None)];
    let expect = ["start 0x1000", "Call 0x1000 -> 0x1100", "Return 0x1100 -> 0x1005", "end Syscall 0x1007"];
    check(&program(), &packets, &expect);
}

#[test]
fn an_interrupt_ends_where_its_fup_says() {
    let packets =
        [P::PsbOff, P::Pge(0x1000), P::Fup(0x1100), P::Pgd(None), P::Pge(0x1100), P::Tnt("TN"), P::Pgd(None)];
    let expect = [
        "start 0x1000",
        "Call 0x1000 -> 0x1100",
        "end Async 0x1100",
        "start 0x1100",
        "Return 0x1100 -> 0x1005",
        "end Syscall 0x1007",
    ];
    check(&program(), &packets, &expect);
}

#[test]
fn a_fup_bound_to_an_event_packet_interrupts_nothing() {
    for event in [
        Packet::Ptw { value: 1, wide: false, ip: true },
        Packet::ModeTsx { in_transaction: true, aborted: false },
        Packet::Exstop { ip: true },
    ] {
        let packets = [
            P::PsbOff,
            P::Pge(0x1000),
            P::Tnt("T"),
            P::Raw(event),
            P::Fup(0x1005),
            P::Tnt("N"),
            P::Pgd(None),
        ];
        let expect =
            ["start 0x1000", "Call 0x1000 -> 0x1100", "Return 0x1100 -> 0x1005", "end Syscall 0x1007"];
        check(&program(), &packets, &expect);
    }
}

#[test]
fn leaving_the_ip_filter() {
    let start = ["start 0x1000", "Call 0x1000 -> 0x1100", "Return 0x1100 -> 0x1005"];
    let leaves = |end: &[P], expect: &str| {
        let packets = [&[P::PsbOff, P::Pge(0x1000), P::Tnt("T")][..], end].concat();
        check(&program(), &packets, &[&start[..], &[expect]].concat());
    };
    // A conditional jump out of the range has no TNT bit, and its target may be hidden.
    leaves(&[P::Pgd(Some(0x1010))], "end Branch(ConditionalJump) 0x1005 -> 0x1010");
    leaves(&[P::Pgd(Some(0x1007))], "end Branch(ConditionalJump) 0x1005 -> 0x1007");
    leaves(&[P::Pgd(None)], "end Branch(ConditionalJump) 0x1005 -> 0x1010");
    leaves(&[P::Tnt("T"), P::Pgd(Some(0x5000))], "end Branch(IndirectJump) 0x1010 -> 0x5000");
    // A direct call, and running on past the end.
    check(
        &program(),
        &[P::PsbOff, P::Pge(0x1000), P::Pgd(Some(0x1100))],
        &["start 0x1000", "end Branch(Call) 0x1000 -> 0x1100"],
    );
    check(
        &program(),
        &[P::PsbOff, P::Pge(0x1012), P::Pgd(Some(0x1020))],
        &["start 0x1012", "end FallThrough 0x101f -> 0x1020"],
    );
}

#[test]
fn overflow_resumes_at_fup_at_pge_and_at_psb() {
    let before = ["start 0x1000", "Call 0x1000 -> 0x1100", "Return 0x1100 -> 0x1005", "gap overflow 0 bytes"];
    let lost = [P::PsbOff, P::Pge(0x1000), P::Tnt("T"), P::Raw(Packet::Ovf)];
    let run = |rest: &[P], expect: &[&str]| {
        check(&program(), &[&lost, rest].concat(), &[&before[..], expect].concat())
    };
    run(
        &[P::Fup(0x1010), P::Tip(0x1200), P::Pgd(Some(0x9))],
        &["resume 0x1010", "IndirectJump 0x1010 -> 0x1200", "end Branch(IndirectCall) 0x1200 -> 0x9"],
    );
    run(&[P::Pge(0x1007), P::Pgd(None)], &["resume 0x1007", "end Syscall 0x1007"]);
    run(&[P::PsbAt(0x1007), P::Pgd(None)], &["resume 0x1007", "end Syscall 0x1007"]);
    run(&[P::PsbOff, P::Pge(0x1007), P::Pgd(None)], &["start 0x1007", "end Syscall 0x1007"]);
}

#[test]
fn overflow_inside_psb_plus_ends_it() {
    let psb =
        [P::Raw(Packet::Psb), P::Raw(Packet::Tsc(5000)), P::Raw(Packet::Ovf), P::Fup(0x1007), P::Pgd(None)];
    let packets = [&[P::PsbOff, P::Pge(0x1000), P::Tnt("T")][..], &psb].concat();
    let expect = [
        "start 0x1000",
        "Call 0x1000 -> 0x1100",
        "Return 0x1100 -> 0x1005",
        "gap overflow 0 bytes",
        "resume 0x1007",
        "end Syscall 0x1007",
    ];
    check(&program(), &packets, &expect);
}

#[test]
fn damage_is_skipped_to_the_next_psb() {
    let packets = [
        P::PsbOff,
        P::Pge(0x1000),
        P::Bytes(&[0x05, 0x05, 0x05]),
        P::Tnt("TTTTTT"),
        P::PsbAt(0x1005),
        P::Tnt("N"),
        P::Pgd(None),
    ];
    check(
        &program(),
        &packets,
        &["start 0x1000", "gap damaged packet 4 bytes", "resume 0x1005", "end Syscall 0x1007"],
    );
}

#[test]
fn bytes_before_the_first_psb_are_a_gap() {
    let packets = [P::Tnt("TTT"), P::Tnt("N"), P::PsbAt(0x1005), P::Tnt("N"), P::Pgd(None)];
    check(&program(), &packets, &["gap no sync 2 bytes", "resume 0x1005", "end Syscall 0x1007"]);
}

#[test]
fn packets_that_contradict_the_code_are_a_gap_until_an_address_comes() {
    // A TIP where a conditional jump stands; the next TIP says where execution is.
    let packets = [
        P::PsbOff,
        P::Pge(0x1005),
        P::Tip(0x9000),
        P::Tnt("TT"),
        P::Tip(0x1200),
        P::Tip(0x1100),
        P::Tip(0x1007),
        P::Pgd(None),
    ];
    let expect = [
        "start 0x1005",
        "gap desync 4 bytes",
        "resume 0x1200",
        "IndirectCall 0x1200 -> 0x1100",
        "Return 0x1100 -> 0x1007",
        "end Syscall 0x1007",
    ];
    check(&program(), &packets, &expect);
}

#[test]
fn a_full_buffer_is_a_gap_until_tracing_is_enabled_again() {
    let first = [P::PsbOff, P::Pge(0x1000), P::Fup(0x1000), P::Pgd(None)];
    let end = bytes_of(&first).len() as u64;
    let again = [P::Raw(Packet::Tsc(9000)), P::Pge(0x1007), P::Pgd(None)];
    let expect =
        ["start 0x1000", "end Async 0x1000", "gap truncated 0 bytes", "resume 0x1007", "end Syscall 0x1007"];
    check_truncated(&program(), &[&first[..], &again].concat(), Some(end), &expect);
}

#[test]
fn a_buffer_cut_inside_a_packet_is_a_gap_until_the_next_psb() {
    let first = [P::PsbOff, P::Pge(0x1000), P::Tnt("T"), P::Bytes(&[0x2d, 0x00])];
    let end = bytes_of(&first).len() as u64;
    let again = [P::Tnt("TT"), P::PsbAt(0x1007), P::Pgd(None)];
    let expect = [
        "start 0x1000",
        "Call 0x1000 -> 0x1100",
        "Return 0x1100 -> 0x1005",
        "gap truncated 3 bytes",
        "resume 0x1007",
        "end Syscall 0x1007",
    ];
    check_truncated(&program(), &[&first[..], &again].concat(), Some(end), &expect);
}

#[test]
fn kernel_code_without_text_is_neither_decoded_nor_lost() {
    let kernel = 0xffff_ffff_8100_0000;
    let packets = [
        P::PsbOff,
        P::Pge(0x1007),
        P::Tip(kernel),
        P::Tnt("TNT"),
        P::Tip(kernel + 64),
        P::Tip(0x1009),
        P::Fup(0x1010),
        P::Tip(kernel),
        P::Tip(0x1010),
        P::Pgd(Some(0x5000)),
    ];
    let expect = [
        "start 0x1007",
        "end Syscall 0x1007 -> 0xffffffff81000000",
        "start 0x1009",
        "end Async 0x1010 -> 0xffffffff81000000",
        "start 0x1010",
        "end Branch(IndirectJump) 0x1010 -> 0x5000",
    ];
    check(&program(), &packets, &expect);
}

#[test]
fn mode_tsx_has_no_fup_where_tracing_is_off() {
    let tsx = P::Raw(Packet::ModeTsx { in_transaction: false, aborted: false });
    let packets = [P::PsbOff, tsx, P::Pge(0x1000), P::Fup(0x1100), P::Pgd(None)];
    check(&program(), &packets, &["start 0x1000", "Call 0x1000 -> 0x1100", "end Async 0x1100"]);
}

#[test]
fn code_of_32_bits_is_not_decoded_as_64() {
    let mode = |long| P::Raw(Packet::ModeExec { long, default_32: !long, interrupts: false });
    let packets = [
        P::PsbOff,
        mode(false),
        P::Pge(0x1000),
        P::Tnt("TTNT"),
        P::Pgd(None),
        mode(true),
        P::Pge(0x1007),
        P::Pgd(None),
    ];
    check(&program(), &packets, &["gap unmapped code 4 bytes", "start 0x1007", "end Syscall 0x1007"]);
}

#[test]
fn a_hole_in_the_stream_is_a_gap_until_the_next_psb() {
    let first = bytes_of(&[P::PsbOff, P::Pge(0x1000), P::Tnt("T")]);
    let second = bytes_of(&[P::Tnt("TT"), P::PsbAt(0x1007), P::Pgd(None)]);
    for segment_bytes in [1, 1 << 20] {
        let piece = |offset, bytes| AuxPiece { offset: AuxOffset(offset), bytes, file_offset: 0 };
        let pieces = vec![piece(0, &first[..]), piece(first.len() as u64 + 100, &second[..])];
        let buffer = AuxBuffer { index: 0, owner: AuxOwner::Thread(Tid(7)), pieces, records: vec![] };
        let mut text = Text::default();
        run_buffer(&program(), buffer, &Schedule::default(), segment_bytes, &mut text);
        let expect = [
            "start 0x1000",
            "Call 0x1000 -> 0x1100",
            "Return 0x1100 -> 0x1005",
            "gap damaged packet 1 bytes",
            "resume 0x1007",
            "end Syscall 0x1007",
        ];
        assert_eq!(text.0, expect, "cut at {segment_bytes}");
    }
}

#[test]
fn pieces_that_contradict_each_other_do_not_hang() {
    // As in snapshots: the second piece has other bytes for offsets of the first.
    let first = bytes_of(&[P::PsbOff, P::Pge(0x1000), P::Tnt("T"), P::Bytes(&[0; 200])]);
    let second = bytes_of(&[P::Bytes(&[0; 20]), P::PsbAt(0x1007), P::Pgd(None)]);
    for at in 0..first.len() as u64 {
        let piece = |offset, bytes| AuxPiece { offset: AuxOffset(offset), bytes, file_offset: 0 };
        let pieces = vec![piece(0, &first[..]), piece(at, &second[..])];
        let buffer = AuxBuffer { index: 0, owner: AuxOwner::Thread(Tid(7)), pieces, records: vec![] };
        run_buffer(&program(), buffer, &Schedule::default(), 1, &mut Text::default());
    }
}

#[derive(Default)]
struct GapsOf(Vec<(i32, u64, u64)>);

impl EventSink for GapsOf {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        self.0.extend(events.iter().filter_map(|event| match event {
            TraceEvent::Gap(gap) => Some((tid.0, gap.from.point.0, gap.to.point.0)),
            TraceEvent::Branch(_) => None,
        }));
    }
}

fn gaps_on_cpu(packets: &[P], segment_bytes: u64) -> Vec<(i32, u64, u64)> {
    let record = |time, tid, body| SidebandRecord {
        time: Some(Ns(time)),
        cpu: Some(Cpu(0)),
        pid: Some(Pid(7)),
        tid: Some(Tid(tid)),
        file_offset: 0,
        body,
    };
    let switch = |time, tid, out| record(time, tid, Sideband::Switch { out, preempted: false });
    let mmap = Mmap {
        pid: Pid(7),
        start: Avma(BASE),
        len: 0x400,
        file_offset: FileOffset(0),
        path: String::new(),
        build_id: None,
        executable: true,
        kernel: false,
    };
    let schedule = Schedule::new(&[
        record(0, 7, Sideband::Mmap(mmap)),
        switch(2500, 7, true),
        switch(2600, 8, false),
        switch(9000, 8, true),
        switch(9100, 9, false),
    ]);
    let aux = bytes_of(packets);
    let pieces = vec![AuxPiece { offset: AuxOffset(0), bytes: &aux, file_offset: 0 }];
    let buffer = AuxBuffer { index: 0, owner: AuxOwner::Cpu(Cpu(0)), pieces, records: vec![] };
    let mut gaps = GapsOf::default();
    run_buffer(&program(), buffer, &schedule, segment_bytes, &mut gaps);
    gaps.0
}

#[test]
fn a_loss_until_the_end_is_one_for_every_thread_that_came_after_it() {
    let packets = [P::PsbOff, P::Pge(0x1005), P::Bytes(&[0x05])];
    let gaps: Vec<_> = gaps_on_cpu(&packets, 1 << 20).iter().map(|(tid, _, to)| (*tid, *to)).collect();
    assert_eq!(gaps, [(7, 2500), (8, 9000), (9, 1_000_000)]);
}

#[test]
fn overflow_in_a_later_psb_plus_is_a_gap_of_the_thread_that_runs_then() {
    let mut packets = vec![P::PsbOff, P::PsbOff, P::Raw(Packet::Psb), P::Raw(Packet::Tsc(5000))];
    packets.extend([P::Raw(Packet::Ovf), P::Fup(0x1007), P::Pgd(None)]);
    for segment_bytes in [1, 1 << 20] {
        let of: Vec<_> = gaps_on_cpu(&packets, segment_bytes).iter().map(|gap| gap.0).collect();
        assert!(!of.contains(&9), "{of:?}");
        if segment_bytes == 1 {
            assert_eq!(of, [8]);
        }
    }
}

#[test]
fn an_endless_loop_of_calls_gives_none() {
    let code = Code::new(&[(0x1000, &[0xe8, 0xfb, 0xff, 0xff, 0xff])]);
    check(&code, &[P::PsbOff, P::Pge(0x1000), P::Tnt("T")], &["start 0x1000", "gap desync 1 bytes"]);
}

#[test]
fn an_endless_loop_ends() {
    let code = Code::new(&[(0x1000, &[0xeb, 0xfe])]);
    check(&code, &[P::PsbOff, P::Pge(0x1000), P::Tnt("T")], &["start 0x1000", "gap desync 1 bytes"]);
}

mod properties {
    use super::*;
    use model::EventTime;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Ordered(EventTime);

    impl EventSink for Ordered {
        fn events(&mut self, _: Pid, _: Tid, _: SpaceId, events: &[TraceEvent]) {
            for event in events {
                let time = event.time();
                assert!(time.lo <= time.point && time.point <= time.hi, "{event:?}");
                assert!(self.0.point <= time.point, "{event:?} is before {:?}", self.0);
                self.0 = time;
            }
        }
    }

    fn packet() -> impl Strategy<Value = P> {
        let ip = BASE..BASE + 0x400;
        prop_oneof![
            ip.clone().prop_map(P::PsbAt),
            Just(P::PsbOff),
            ip.clone().prop_map(P::Pge),
            prop::option::of(ip.clone()).prop_map(P::Pgd),
            ip.clone().prop_map(P::Tip),
            ip.prop_map(P::Fup),
            prop::sample::select(vec!["T", "N", "TN", "NNTT", "TTTTTT", "NTNTNTNTNTNT"]).prop_map(P::Tnt),
            (0..5000u64).prop_map(|n| P::Raw(Packet::Cyc(n))),
            (0..1u64 << 56).prop_map(|n| P::Raw(Packet::Tsc(n))),
            any::<u8>().prop_map(|n| P::Raw(Packet::Mtc(n))),
            any::<u8>().prop_map(|n| P::Raw(Packet::Cbr(n))),
            Just(P::Raw(Packet::Ovf)),
            Just(P::Raw(Packet::Ptw { value: 3, wide: true, ip: true })),
            Just(P::Bytes(&[0xd9, 0x05])),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_packets_over_any_code(
            code in prop::collection::vec(any::<u8>(), 0x400),
            packets in prop::collection::vec(packet(), 0..200),
            truncated in prop::option::of(0..2000u64),
        ) {
            let aux = bytes_of(&packets);
            let record = |size| AuxRecord { offset: AuxOffset(0), size, flags: AuxRecord::TRUNCATED, time: None };
            let records: Vec<_> = truncated.map(record).into_iter().collect();
            run(&Code(code), &aux, records, 100, &mut Ordered::default());
        }

        #[test]
        fn any_bytes(aux in prop::collection::vec(any::<u8>(), 0..2000)) {
            run(&program(), &[&packet::PSB[..], &aux].concat(), vec![], 100, &mut Ordered::default());
        }
    }
}
