//! Calls of `f`, and of `g` that it calls, in windows of one slice and of several.

use model::{
    Avma, CallProbes, CodeSource, Cpu, FunctionAt, FunctionKind, FunctionLookup, NoCode, ObjectId,
    OffCpuSplit, Pid, Svma,
};

use super::threads::LOSSES_MAX;
use super::*;
use crate::check::check;
use crate::off_cpu_causes::Reason;
use crate::report::FunctionReport;
use crate::row_sink::PartOfRow;

const MAIN: FunctionId = FunctionId(1);
const F: FunctionId = FunctionId(2);
const G: FunctionId = FunctionId(3);
const SLOT: u64 = 0x1000;

/// Functions in slots of 0x1000 bytes; each calls the next one at +10.
struct Program(Vec<u8>);

impl Program {
    fn new() -> Self {
        let mut code = vec![0x90; 4 * SLOT as usize];
        for slot in 1..3_u64 {
            let (at, to) = (slot * SLOT + 0x10, (slot + 1) * SLOT);
            let call = [&[0xe8][..], &((to - at - 5) as u32).to_le_bytes()].concat();
            code[at as usize..at as usize + 5].copy_from_slice(&call);
        }
        Self(code)
    }
}

impl CodeSource for Program {
    fn space(&self, _: Pid, _: Ns) -> SpaceId {
        SpaceId(0)
    }

    fn code(&self, _: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
        self.0.get(ip.0 as usize..).filter(|code| !code.is_empty()).ok_or(NoCode::Unmapped)
    }
}

impl FunctionLookup for Program {
    fn function_at(&self, _: SpaceId, ip: Avma) -> FunctionAt {
        FunctionAt { id: FunctionId((ip.0 / SLOT) as u32), at_entry: ip.0.is_multiple_of(SLOT) }
    }

    fn place(&self, _: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)> {
        Some((ObjectId(1), Svma(ip.0)))
    }

    fn kind(&self, _: FunctionId) -> FunctionKind {
        FunctionKind::Symbol
    }

    fn object(&self, _: FunctionId) -> Option<ObjectId> {
        Some(ObjectId(1))
    }
}

struct NoNames;

impl StackNames for NoNames {
    fn kernel(&self, _: Avma) -> Option<&str> {
        None
    }

    fn user(&self, _: Pid, _: Ns, _: Avma) -> FunctionId {
        FunctionId::UNKNOWN
    }
}

const fn time(least_ns: u64, most_ns: u64, rare_ns: u64) -> ProbeTime {
    ProbeTime { least_ns, most_ns, rare_ns }
}

/// A call's own probes add 10 to 14 ns to it and 20 to 30 to calls around it; any one probe 5 to 20.
fn cost() -> ProbeCost {
    let returned = CallProbes { inside: time(10, 14, 20), whole: time(20, 30, 50) };
    ProbeCost { returned, jumped: returned, hit: time(5, 20, 40) }
}

/// A call of f from main, or of g from f.
fn call(number: u64, parent: Option<u64>, (start, end): (u64, u64), probes: u64) -> ProbedCall {
    let caller = if parent.is_some() { F } else { MAIN };
    ProbedCall {
        function: usize::from(parent.is_some()),
        pid: Pid(7),
        tid: Tid(7),
        cpu: Cpu(0),
        start: Ns(start),
        end: Ns(end),
        off_cpu: OffCpuSplit::default(),
        return_address: Some(Avma(u64::from(caller.0) * SLOT + 0x15)),
        entry: Avma(u64::from(caller.0 + 1) * SLOT),
        number,
        parent,
        probes,
        depth: 0,
        end_kind: ProbedEnd::Return,
    }
}

enum Seen {
    Begins(u64, bool),
    Ends(u64),
    Call(ProbedCall),
    /// Both functions cost this from now on.
    Costs(ProbeCost),
    OffCpu(OffCpuInterval),
    /// The figures since the last interval are asked for.
    Interval,
}

fn report(seen: &[Seen]) -> FunctionReport {
    let request = Request { functions: vec![F], rows: true, row_children: true, ..Request::default() };
    report_in_intervals(seen, &request, &mut Kept::default()).0
}

