//! Trees of calls as text and JSON, as a graph, and as what other tools read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use analyzer::{
    CallEnd, CallId, CallRow, CallTree, CalledFrom, Caller, ChildKind, Evidence, FoundPaths, Node, Place,
    Status, Total, TracedRow,
};
use func_latency::args::Weight;
use func_latency::export::flamegraph::{self, Subject};
use func_latency::export::graph::GraphStyle;
use func_latency::export::{folded, graph};
use func_latency::one_call::OpenedCall;
use func_latency::render::tree::TreeLimits;
use func_latency::render::{Names, tree};
use model::{AuxOffset, Cpu, FunctionId, Ns, ObjectId, Pid, Schedule, Sideband, SidebandRecord, Svma, Tid};

struct FakeNames;

impl Names for FakeNames {
    fn function(&self, id: FunctionId) -> String {
        ["[unknown]", "main", "f", "g", "h;x"][id.0 as usize].to_owned()
    }

    fn object_of(&self, _: FunctionId) -> Option<String> {
        None
    }

    fn object(&self, _: ObjectId) -> String {
        "/bin/prog".to_owned()
    }

    fn site(&self, place: Place) -> String {
        format!("prog+{}", place.svma)
    }

    fn line(&self, place: Place) -> Option<String> {
        (place.svma.0 == 0x10).then(|| "prog.c:7".to_owned())
    }
}

fn node(function: u32, start: u64, sum_ns: u64, off_cpu_ns: u64, size: usize) -> Node {
    let kind = if function == 0 { ChildKind::Syscall } else { ChildKind::Call };
    let site = Some(Place { object: ObjectId(0), svma: Svma(0x10 * u64::from(function != 3)) });
    Node {
        kind,
        status: if function == 4 { Status::Unwound } else { Status::Complete },
        function: FunctionId(function),
        site,
        start: Ns(start),
        total: Total { count: 1, sum_ns, off_cpu_ns: Some(off_cpu_ns) },
        error_ns: if function == 4 { 60 } else { 9 },
        work: None,
        size,
    }
}

/// `f` calls `g` (which calls `f` and sleeps) and `h`.
fn sample() -> CallTree {
    CallTree::new(vec![
        node(2, 1000, 500, 100, 6),
        node(3, 1010, 300, 100, 4),
        node(2, 1020, 60, 0, 2),
        node(4, 1030, 20, 0, 1),
        node(0, 1100, 120, 100, 1),
        node(4, 1400, 50, 0, 1),
    ])
}

fn schedule() -> Schedule {
    let switch = |time, out, preempted| SidebandRecord {
        time: Some(Ns(time)),
        cpu: Some(Cpu(0)),
        pid: Some(Pid(7)),
        tid: Some(Tid(7)),
        file_offset: 0,
        body: Sideband::Switch { out, preempted },
    };
    Schedule::new(&[switch(1105, true, false), switch(1205, false, false)])
}

fn opened() -> OpenedCall {
    let row = CallRow {
        id: CallId { tid: Tid(7), number: 0 },
        pid: Some(Pid(7)),
        cpu: None,
        start_ns: Ns(1000),
        latency_ns: 500,
        error_ns: 9,
        off_cpu_ns: Some(100),
        end: CallEnd::of(Status::Complete),
        from: CalledFrom {
            caller: Caller::Function { function: FunctionId(1), tail: false },
            site: Some(Place { object: ObjectId(0), svma: Svma(0x10) }),
        },
        function: FunctionId(2),
        depth: 0,
        evidence: Evidence::Traced(TracedRow {
            aux_buffer: Some(0),
            aux_offset: AuxOffset(0x40),
            ..TracedRow::default()
        }),
    };
    OpenedCall { row, tree: sample(), bytes: 4096, attempts: 1 }
}

#[track_caller]
fn check(actual: &[u8], expect: &str) {
    let actual = std::str::from_utf8(actual).unwrap();
    assert_eq!(actual.trim_end(), expect.trim_matches('\n').trim_end(), "\n{actual}");
}

fn view_of<'a>(
    id: CallId,
    call: &'a OpenedCall,
    schedule: &'a Schedule,
    limits: TreeLimits,
) -> tree::TreeView<'a> {
    let OpenedCall { row, tree, bytes, .. } = call;
    tree::TreeView { id, row, tree, decoded_bytes: *bytes, names: &FakeNames, schedule, limits, below: &[] }
}

fn show(limits: TreeLimits) -> Vec<u8> {
    show_call(&opened(), limits)
}

