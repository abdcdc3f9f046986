//! What is inside of the made-up calls: their trees, their callers, and when their threads were off the CPU.

use analyzer::{
    CallRow, CallTree, ChildKind, Node, Place, Report, StackNames, Status, Total, TreeSink, Waits,
};
use func_latency::inside::{Inside, InsideOfCalls};
use model::{
    Avma, Cpu, FunctionId, Ns, Pid, Schedule, Sideband, SidebandRecord, Svma, Tid, Waiting, WakerSeen, Waking,
};

const MAIN_LOOP: FunctionId = FunctionId(8);
/// Its name is hostile.
pub(crate) const RELOAD: FunctionId = FunctionId(9);
const FSYNC: u32 = 6;
const PAGE_GET: u32 = 7;
/// How far off each of its calls may be.
pub(crate) const PAGE_ERROR_NS: u64 = 3;

/// What the slow thread calls itself.
pub(crate) const SLOW_NAME: &str = "</script>\"'\u{202e}x";

/// The lookup of a call goes to three pages; what waits in `fsync` was called through `reload`.
pub(crate) fn inside(report: &Report) -> Vec<Inside> {
    let schedule = schedule(report);
    let functions: Vec<FunctionId> = report.functions.iter().map(|function| function.id).collect();
    let mut calls = InsideOfCalls::new(&functions);
    for function in &report.functions {
        for (at, row) in function.rows.iter().enumerate() {
            calls.call(row, &tree(report, at, row));
        }
    }
    calls.finish(report, &mut Waits::new(&schedule, &NoNames))
}

/// Stacks are of nothing.
struct NoNames;

impl StackNames for NoNames {
    fn kernel(&self, _: Avma) -> Option<&str> {
        None
    }

    fn user(&self, _: Pid, _: Ns, _: Avma) -> FunctionId {
        FunctionId::UNKNOWN
    }
}

/// Its children one after the other; those of a name and site are the row's.
fn tree(report: &Report, at: usize, row: &CallRow) -> CallTree {
    let children = &report.functions[0].row_details.children;
    let node = |function: u32, start: u64, total: Total, error_ns: u64, size: usize| Node {
        kind: ChildKind::Call,
        status: Status::Complete,
        function: FunctionId(function),
        site: None,
        start: Ns(start),
        total,
        error_ns,
        work: None,
        size,
    };
    let of_row = Total { count: 1, sum_ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns };
    let root = node(row.function.0, row.start_ns.0, of_row, row.error_ns, 0);
    let root = Node { status: row.end.status, site: row.from.site, ..root };
    let mut nodes = vec![root];
    let mut start = row.start_ns.0;
    let mut waits = false;
    for child in children.of(at) {
        let key = children.keys[child.key as usize];
        let has_pages = key.function == FunctionId(4);
        waits |= key.function == FunctionId(FSYNC);
        let own = node(key.function.0, start, child.total, child.error_ns, 1);
        let own = Node { kind: key.kind, site: key.site, ..own };
        nodes.push(Node { size: if has_pages { 3 } else { 1 }, ..own });
        if has_pages {
            let page = Total {
                count: 1,
                sum_ns: child.total.sum_ns / 4,
                off_cpu_ns: child.total.off_cpu_ns.map(|_| 0),
            };
            for (i, svma) in [(1, 0x4010), (2, 0x4020)] {
                let site = Some(Place { svma: Svma(svma), ..key.site.unwrap() });
                nodes.push(Node { site, ..node(PAGE_GET, start + i * page.sum_ns, page, PAGE_ERROR_NS, 1) });
            }
        }
        start += child.total.sum_ns;
    }
    nodes[0].size = nodes.len();
    let analyzer::Caller::Function { function: caller, .. } = row.from.caller else { panic!("{row:?}") };
    CallTree::new(nodes).called_by(vec![caller, if waits { RELOAD } else { MAIN_LOOP }])
}

/// What woke the slow thread; its name is hostile.
pub(crate) const WAKER_NAME: &str = "<b>\u{202e}waker";
const WAKER: Tid = Tid(2001);

/// Off the CPU for as long as the rows say, from 100 ns after the call's begin on: in `fsync`, until it is
/// woken.
fn schedule(report: &Report) -> Schedule {
    let record = |time: Option<Ns>, tid, body| SidebandRecord {
        time,
        cpu: Some(Cpu(0)),
        pid: Some(Pid(1000)),
        tid: Some(tid),
        file_offset: 0,
        body,
    };
    let name = |tid, name: &str| {
        record(None, tid, Sideband::Comm { pid: Pid(1000), tid, name: name.into(), exec: false })
    };
    let mut records = vec![name(Tid(1003), SLOW_NAME), name(WAKER, WAKER_NAME)];
    for row in &report.functions[0].rows {
        let Some(off_cpu_ns @ 1..) = row.off_cpu_ns else { continue };
        let from = row.start_ns.0 + 100;
        let waiting = Some(Box::new(Waiting { syscall: Some(74), stack: vec![] }));
        let leaves = Sideband::SchedSwitch { prev: row.id.tid, preempted: false, next: Tid(0), waiting };
        let waker = WakerSeen {
            pid: Pid(1000),
            tid: WAKER,
            name: String::new(),
            stack: vec![],
            user_stack: vec![],
            is_perhaps_interrupted: false,
        };
        let wakes = Sideband::SchedWaking(Box::new(Waking { tid: row.id.tid, waker }));
        let switch = |out| Sideband::Switch { out, preempted: false };
        let bodies = [
            (from, row.id.tid, leaves),
            (from, row.id.tid, switch(true)),
            (from + off_cpu_ns / 2, WAKER, wakes),
            (from + off_cpu_ns, row.id.tid, switch(false)),
        ];
        records.extend(bodies.map(|(time, tid, body)| record(Some(Ns(time)), tid, body)));
    }
    records.sort_by_key(|record| record.time);
    Schedule::new(&records)
}