/// The report, and the figures of each interval.
fn report_in_intervals(
    seen: &[Seen],
    request: &Request,
    rows: &mut Kept,
) -> (FunctionReport, Vec<FunctionReport>) {
    let program = Program::new();
    let around = Surroundings { code: &program, functions: &program, ..crate::nowhere::surroundings() };
    let functions = vec![(F, cost()), (G, cost())];
    let analysis = ProbedAnalysis::new(request, functions, &[Tid(7)], around, &NoNames);
    let mut analysis = analysis.keeping_parts();
    let mut intervals = Vec::new();
    for seen in seen {
        match seen {
            Seen::Begins(start, children) => analysis.slice_begins(Ns(*start), *children),
            Seen::Ends(end) => analysis.slice_ends(Ns(*end)),
            Seen::Call(call) => analysis.call_giving(call, Some(rows)),
            Seen::Costs(cost) => analysis.costs(&[*cost; 2]),
            Seen::OffCpu(interval) => analysis.off_cpu(interval),
            Seen::Interval => intervals.extend(analysis.take_interval((Ns(0), Ns(10_000)))),
        }
    }
    let (report, kept) = analysis.finish_with_parts((Ns(0), Ns(10_000)), Limits::default());
    if request.rows {
        assert_eq!(check(&report), []);
    }
    let has_any = |parts: &RowParts| !(parts.children.is_empty() && parts.waits.is_empty());
    let given = rows.0.iter().filter(|(.., parts)| has_any(parts)).map(|(id, _, parts)| (*id, parts));
    let kept = kept.of_calls.iter().map(|((id, _), parts)| (*id, parts));
    assert_eq!(kept.collect::<BTreeMap<_, _>>(), given.collect::<BTreeMap<_, _>>());
    (report.functions.into_iter().next().unwrap(), intervals)
}

/// Keeps rows, and their parts.
#[derive(Default)]
struct Kept(Vec<(CallId, Option<Reason>, RowParts)>);

impl RowSink for Kept {
    fn row(&mut self, _: usize, row: &CallRow, waited_for: Option<&Reason>) {
        self.0.push((row.id, waited_for.cloned(), RowParts { children: vec![], waits: vec![] }));
    }

    fn wants_parts(&self) -> bool {
        true
    }

    fn parts(&mut self, row: &CallRow, parts: &RowParts) {
        let last = self.0.last_mut().unwrap();
        assert_eq!(last.0, row.id);
        last.2 = parts.clone();
    }
}

fn p50(report: &FunctionReport) -> [u64; 3] {
    let spread = report.figures.latency.spread.unwrap();
    [report.figures.error.low.p50_ns.unwrap(), spread.p50_ns, report.figures.error.high.p50_ns.unwrap()]
}

fn children(report: &FunctionReport) -> Vec<(&'static str, u64, u64)> {
    report.figures.children.iter().map(|row| (row.kind.name(), row.total.count, row.total.sum_ns)).collect()
}

#[test]
fn a_call_costs_what_was_measured_last() {
    let dearer = CallProbes { inside: time(30, 34, 40), whole: time(60, 70, 90) };
    let dearer = ProbeCost { returned: dearer, jumped: dearer, hit: time(15, 60, 120) };
    let calls = |number, start| Seen::Call(call(number, None, (start, start + 150), 1));
    let report = report(&[calls(0, 100), Seen::Costs(cost().or(dearer)), calls(1, 1_000)]);
    let latency = |row: &CallRow| (row.latency_ns, row.error_ns);
    let rows: Vec<(u64, u64)> = report.rows.iter().map(latency).collect();
    assert_eq!(rows, [(138, 8), (128, 18)]);
}

