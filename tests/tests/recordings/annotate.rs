//! What `annotate` says of each instruction is what the emulator has executed, and its times, and those of
//! code blocks, add up to the report's to the nanosecond.

use std::collections::BTreeMap;

use analyzer::{
    Analysis, CallCounts, ChildKind, CodeDetail, CodeRequest, FunctionReport, OwnCode, Place, Report,
    Request, Surroundings,
};
use decoder::DecodeOptions;
use func_latency::listing::instructions::{self, Listing};
use func_latency::listing::lines;
use model::{CodeSource, FunctionId, FunctionLookup, Ns, Svma};
use tracegen::log::Entry;
use tracegen::program::Program;
use truth_tests::{Fixture, Opened, check_all, is_full_run, pipeline, skip};

use crate::rows_match_oracle::{CALLS, DEMO};

/// How often the emulator has executed each block: by where it begins, where it ends.
struct Executed(BTreeMap<Place, Vec<(Svma, u64)>>);

/// No block is longer.
const BLOCK_MAX: u64 = 1 << 14;

impl Executed {
    fn of(fixture: &Fixture, opened: &Opened<'_>) -> Option<Self> {
        let Ok(program) = Program::open(&fixture.output.with_extension("")) else {
            skip(&format!("no log {}; run cargo xtask fixtures", fixture.log));
            return None;
        };
        let mut times = vec![0; program.blocks.len()];
        for entry in program.threads.iter().flat_map(|thread| thread.entries(0)) {
            if let Entry::Block(id) = entry {
                times[id as usize] += 1;
            }
        }
        let space = opened.image.space(program.pid, Ns(u64::MAX));
        let mut blocks: BTreeMap<Place, Vec<(Svma, u64)>> = BTreeMap::new();
        for (block, times) in program.blocks.iter().zip(times) {
            if let Some((object, svma)) = opened.image.place(space, block.start) {
                let len = block.end.minus(block.start);
                assert!(len < BLOCK_MAX);
                blocks.entry(Place { object, svma }).or_default().push((Svma(svma.0 + len), times));
            }
        }
        Some(Self(blocks))
    }

    fn at(&self, place: Place) -> u64 {
        let first = Place { svma: Svma(place.svma.0.saturating_sub(BLOCK_MAX)), ..place };
        let blocks = self.0.range(first..=place).flat_map(|(_, blocks)| blocks);
        blocks.filter(|(end, _)| place.svma < *end).map(|(_, times)| times).sum()
    }
}

fn own_code(
    opened: &Opened<'_>,
    functions: &[FunctionId],
    detail: CodeDetail,
    workers: usize,
) -> (Report, Vec<OwnCode>) {
    let request = Request { functions: functions.to_vec(), ..Request::default() };
    let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
    let code = CodeRequest { detail, groups: 1, group_of: Box::new(|_| Some(0)) };
    let mut analysis = Analysis::new(&request, around).with_code(code);
    opened.decode(&DecodeOptions { workers, ..DecodeOptions::default() }, &mut analysis);
    let (report, code) = analysis.finish_with_code();
    (report, code.into_iter().flatten().collect())
}

/// All of its calls were seen from entry to end.
fn is_whole(calls: &CallCounts) -> bool {
    calls.open_start + calls.open_end + calls.cut == 0 && calls.complete + calls.unwound > 0
}

/// Children by kind and function, without the places of interrupts: count and time.
fn by_callee(
    children: impl Iterator<Item = (ChildKind, FunctionId, u64, u64)>,
) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (kind, function, count, ns) in children {
        let sum = sums.entry(format!("{kind:?} {}", function.0)).or_default();
        *sum = (sum.0 + count, sum.1 + ns);
    }
    sums
}

/// Own code and children are those of the report on the same calls.
fn differs_from_report(code: &OwnCode, report: &FunctionReport, is_filtered: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let own = report.figures.children.iter().find(|row| row.kind == ChildKind::Own);
    let own_ns = own.map_or(0, |own| own.total.sum_ns);
    let in_code: u64 = code.code.iter().map(|row| row.time.total.sum_ns).sum();
    if in_code + code.elsewhere.sum_ns != own_ns {
        wrong.push(format!("{in_code} ns + {} ns elsewhere, *self {own_ns} ns", code.elsewhere.sum_ns));
    }
    if code.elsewhere.sum_ns > 0 && !is_filtered {
        wrong.push(format!("{} ns elsewhere", code.elsewhere.sum_ns));
    }
    let of_report = report.figures.children.iter().filter(|row| row.kind != ChildKind::Own);
    let of_report = of_report.map(|row| (row.kind, row.function, row.total.count, row.total.sum_ns));
    let of_code = code.children.iter();
    let of_code = of_code.map(|(key, time)| (key.kind, key.function, time.total.count, time.total.sum_ns));
    if by_callee(of_report.clone()) != by_callee(of_code) {
        wrong.push("other children".to_owned());
    }
    let inside: u64 = code.children.iter().map(|(_, time)| time.total.sum_ns).sum();
    if in_code + code.elsewhere.sum_ns + inside != report.figures.latency.sum_ns {
        wrong.push(format!("adds up to {}, not {} ns", in_code + inside, report.figures.latency.sum_ns));
    }
    wrong
}