fn show_call(call: &OpenedCall, limits: TreeLimits) -> Vec<u8> {
    let schedule = schedule();
    let id = CallId { tid: Tid(7), number: 12 };
    let view = view_of(id, call, &schedule, limits);
    let mut out = Vec::new();
    tree::write_text(&mut out, &view).unwrap();
    out
}

#[test]
fn a_call_is_a_tree_with_its_times() {
    let whole = "
call 7-12 of [f], called from main at prog+0x10
thread 7, start 1,000 ns, 500 ns (500 ns +- 9), off-CPU 100 ns, complete

  call           since start  total   self  off-CPU
  f                       +0    500    150      100  prog.c:7
    g                    +10    300    120      100
      f                  +20     60   < 81           prog.c:7
        h;x              +30   < 81   < 81           unwound, prog.c:7
      [syscall]         +100    120    120      100  prog.c:7
    h;x                 +400  < 120  < 120           unwound, prog.c:7

  off the CPU (ns since start, for)
    +105  100";
    check(&show(TreeLimits { depth: usize::MAX, min_ns: 0, lines: None }), whole);
    let limited = "
call 7-12 of [f], called from main at prog+0x10
thread 7, start 1,000 ns, 500 ns (500 ns +- 9), off-CPU 100 ns, complete

  call  since start  total  self  off-CPU
  f              +0    500   150      100  prog.c:7
    g           +10    300   120      100
  4 more, deeper or shorter than asked for

  off the CPU (ns since start, for)
    +105  100";
    check(&show(TreeLimits { depth: 1, min_ns: 51, lines: None }), limited);
}

/// A call of a million others was a million lines.
#[test]
fn calls_that_are_alike_are_one_line_where_there_are_too_many() {
    // `f` calls `g` 40 times, which sleeps twice, and calls `h` once.
    let g = |number: u64| {
        let start = 1000 + 10 * number;
        [node(3, start, 10, 4, 3), node(0, start + 1, 2, 2, 1), node(0, start + 5, 3, 2, 1)]
    };
    let mut nodes = vec![node(2, 1000, 500, 160, 122)];
    nodes.extend((0..40).flat_map(g));
    nodes.push(node(4, 1450, 3, 0, 1));
    let mut call = opened();
    call.tree = CallTree::new(nodes);
    let show = |lines| show_call(&call, TreeLimits { depth: usize::MAX, min_ns: 0, lines });
    let all_paths = "
call 7-12 of [f], called from main at prog+0x10
thread 7, start 1,000 ns, 500 ns (500 ns +- 9), off-CPU 100 ns, complete

  call           since start  total   self  off-CPU
  f                       +0    500  < 510      160  prog.c:7
    g                     +0    400  < 770      160  40 calls
      [syscall]           +1  < 930  < 930      160  80 calls, prog.c:7
    h;x                 +450   < 64   < 64           unwound, prog.c:7
  122 calls, those that are alike in one line; --all prints each

  off the CPU (ns since start, for)
    +105  100";
    check(&show(Some(4)), all_paths);
    let heaviest = "
call 7-12 of [f], called from main at prog+0x10
thread 7, start 1,000 ns, 500 ns (500 ns +- 9), off-CPU 100 ns, complete

  call  since start  total   self  off-CPU
  f              +0    500  < 510      160  prog.c:7
    g            +0    400  < 770      160  40 calls
  122 calls, those that are alike in one line; 81 are on lines that are left out, the heaviest of < 930 ns
  --top N prints more lines, --all each call, --min NS and --depth N fewer

  off the CPU (ns since start, for)
    +105  100";
    check(&show(Some(2)), heaviest);
    assert_eq!(String::from_utf8(show(None)).unwrap().lines().count(), 4 + 122 + 3);
}

/// Of 2,496,644 calls 5,622,409 were left out: one node is many calls where more than memory has room for are
/// in a call.
#[test]
fn calls_in_one_node_are_counted_one_by_one() {
    let nodes = vec![node(2, 1000, 500, 160, 42)];
    let g = |number: u64| node(3, 1000 + 10 * number, 10, 0, 1);
    let tree = CallTree::new(nodes.into_iter().chain((0..41).map(g)).collect());
    let call = OpenedCall { tree: tree.merged(), ..opened() };
    let text = show_call(&call, TreeLimits { depth: usize::MAX, min_ns: 0, lines: Some(1) });
    let says =
        "  42 calls, those that are alike in one line; 41 are on lines that are left out, the heaviest of ";
    assert!(String::from_utf8(text).unwrap().contains(says));
}