#[test]
fn what_a_calls_own_probes_add_is_subtracted_and_its_range_is_the_error() {
    let report = report(&[Seen::Call(call(0, None, (100, 212), 1))]);
    assert_eq!(p50(&report), [98, 100, 102]);
    assert_eq!(
        (report.figures.error.sum_ns, report.figures.error.max_ns),
        (2, 8),
        "one of 100 takes 20 instead of 14"
    );
    assert_eq!(report.figures.error.low.p99_ns, Some(92));
    assert_eq!(report.figures.error.of(100, |q| q.p50_ns), 2);
    assert_eq!((report.rows[0].latency_ns, report.rows[0].error_ns), (100, 8));
    assert_eq!(children(&report), [("self", 1, 100)]);
}

#[test]
fn a_call_shorter_than_its_probes_is_below_what_they_leave() {
    let report = report(&[Seen::Call(call(0, None, (100, 113), 1))]);
    assert_eq!((p50(&report), report.figures.error.shorter), ([0, 1, 3], 1));
}

/// Time off the CPU is no probe's.
#[test]
fn a_call_is_no_shorter_than_it_was_off_the_cpu() {
    let slept = OffCpuSplit { blocked_ns: 105, ..OffCpuSplit::default() };
    let report = report(&[Seen::Call(ProbedCall { off_cpu: slept, ..call(0, None, (100, 212), 1) })]);
    assert_eq!(p50(&report), [105, 105, 105]);
}

/// Of 20 ns on the CPU the probes have 12: of ten preemptions four are in the call itself.
#[test]
fn calls_that_were_preempted_keep_that_time_as_often_as_it_was_theirs() {
    let at = |i: u64, ns: u64| call(i, None, (2000 * i, 2000 * i + ns), 1);
    let split = OffCpuSplit { preempted_ns: 1000, ..OffCpuSplit::default() };
    let preempted = |i| ProbedCall { off_cpu: split, ..at(i, 1020) };
    let mut seen: Vec<Seen> = (0..100).map(|i| Seen::Call(at(i, 20))).collect();
    seen.extend((100..110).map(|i| Seen::Call(preempted(i))));
    let report = report(&seen);
    let off_cpu = report.figures.off_cpu.unwrap();
    assert_eq!((report.figures.latency.sum_ns, off_cpu.sum_ns), (110 * 8 + 4000, 4000));
    assert_eq!(p50(&report), [6, 8, 10]);
    assert_eq!(report.off_cpu_causes.as_ref().unwrap().split.preempted_ns, 4000);
    let of_preempted = |row: &&CallRow| row.id.number >= 100;
    assert!(
        report.rows.iter().filter(of_preempted).all(|row| row.error_ns >= 1000),
        "which of them is not known"
    );
}

/// Most of its time on the CPU is g's own; f, which usually is short, would leave it to its probes.
#[test]
fn a_call_keeps_the_preemption_that_its_child_keeps() {
    let mut seen: Vec<Seen> =
        (0..100).map(|i| Seen::Call(call(i, None, (300 * i, 300 * i + 14), 1))).collect();
    seen.extend((0..100).map(|i| Seen::Call(call(i + 100, Some(1_000), (300 * i + 100, 300 * i + 200), 1))));
    let split = OffCpuSplit { preempted_ns: 900, ..OffCpuSplit::default() };
    let preempted = |call| Seen::Call(ProbedCall { off_cpu: split, ..call });
    seen.extend([
        Seen::OffCpu(OffCpuInterval { is_preempted: true, ..off(40_050, None, 40_950) }),
        preempted(call(201, Some(200), (40_010, 41_010), 1)),
        preempted(call(200, None, (40_000, 41_020), 4)),
    ]);
    let report = report(&seen);
    let row = report.rows.last().unwrap();
    assert_eq!((row.latency_ns, row.off_cpu_ns), (988, Some(900)));
    assert_eq!(report.off_cpu_causes.unwrap().reasons[0].reason, Reason::Preempted);
}

/// Two hits are those of a call of g, the third is of no call that was told.
#[test]
fn probes_inside_are_priced_by_their_kind_and_unknown_ones_by_any() {
    let report =
        report(&[Seen::Call(call(1, Some(0), (200, 262), 1)), Seen::Call(call(0, None, (100, 500), 4))]);
    // 10 to 14 of its own, 20 to 30 of g's, 5 to 20 of the other.
    assert_eq!(p50(&report), [400 - 64, 400 - 49, 400 - 35]);
    assert_eq!(children(&report), [("self", 1, 301), ("call", 1, 50)]);
}

