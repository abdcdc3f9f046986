//! The verifier on events made by hand.

use model::{AsyncCause, AuxOffset, FunctionId, Gap, Site, Target, Tsc, TscClock};

use super::*;
use crate::truth::{Flags, Kind, Writer, save};

/// One tick is one ns.
const CLOCK: TscClock = TscClock { shift: 0, mult: 1, zero: 0 };
const TID: Tid = Tid(7);

type Line = (Kind, Flags, u64, u64, u64);

fn truth(lines: &[Line]) -> File {
    let mut writer = Writer::new();
    for &(kind, flags, tsc, from, to) in lines {
        writer.event(kind, flags, Tsc(tsc), Avma(from), Avma(to));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    save(file.path(), CLOCK, &[(TID, &writer)]).unwrap();
    File::load(file.path()).unwrap()
}

fn time(ns: u64) -> EventTime {
    EventTime { lo: Ns(ns - 2), point: Ns(ns), hi: Ns(ns + 2) }
}

fn site(ip: u64) -> Site {
    Site { ip: Avma(ip), function: FunctionId(ip as u32 >> 8), len: 2 }
}

fn target(ip: u64) -> Target {
    Target { ip: Avma(ip), function: FunctionId(ip as u32 >> 8), at_entry: false }
}

fn branch(ns: u64, transfer: Transfer) -> TraceEvent {
    TraceEvent::Branch(BranchEvent { time: time(ns), at: AuxOffset(ns), transfer })
}

fn went(ns: u64, kind: BranchKind, from: u64, to: u64) -> TraceEvent {
    branch(ns, Transfer::Branch { kind, from: site(from), to: target(to) })
}

fn start(ns: u64, to: u64, after_gap: bool) -> TraceEvent {
    branch(ns, Transfer::Start { to: target(to), after_gap })
}

fn end(ns: u64, kind: EndKind, from: u64, to: Option<u64>) -> TraceEvent {
    branch(ns, Transfer::End { kind, from: site(from), to: to.map(Avma) })
}

fn gap(from: u64, to: u64, cause: GapCause) -> TraceEvent {
    let (from, to) = (time(from), time(to));
    TraceEvent::Gap(Gap { from, to, bytes: 0, at: AuxOffset(0), cause })
}

fn verdict(lines: &[Line], events: &[TraceEvent]) -> Verdict {
    let truth = truth(lines);
    let mut verifier = EventVerifier::new(&truth, None, KernelText::There);
    for event in events {
        verifier.events(Pid(7), TID, SpaceId(0), std::slice::from_ref(event));
    }
    verifier.finish()
}

const LINES: &[Line] = &[
    (Kind::SwitchIn, Flags::NONE, 99, 0, 0),
    (Kind::Enter, Flags::NONE, 100, 0, 0x100),
    (Kind::Call, Flags::NONE, 110, 0x104, 0x200),
    (Kind::Overflow, Flags::NONE, 120, 0x104, 0),
    (Kind::Return, Flags::LOST, 125, 0x208, 0x109),
    (Kind::Resume, Flags::NONE, 130, 0, 0x10a),
    (Kind::Jump, Flags::FILTER_OUT, 140, 0x10c, 0x300),
    (Kind::FilterIn, Flags::NONE, 150, 0x308, 0x110),
    (Kind::Syscall, Flags::NONE, 160, 0x112, 0),
];

fn right() -> Vec<TraceEvent> {
    vec![
        start(100, 0x100, false),
        went(110, BranchKind::Call, 0x104, 0x200),
        went(111, BranchKind::ConditionalJump, 0x200, 0x208), // inside one function
        gap(119, 130, GapCause::Overflow),
        start(131, 0x10a, true),
        end(140, EndKind::Branch(BranchKind::Jump), 0x10c, Some(0x300)),
        start(150, 0x110, false),
        end(160, EndKind::Syscall, 0x112, None),
    ]
}

#[test]
fn what_is_the_same_agrees() {
    let verdict = verdict(LINES, &right());
    assert!(verdict.agrees() && verdict.times_agree(), "{verdict}");
    assert_eq!((verdict.matched(), verdict.gaps(), verdict.extra_jumps), (7, 1, 0));
}

#[test]
fn each_difference_is_seen() {
    let check = |what: &str, change: &dyn Fn(&mut Vec<TraceEvent>)| {
        let mut events = right();
        change(&mut events);
        let verdict = verdict(LINES, &events);
        assert!(!verdict.agrees(), "{what}: {verdict}");
    };
    check("missing at the end", &|e| e.truncate(7));
    check("missing", &|e| {
        e.remove(1);
    });
    check("missing gap", &|e| {
        e.remove(3);
    });
    check("one too many", &|e| e.push(start(170, 0x120, false)));
    check("gap too many", &|e| e.insert(1, gap(100, 100, GapCause::Overflow)));
    check("twice", &|e| e.insert(3, gap(119, 130, GapCause::Overflow)));
    check("wrong cause", &|e| e[3] = gap(119, 130, GapCause::Truncated));
    check("wrong kind", &|e| e[1] = went(110, BranchKind::IndirectCall, 0x104, 0x200));
    check("wrong source", &|e| e[1] = went(110, BranchKind::Call, 0x106, 0x200));
    check("wrong target", &|e| e[1] = went(110, BranchKind::Call, 0x104, 0x201));
    check("not said to follow a gap", &|e| e[4] = start(131, 0x10a, false));
    check("no target", &|e| e[5] = end(140, EndKind::Branch(BranchKind::Jump), 0x10c, None));
    check("other end", &|e| e[7] = end(160, EndKind::Async(AsyncCause::Unknown), 0x112, None));
    check("what was lost", &|e| e.insert(4, went(130, BranchKind::Return, 0x208, 0x109)));
}

#[test]
fn times_out_of_bounds_and_backwards_are_seen() {
    let late = |ns: u64, i: usize| {
        let mut events = right();
        if let TraceEvent::Branch(branch) = &mut events[i] {
            branch.time = time(ns);
        }
        verdict(LINES, &events)
    };
    let out = late(113, 1);
    assert!(out.agrees() && !out.times_agree());
    let thread = &out.threads[0];
    assert_eq!((thread.time_violations, thread.worst_violation_ns, thread.disordered), (1, 1, 1));
    assert_eq!(late(112, 1).threads[0].time_violations, 0);
    let mut early = right();
    early[3] = gap(123, 128, GapCause::Overflow); // begins after the loss does
    assert_eq!(verdict(LINES, &early).threads[0].time_violations, 1);
}

#[test]
fn a_loss_on_two_cpus_is_a_gap_for_each() {
    let lines = [
        (Kind::Truncated, Flags::NONE, 100, 0x100, 0),
        (Kind::Call, Flags::LOST, 150, 0x104, 0x200),
        (Kind::Enter, Flags::NONE, 200, 0, 0x210),
    ];
    let parts =
        [gap(100, 140, GapCause::Truncated), gap(145, 199, GapCause::Truncated), start(200, 0x210, true)];
    let verdict = verdict(&lines, &parts);
    assert!(verdict.agrees(), "{verdict}");
    assert_eq!((verdict.gaps(), verdict.threads[0].gap_parts), (1, 1));
}

#[test]
fn who_comes_to_a_cpu_whose_packets_are_lost_has_a_gap_without_an_event_in_it() {
    let lines = [
        (Kind::SwitchIn, Flags::LOST, 100, 0, 0),
        (Kind::SwitchOut, Flags::NONE, 140, 0, 0),
        (Kind::SwitchIn, Flags::NONE, 190, 0, 0),
        (Kind::Enter, Flags::NONE, 200, 0, 0x210),
    ];
    let both = verdict(&lines, &[gap(100, 140, GapCause::Truncated), start(200, 0x210, false)]);
    assert!(both.agrees() && both.times_agree(), "{both}");
    assert!(!verdict(&lines, &[start(200, 0x210, false)]).agrees());
}

#[test]
fn a_loss_on_the_cpu_to_which_a_thread_comes_last_of_all_is_no_gap() {
    let truth =
        truth(&[(Kind::SwitchIn, Flags::LOST, 100, 0, 0), (Kind::Call, Flags::LOST, 110, 0x104, 0x200)]);
    let agrees = |until: u64| {
        EventVerifier::new(&truth, None, KernelText::There).recorded_until(Ns(until)).finish().agrees()
    };
    assert_eq!([100, 101].map(agrees), [true, false]);
}

#[test]
fn a_loss_that_goes_on_when_the_thread_is_back_is_not_its_next_loss() {
    let lines = [
        (Kind::Truncated, Flags::NONE, 100, 0x100, 0),
        (Kind::SwitchOut, Flags::NONE, 120, 0, 0),
        (Kind::SwitchIn, Flags::LOST, 150, 0, 0),
        (Kind::SwitchOut, Flags::NONE, 170, 0, 0),
        (Kind::SwitchIn, Flags::NONE, 200, 0, 0),
        (Kind::Truncated, Flags::NONE, 220, 0x104, 0),
    ];
    let gaps = [(100, 120), (150, 160), (220, 230)].map(|(from, to)| gap(from, to, GapCause::Truncated));
    let verdict = verdict(&lines, &gaps);
    assert!(verdict.agrees() && verdict.times_agree(), "{verdict}");
    assert_eq!((verdict.gaps(), verdict.threads[0].gap_parts), (2, 1));
}

#[test]
fn a_jump_that_the_truth_leaves_out_may_stand_before_a_call_to_the_next_instruction() {
    let lines = [(Kind::Enter, Flags::NONE, 100, 0, 0x100), (Kind::Call, Flags::NONE, 120, 0x110, 0x115)];
    let events = [
        start(100, 0x100, false),
        went(110, BranchKind::ConditionalJump, 0x102, 0x108),
        went(120, BranchKind::Call, 0x110, 0x115),
    ];
    let verdict = verdict(&lines, &events);
    assert!(verdict.agrees(), "{verdict}");
    assert_eq!((verdict.matched(), verdict.extra_jumps), (2, 0));
}

#[test]
fn damage_is_a_gap_of_its_own_cause_in_each_stay_on_a_cpu() {
    let lines = [
        (Kind::Damaged, Flags::NONE, 100, 0x100, 0),
        (Kind::Call, Flags::LOST, 150, 0x104, 0x200),
        (Kind::Resume, Flags::NONE, 200, 0, 0x210),
    ];
    let damage = |from, to| gap(from, to, GapCause::DamagedPacket);
    let right = verdict(&lines, &[damage(99, 140), damage(145, 199), start(200, 0x210, true)]);
    assert!(right.agrees() && right.times_agree(), "{right}");
    assert_eq!((right.gaps(), right.threads[0].gap_parts), (1, 1));
    let wrong = verdict(&lines, &[gap(99, 199, GapCause::Truncated), start(200, 0x210, true)]);
    assert!(!wrong.agrees());
}