/// Instructions and lines have all of the time, and as many executions as the emulator.
fn differs_from_log(opened: &Opened<'_>, listing: &Listing, executed: Option<&Executed>) -> Vec<String> {
    let mut wrong = Vec::new();
    let whole = listing.groups[0];
    let lines = lines::lines(&opened.image, listing);
    let instructions = listing.instructions.iter().map(|one| one.spent[0]);
    let of_lines = lines.iter().map(|line| line.spent[0]);
    for (what, spent) in [("instructions", instructions.collect::<Vec<_>>()), ("lines", of_lines.collect())] {
        let sums = (
            spent.iter().map(|spent| spent.own_ns).sum::<u64>(),
            spent.iter().map(|spent| spent.inside_ns).sum::<u64>() + listing.nowhere[0].inside_ns,
        );
        if sums != (whole.own_ns, whole.inside_ns) {
            wrong.push(format!("{what}: {sums:?}, not {:?}", (whole.own_ns, whole.inside_ns)));
        }
    }
    let Some(executed) = executed else { return wrong };
    for instruction in listing.instructions.iter().filter(|instruction| instruction.is_own()) {
        let (found, truth) = (instruction.spent[0].executions, executed.at(instruction.place));
        // The emulator takes each round of a REP string for an instruction; it is one.
        let is_rep = instruction.text.as_ref().is_some_and(|text| text.starts_with("rep"));
        if found != truth && !(is_rep && found <= truth) {
            wrong.push(format!("{} ({:?}): {found}, not {truth}", instruction.place.svma, instruction.text));
        }
    }
    wrong
}

/// `expected`: functions whose executions are compared, if all of the run is in the recording.
fn check(fixture: &Fixture, names: &[&str], expected: usize) -> bool {
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let ids: Vec<_> = names.iter().map(|name| opened.function(name).unwrap()).collect();
    let plain = opened.analyse(&ids, &DecodeOptions { workers: 2, ..DecodeOptions::default() });
    let (with_blocks, blocks) = own_code(&opened, &ids, CodeDetail::Blocks, 2);
    let (report, code) = own_code(&opened, &ids, CodeDetail::Instructions, 2);
    let executed = if fixture.is_whole() { Executed::of(fixture, &opened) } else { None };
    let is_filtered = fixture.options.contains("filter");
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for ((number, name), id) in names.iter().enumerate().zip(&ids) {
        let (function, of_blocks) = (&report.functions[number], &with_blocks.functions[number]);
        if function.calls != plain.functions[number].calls {
            wrong.push(format!("{name}: other calls"));
        }
        // A time that was made later than that of the next event is lowered to it: where packets contradict
        // each other, or are late, that depends on which events there are.
        let (latency, of_report) = (&function.figures.latency, &plain.functions[number].figures.latency);
        let is_in_order = !["--late-cbr-us=1e9", "--defer-tip"].iter().any(|o| fixture.options.contains(o));
        let allowed_ns = if is_in_order { 0 } else { latency.count };
        if latency.sum_ns.abs_diff(of_report.sum_ns) > allowed_ns {
            wrong.push(format!("{name}: {} ns, a report {}", latency.sum_ns, of_report.sum_ns));
        }
        let listing = instructions::list(&opened.image, *id, &code[number..=number]);
        let executed = executed.as_ref().filter(|_| is_whole(&function.calls));
        compared += usize::from(executed.is_some());
        let differences = [
            differs_from_report(&blocks[number], of_blocks, is_filtered),
            differs_from_report(&code[number], function, is_filtered),
            differs_from_log(&opened, &listing, executed),
        ];
        wrong.extend(differences.concat().iter().map(|what| format!("{name}: {what}")));
    }
    if executed.is_some() && compared != expected {
        wrong.push(format!("executions of {compared} functions were compared, not of {expected}"));
    }
    wrong.iter().take(20).for_each(|what| println!("{}: {what}", fixture.name));
    wrong.is_empty()
}

/// Recordings of a short run: layouts, losses, filters, kernel code, times that contradict each other.
const FEW: [&str; 12] = [
    "demo",
    "demo-cpu2",
    "demo-kernel",
    "demo-filter1",
    "demo-ovf",
    "demo-nocbr",
    "calls",
    "calls-cpu2",
    "calls-defer",
    "calls-filter2",
    "calls-offcpu",
    "calls-trunc",
];

/// Checks the recordings of a run, and that the executions of as many functions were compared, in each that
/// has all of the run.
fn check_all_of(log: &str, names: &[&str], compared: usize) {
    check_all(log, |fixture| {
        let is_in_lane = is_full_run() || FEW.contains(&fixture.name.as_str());
        !is_in_lane || check(fixture, names, compared)
    });
}

#[test]
fn demo() {
    check_all_of("demo", DEMO, 18);
}

#[test]
fn calls() {
    check_all_of("calls", CALLS, 37);
}