/// `a`, `b` and `c` begin alone, `d` does not: f takes 100 ns, and as measured with g 180.
fn sliced() -> Vec<Seen> {
    vec![
        Seen::Begins(0, false),
        Seen::Call(call(0, None, (100, 212), 1)),
        Seen::Call(call(1, None, (300, 412), 1)),
        Seen::Ends(1000),
        Seen::Begins(1500, true),
        Seen::Call(call(3, Some(2), (1600, 1652), 1)),
        Seen::Call(call(2, None, (1550, 1550 + 157), 3)),
        Seen::Ends(2000),
    ]
}

#[test]
fn figures_are_of_calls_that_began_alone_and_children_are_scaled_to_them() {
    let report = report(&sliced());
    assert_eq!((report.calls.complete, report.figures.latency.count, p50(&report)), (3, 2, [98, 100, 102]));
    // Of the call with children: 157 - 12 - 25 = 120, of which g has 40.  Two calls of 100 have 200, g of
    // that a third.
    assert_eq!(children(&report), [("self", 2, 134), ("call", 2, 66)]);
    let sliced = report.sliced.unwrap();
    assert_eq!((sliced.figures_of, sliced.figures_span_ns), (SliceKind::Alone, 1000));
    assert_eq!((sliced.children_calls, sliced.children_mean_ns), (1, Some(120.0)));
    assert_eq!(sliced.children_span_ns, 500);
    // On a core for 200 of 1000 ns.
    assert_eq!(report.outermost.cpu_percent.map(f64::round), Some(20.0));
    assert_eq!(report.rows.len(), 3);
    let in_figures = |row: &&CallRow| report.is_in_figures(row);
    assert_eq!(report.rows.iter().filter(in_figures).count(), 2);
}

/// It would be missing if only calls that end where they began entered the figures: the long ones.
#[test]
fn a_call_that_is_longer_than_its_slice_enters_the_figures_without_what_childrens_probes_added() {
    let mut seen = sliced();
    let elsewhere = |call| Seen::Call(ProbedCall { tid: Tid(8), ..call });
    seen.push(elsewhere(call(6, Some(5), (1700, 1762), 1)));
    seen.push(elsewhere(call(5, None, (900, 1900), 3)));
    let report = report(&seen);
    let max_ns = report.figures.latency.spread.unwrap().max_ns;
    assert_eq!((report.figures.latency.count, max_ns), (3, 1000 - 12 - 25));
    assert_eq!(report.figures.error.high.max_ns, Some(1000 - 10 - 20));
    assert_eq!(report.figures.error.low.p90_ns, Some(1000 - 14 - 30));
    assert_eq!(report.sliced.unwrap().children_calls, 1, "it began without children");
}

/// A call that began while probes were being placed has met an unknown number of them.
#[test]
fn a_call_that_began_between_slices_is_counted_only() {
    let mut seen = sliced();
    seen.push(Seen::Call(call(7, None, (1200, 3000), 9)));
    let report = report(&seen);
    assert_eq!((report.calls.complete, report.figures.latency.count, report.rows.len()), (4, 2, 4));
}

/// The mode is set, and then the clock is read.
#[test]
fn a_call_that_began_just_before_the_first_slice_was_told_began_in_it() {
    let report = report(&[
        Seen::Begins(105, false),
        Seen::Call(call(0, None, (100, 212), 1)),
        Seen::Ends(1000),
        Seen::Begins(1500, true),
        Seen::Ends(2000),
    ]);
    assert_eq!((report.figures.latency.count, p50(&report)), (1, [98, 100, 102]));
}

/// Its children are known up to the end of its slice: the rest would be `*self`.
#[test]
fn of_a_call_that_outlives_its_slice_with_children_the_part_inside_counts_for_them() {
    let mut seen = sliced();
    seen.push(Seen::Call(call(9, None, (1900, 2912), 1)));
    let report = report(&seen);
    let sliced = report.sliced.unwrap();
    // 1000 of 1012 ns are its own, and 100 of 1012 are in the slice: 98.
    assert_eq!((sliced.children_calls, sliced.children_mean_ns), (2, Some(f64::from(120 + 98) / 2.0)));
}

