//! One test for each rule of the flow.

use super::*;

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
