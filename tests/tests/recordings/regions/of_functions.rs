//! A region from the entry of a function to where it returns gives the function's own report.

use std::collections::BTreeSet;

use analyzer::{
    Analysis, CallRow, CodeDetail, CodeRequest, FunctionReport, OwnCode, Request, Status, Surroundings,
};
use decoder::DecodeOptions;
use model::{
    BranchKind, EventSink, FunctionId, FunctionLookup, Mark, Pid, SpaceId, Tid, TraceEvent, Transfer,
};
use truth_tests::{Opened, fixture, pipeline};

/// Functions that are called, and call neither themselves nor what calls them.
const FUNCTIONS: [(&str, &[&str]); 2] = [
    ("demo", &["leaf", "round_fn", "mid", "deep", "outer_fn", "catcher", "cmp"]),
    (
        "calls",
        &["simple_fn", "leaf_fn", "split_fn", "guard_fn", "catch_outer", "cmp_fn", "virtual_sum", "sleep_fn"],
    ),
];

const RECORDINGS: [&str; 14] = [
    "demo",
    "demo-nocyc",
    "demo-defer-long",
    "demo-dropretstack",
    "demo-ovf",
    "demo-trunc",
    "demo-filter1",
    "demo-cpu2",
    "demo-kernel",
    "calls",
    "calls-filter2",
    "calls-cpu8-switch2",
    "calls-cpu2-ovf",
    "calls-window",
];

/// Where the calls of some functions return to.
struct Returns<'a> {
    image: &'a image::Image,
    functions: Vec<FunctionId>,
    found: Vec<BTreeSet<Mark>>,
}

impl EventSink for Returns<'_> {
    fn events(&mut self, _: Pid, _: Tid, space: SpaceId, events: &[TraceEvent]) {
        for event in events {
            let TraceEvent::Branch(branch) = event else { continue };
            let (from, to) = match branch.transfer {
                Transfer::Branch { kind: BranchKind::Return, from, to } => (from, to.ip),
                Transfer::End { from, to: Some(to), .. } => (from, to),
                _ => continue,
            };
            let place = self.image.place(space, to);
            for (function, found) in self.functions.iter().zip(&mut self.found) {
                // What it called last, by a jump, returns for it: the places are of its callers in any case.
                if from.function == *function {
                    found.extend(place);
                }
            }
        }
    }
}

/// A row without what says of which function it is, or which of its calls.
fn of_any(row: &CallRow) -> CallRow {
    CallRow { id: analyzer::CallId { tid: row.id.tid, number: 0 }, function: FunctionId::UNKNOWN, ..*row }
}

/// Calls whose entry was seen.
fn rows(of: &FunctionReport) -> Vec<CallRow> {
    of.rows.iter().filter(|row| row.end.status != Status::OpenStart).map(of_any).collect()
}

/// What calls did in their own code, of each function and region.
fn own_code(opened: &Opened<'_>, functions: Vec<FunctionId>) -> Vec<Vec<OwnCode>> {
    let request = Request { functions, ..Request::default() };
    let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
    let detail = CodeDetail::Instructions;
    let code = CodeRequest { detail, groups: 1, group_of: Box::new(|_| Some(0)) };
    let mut analysis = Analysis::new(&request, around).with_code(code);
    opened.decode(&DecodeOptions::default(), &mut analysis);
    analysis.finish_with_code().1
}

#[test]
fn from_entry_to_return_address_it_is_the_function() {
    for name in RECORDINGS {
        let Some(recording) = fixture(name) else { continue };
        // What runs out of the IP filter has no instructions that could begin a region.
        let is_traced = |name: &&&str| {
            !recording.options.contains("--filter=")
                || recording.options.split_whitespace().any(|option| option == format!("--filter={name}"))
        };
        let names = FUNCTIONS.into_iter().find(|(log, _)| *log == recording.log).unwrap().1;
        let names: Vec<&str> = names.iter().filter(is_traced).copied().collect();
        assert!(!names.is_empty(), "{name}");
        let file = pipeline::open(&recording.data).unwrap();
        let mut opened = Opened::new(&file).unwrap();
        let functions: Vec<FunctionId> = names.iter().map(|name| opened.function(name).unwrap()).collect();
        let found = vec![BTreeSet::new(); functions.len()];
        let mut returns = Returns { image: &opened.image, functions, found };
        opened.decode(&DecodeOptions::default(), &mut returns);
        let Returns { functions, found, .. } = returns;
        for (number, (function, ends)) in functions.iter().zip(found).enumerate() {
            let object = FunctionLookup::object(&opened.image, *function).unwrap();
            let entry = (object, opened.image.function_entry(*function).unwrap());
            let name = format!("region of {}", names[number]);
            opened.image.add_region(&name, vec![entry], ends.into_iter().collect());
        }
        let all: Vec<FunctionId> = functions.iter().copied().chain(opened.image.regions()).collect();
        let report = opened.analyse(&all, &DecodeOptions::default());
        let (of_functions, of_regions) = report.functions.split_at(functions.len());
        let mut calls = 0;
        for (number, (function, region)) in of_functions.iter().zip(of_regions).enumerate() {
            let what = format!("{name}: {}", names[number]);
            let (of_function, of_region) = (rows(function), rows(region));
            for (row, other) in of_function.iter().zip(&of_region) {
                assert_eq!(row, other, "{what}");
            }
            assert_eq!(of_function.len(), of_region.len(), "{what}");
            let figures = |f: &FunctionReport| {
                (f.figures.latency, f.figures.off_cpu, f.outermost.cpu_percent, f.figures.children.clone())
            };
            assert_eq!(figures(function), figures(region), "{what}");
            calls += of_function.len();
        }
        assert!(calls > 100 || recording.name.contains("filter"), "{name}: {calls} calls");
        let code = own_code(&opened, all);
        let (of_functions, of_regions) = code.split_at(functions.len());
        for ((function, region), what) in of_functions.iter().zip(of_regions).zip(&names) {
            assert_eq!(function, region, "{name}: own code of {what}");
        }
    }
}