#[test]
fn without_a_call_alone_the_others_are_the_figures() {
    let mut seen = sliced();
    seen.drain(1..3);
    let report = report(&seen);
    let figures_of = report.sliced.unwrap().figures_of;
    assert_eq!((figures_of, report.figures.latency.count), (SliceKind::WithChildren, 1));
    assert_eq!(p50(&report), [157 - 14 - 30, 120, 157 - 10 - 20]);
    assert_eq!(children(&report), [("self", 1, 80), ("call", 1, 40)]);
}

#[test]
fn children_of_which_nothing_was_seen_are_not_known() {
    let seen: Vec<Seen> =
        sliced().into_iter().filter(|seen| !matches!(seen, Seen::Call(c) if c.start.0 > 1000)).collect();
    let report = report(&seen);
    assert_eq!((children(&report), report.sliced.unwrap().children_calls), (vec![], 0));
}

/// A window of one kind is as it was without slices.
#[test]
fn one_slice_is_the_whole_window() {
    let inside = |children| {
        vec![
            Seen::Begins(0, children),
            Seen::Call(call(1, Some(0), (200, 252), 1)),
            Seen::Call(call(0, None, (100, 257), 3)),
            Seen::Ends(1000),
        ]
    };
    let report = report(&inside(true));
    assert_eq!((report.sliced, children(&report)), (None, vec![("self", 1, 80), ("call", 1, 40)]));
}

fn off(out: u64, woken: Option<u64>, back: u64) -> OffCpuInterval {
    OffCpuInterval {
        tid: Tid(7),
        out: Ns(out),
        woken: woken.map(Ns),
        back: Ns(back),
        is_preempted: false,
        outermost: 0,
        syscall: None,
        stack: vec![],
        waker: None,
    }
}

/// f is asleep for 60 of 112 ns.
fn asleep(out: u64, outermost: u64) -> Seen {
    Seen::OffCpu(OffCpuInterval { outermost, syscall: Some(202), ..off(out, Some(out + 50), out + 60) })
}

fn sleeping(number: u64, start: u64) -> Seen {
    let off_cpu = OffCpuSplit { blocked_ns: 50, runnable_ns: 10, preempted_ns: 0 };
    Seen::Call(ProbedCall { off_cpu, ..call(number, None, (start, start + 112), 1) })
}

/// Slices of both kinds, and a call in each that sleeps.
fn sliced_and_asleep() -> Vec<Seen> {
    let mut seen = sliced();
    seen.splice(3..3, [asleep(520, 8), sleeping(8, 500)]);
    let last = seen.len() - 1;
    seen.splice(last..last, [asleep(1820, 9), sleeping(9, 1800)]);
    seen
}

/// Wherever they are parted, also inside of a call and of a slice.
#[test]
fn intervals_add_up_to_the_window() {
    let request = Request { functions: vec![F], ..Request::default() };
    let of = |seen: &[Seen]| report_in_intervals(seen, &request, &mut Kept::default());
    let (whole, _) = of(&sliced_and_asleep());
    assert_eq!((whole.calls.complete, whole.figures.latency.count), (5, 3));
    assert_eq!(whole.off_cpu_causes.as_ref().unwrap().split.total_ns(), 60);
    for first in 0..sliced_and_asleep().len() {
        for second in first..sliced_and_asleep().len() {
            let mut seen = sliced_and_asleep();
            seen.insert(second, Seen::Interval);
            seen.insert(first, Seen::Interval);
            seen.push(Seen::Interval);
            let (report, intervals) = of(&seen);
            assert_eq!(report, whole, "parted at {first} and {second}");
            let sum = |of: fn(&FunctionReport) -> u64| intervals.iter().map(of).sum::<u64>();
            assert_eq!((intervals.len(), sum(FunctionReport::counted_calls)), (3, 5));
            let causes_ns = sum(|of| of.off_cpu_causes.as_ref().unwrap().split.total_ns());
            // Of an interval without a call alone, the others are the figures.
            assert!([60, 120].contains(&causes_ns), "{causes_ns} ns");
        }
    }
}