#[test]
fn a_call_as_json_has_every_node_with_its_depth() {
    let (call, schedule) = (opened(), schedule());
    let id = CallId { tid: Tid(7), number: 12 };
    let limits = TreeLimits { depth: usize::MAX, min_ns: 0, lines: None };
    let view = view_of(id, &call, &schedule, limits);
    let mut out = Vec::new();
    tree::write_json(&mut out, &view).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&json["schema"], &json["id"]), (&"func_latency_call/2".into(), &"7-12".into()));
    let nodes = json["nodes"].as_array().unwrap();
    let depths: Vec<u64> = nodes.iter().map(|node| node["depth"].as_u64().unwrap()).collect();
    assert_eq!(depths, [0, 1, 2, 3, 2, 1]);
    let own: u64 = nodes.iter().map(|node| node["self_ns"].as_u64().unwrap()).sum();
    assert_eq!(own, json["latency_ns"].as_u64().unwrap());
    let errors = |key: &str| nodes.iter().map(|node| node[key].as_u64().unwrap()).collect::<Vec<u64>>();
    assert_eq!(errors("total_error_ns"), [9, 9, 9, 60, 9, 60]);
    assert_eq!(errors("self_error_ns"), [78, 27, 40, 60, 9, 60]);
    assert_eq!(json["off_cpu"], serde_json::json!([{ "start_ns": 1105, "ns": 100, "preempted": false }]));
}

#[test]
fn folded_stacks_have_each_paths_own_time() {
    let fold = |weight| {
        let mut out = Vec::new();
        folded::write(&mut out, &folded::stacks(&sample(), &FakeNames, weight)).unwrap();
        out
    };
    let latency = "
f 150
f;g 120
f;g;[syscall] 120
f;g;f 40
f;g;f;h:x 20
f;h:x 50";
    check(&fold(Weight::Latency), latency);
    let cpu = "
f 150
f;g 120
f;g;[syscall] 20
f;g;f 40
f;g;f;h:x 20
f;h:x 50";
    check(&fold(Weight::Cpu), cpu);
}

#[test]
fn a_flame_graph_has_all_time_and_is_the_same_on_every_run() {
    let draw = || {
        let mut out = Vec::new();
        let stacks = folded::stacks(&sample(), &FakeNames, Weight::Latency);
        let functions = ["f".to_owned()];
        let subject = Subject { functions: &functions, weight: Weight::Latency, note: None };
        flamegraph::write(&mut out, &stacks, &subject).unwrap();
        String::from_utf8(out).unwrap()
    };
    let svg = draw();
    let title = ">f: 500 ns of latency, off-CPU time included</text>";
    assert!(svg.contains(title), "{svg}");
    assert!(svg.contains("<title>all (500 ns, 100%)</title>"), "{svg}");
    assert!(svg.contains("<title>g (300 ns, 60.00%)</title>"), "{svg}");
    assert_eq!(draw(), svg);
}

const STYLE: GraphStyle =
    GraphStyle { callee: false, weight: Weight::Latency, percent_limit: 5.0, fractal: false, depth: 8 };

fn draw(style: GraphStyle) -> Vec<u8> {
    let mut out = Vec::new();
    let found = FoundPaths { tree: sample(), open: Vec::new() };
    graph::write(&mut out, &found, &FakeNames, &style).unwrap();
    out
}

#[test]
fn a_graph_has_callees_below_callers_and_no_time_twice() {
    let expect = "
500 ns latency; below each function what it called, in % of all

 total %  self %      total       self         calls  function
     100      38     500 ns     200 ns             2  f
        |--60%-- g
        |  |--24%-- [syscall]
        |  `--12%-- f
        `--< 22%-- h;x
      60      24     300 ns     120 ns             1  g
        |--24%-- [syscall]
        `--12%-- f
      24      24     120 ns     120 ns             1  [syscall]
    < 38    < 38   < 200 ns   < 200 ns             2  h;x";
    check(&draw(STYLE), expect);
}

#[test]
fn a_graph_of_callees_has_their_callers_below_in_shares_of_each() {
    let style = GraphStyle { callee: true, fractal: true, percent_limit: 20.0, ..STYLE };
    let expect = "
500 ns latency; below each function who called it, in % of the function above

 total %  self %      total       self         calls  function
     100      38     500 ns     200 ns             2  f
      60      24     300 ns     120 ns             1  g
        `--100%-- f
      24      24     120 ns     120 ns             1  [syscall]
        `--100%-- g
           `--100%-- f

1 function of less than 20 % left out (--percent-limit)";
    check(&draw(style), expect);
}