/// A window of one slice that has not ended yet.
#[test]
fn an_interval_knows_why_calls_were_off_the_cpu() {
    for children in [false, true] {
        let seen = [Seen::Begins(0, children), asleep(520, 8), sleeping(8, 500), Seen::Interval];
        let request = Request { functions: vec![F], ..Request::default() };
        let (_, intervals) = report_in_intervals(&seen, &request, &mut Kept::default());
        let causes = intervals[0].off_cpu_causes.as_ref().unwrap();
        assert_eq!((causes.split.total_ns(), causes.reasons.len()), (60, 1), "{children}");
    }
}

#[test]
fn a_call_is_given_with_what_was_inside_of_it() {
    let request = Request { functions: vec![F], ..Request::default() };
    let mut rows = Kept::default();
    let _ = report_in_intervals(&sliced_and_asleep(), &request, &mut rows);
    let ids: Vec<u64> = rows.0.iter().map(|(id, ..)| id.number).collect();
    assert_eq!(ids, [0, 1, 8, 2, 9]);
    let of = |number| rows.0.iter().find(|(id, ..)| id.number == number).unwrap();
    let children = |number| {
        let child = |part: &PartOfRow| (part.key.kind.name(), part.total.sum_ns);
        of(number).2.children.iter().map(child).collect::<Vec<_>>()
    };
    assert_eq!(children(2), [("call", 40), ("self", 80)]);
    assert_eq!(children(0), [], "it began where no child was probed");
    let (_, waited_for, parts) = of(9);
    assert_eq!(waited_for, &Some(Reason::Syscall(202)));
    let [wait] = parts.waits.as_slice() else { panic!("{:?}", parts.waits) };
    assert_eq!((wait.from, wait.to, wait.split.blocked_ns), (Ns(1820), Ns(1880), 50));
    assert_eq!(of(0).2.waits, []);
}

/// Records of calls that had children were lost: what they took is not kept for ever.
#[test]
fn children_of_lost_calls_are_forgotten() {
    let program = Program::new();
    let around = Surroundings { code: &program, functions: &program, ..crate::nowhere::surroundings() };
    let request = Request { functions: vec![F], ..Request::default() };
    let functions = vec![(F, cost()), (G, cost())];
    let mut analysis = ProbedAnalysis::new(&request, functions, &[Tid(7)], around, &NoNames);
    for number in 0..10_000 {
        analysis.call(&call(2 * number + 1, Some(2 * number), (number * 1000, number * 1000 + 52), 1));
    }
    assert_eq!(analysis.children.values().map(BTreeMap::len).sum::<usize>(), OPEN_MAX);
    let lost = |from| LostCalls { tid: Tid(7), count: 1, from: Ns(from), to: Ns(from + 10) };
    (0..10_000).for_each(|at| analysis.lost(&lost(at * 1000)));
    assert_eq!(analysis.take_lost_ns(), 100_000);
    assert_eq!(analysis.threads.lost.values().map(Vec::len).sum::<usize>(), LOSSES_MAX);
    let sum = |of: fn(&LostCalls) -> u64| analysis.threads.lost.values().flatten().map(of).sum::<u64>();
    // 5,904 times the least time between two of them, 990 ns, counts as lost, too.
    assert_eq!(
        (sum(|lost| lost.count), sum(|lost| lost.to.since(lost.from))),
        (10_000, 100_000 + 5_904 * 990)
    );
    analysis.thread(&ProbedThread { tid: Tid(7), born: Ns(0), died: Some(Ns(20_000_000)) });
    assert!(analysis.children.is_empty());
    let (_, parts) = analysis.finish_with_parts((Ns(0), Ns(10_000_000)), Limits::default());
    let lost_ns = parts.gaps.iter().map(|gap| gap.lost_ns).sum::<u64>();
    assert_eq!((parts.gaps.len(), lost_ns), (LOSSES_MAX, 100_000 + 5_904 * 990));
}
