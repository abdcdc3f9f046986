//! A recording as text, and the report on it as text.
//!
//! Functions stand in slots of 0x1000 bytes; `f` is the entry of f, `f+1c` an address inside (hexadecimal).
//! Calls are 5 bytes long, so a call at `main+10` returns to `main+15`; system calls are 2.
//!
//! ```text
//!   filter                    code outside ranges is hidden        (these come first)
//!   stack_switches            the program may switch stacks
//!   no_cyc                    cycles are not known, where counters are asked for
//!   ends 5000                 the end of the recording, else 1000
//!   region f+10 f+20          `region` is code from f+10 to f+20; several places: `f+10,f+18`; also region2
//!   code call k+10 f          there is a call instruction
//!   code sigreturn restorer   ... a system call that ends a handler
//!   pad f+10 f+80             an exception that passes through the call at f+10 goes on at f+80
//!   off 120 150               off the CPU;  `off 120` for ever;  `off 120 150 5`: then on CPU 5, not on 3
//!   slept 120 202 140 9 150   off the CPU in system call 202, woken by thread 9 at 140, back at 150
//!   born 5                    also `died 90`, `traced 5`, `executed 5`;  `late`: attached to while it ran
//!
//!   100 start f               tracing starts;  `95/100/110`: known to lie from 95 to 110
//!   100 resume f+4            ... after a gap
//!   110 call main+10 f        also icall, ret, jmp, ijmp, jcc; `on`: runs on into a region's begin or end
//!   120 syscall f+8           also async;  `120 syscall f+8 entry`: into the kernel; also a far return there
//!   whole_cpus                CPUs are traced, and not tasks
//!   130 out.call f+10 k+8     out of the filter; also out.ret, out.jmp, out.fall
//!   140 gap 160               unknown from 140 to 160;  `140 gap 160 truncated`, `desync`, `missing`: why
//!   space 2                   what follows is in this address space
//!   tid 8                     ... of this thread
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::{
    AsyncCause, AuxOffset, AuxOwner, Avma, BranchEvent, BranchKind, CodeSource, Counters, CountersSince, Cpu,
    Cycles, EndKind, EventSink, EventTime, Executed, FunctionAt, FunctionId, FunctionKind, FunctionLookup,
    Gap, GapCause, Mark, NoCode, Ns, ObjectId, Pid, Region, Schedule, Sideband, SidebandRecord, Site,
    SpaceId, StretchCounters, Svma, Target, Tid, TraceEvent, Transfer, Waiting, WakerSeen, Waking,
};

use super::digests::check_ways_to_analyse;
use crate::branch_path::{self, BranchPath, BranchRecorder, To};
use crate::{
    Analysis, CallRow, CallSums, CallTree, CalledFrom, Caller, CheckedAnalysis, ChildKind, ChildRow,
    CodeDetail, CodeRequest, FunctionReport, OpenCaller, OpenCalls, OwnCode, PausedAnalysis, Place, Report,
    Request, Status, Step, Surroundings, TimeRow, TreeSink, Violation,
};

const SLOT: u64 = 0x1000;
const NAMES: [&str; 23] = [
    "?", "main", "f", "g", "h", "k", "plt", "loader", "handler", "restorer", "f2", "lib", "throw", "unnamed",
    "region", "region2", "entry", "sys", "read", "irq", "sched", "pmu_off", "pmu_on",
];

/// `lib` and `throw` are in another object.
const OTHER_OBJECT: u32 = 11;

/// Functions from `entry` on are the kernel's.
const FIRST_OF_KERNEL: u32 = 16;

/// In front of addresses of kernel code.
const KERNEL: u64 = 0xffff_ffff_8000_0000;

pub(super) fn id(name: &str) -> FunctionId {
    let slot = NAMES.iter().position(|n| *n == name);
    FunctionId(slot.unwrap_or_else(|| panic!("no function {name}")) as u32)
}

pub(super) fn function_name(id: FunctionId) -> &'static str {
    NAMES[id.0 as usize]
}

fn address(text: &str) -> Avma {
    let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
    let half = if id(name).0 >= FIRST_OF_KERNEL { KERNEL } else { 0 };
    Avma(half | (u64::from(id(name).0) * SLOT + u64::from_str_radix(offset, 16).unwrap()))
}

fn address_text(at: u64) -> String {
    let (name, offset) = (NAMES[((at & !KERNEL) / SLOT) as usize], at % SLOT);
    if offset == 0 { name.to_string() } else { format!("{name}+{offset:x}") }
}

/// The code and functions of a script.
struct Program {
    code: Vec<u8>,
    regions: BTreeMap<FunctionId, Region>,
    /// Landing pads, by where calls return to.
    pads: BTreeMap<Avma, Avma>,
}

impl CodeSource for Program {
    fn space(&self, _: Pid, _: Ns) -> SpaceId {
        SpaceId(0)
    }

    fn code(&self, _: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
        self.code.get(ip.0 as usize..).filter(|code| !code.is_empty()).ok_or(NoCode::Unmapped)
    }
}

impl FunctionLookup for Program {
    fn function_at(&self, _: SpaceId, ip: Avma) -> FunctionAt {
        let slot = (ip.0 & !KERNEL) / SLOT;
        if slot == 0 || slot >= NAMES.len() as u64 {
            return FunctionAt::UNKNOWN;
        }
        let id = FunctionId(slot as u32);
        FunctionAt { id, at_entry: ip.0.is_multiple_of(SLOT) && self.kind(id) == FunctionKind::Symbol }
    }

    fn place(&self, space: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)> {
        Some((self.object(self.function_at(space, ip).id)?, Svma(ip.0)))
    }

    fn kind(&self, id: FunctionId) -> FunctionKind {
        match NAMES[id.0 as usize] {
            "plt" => FunctionKind::Plt,
            "loader" => FunctionKind::Loader,
            "unnamed" | "?" => FunctionKind::Unnamed,
            _ => FunctionKind::Symbol,
        }
    }

    fn pad_of_call(&self, _: SpaceId, ret: Avma) -> Option<Avma> {
        self.pads.get(&ret).copied()
    }

    fn is_landing_pad(&self, _: SpaceId, ip: Avma) -> bool {
        self.pads.values().any(|pad| *pad == ip)
    }

    fn region(&self, id: FunctionId) -> Option<&Region> {
        self.regions.get(&id)
    }

    fn is_of_kernel(&self, id: FunctionId) -> bool {
        id.0 >= FIRST_OF_KERNEL
    }

    fn object(&self, id: FunctionId) -> Option<ObjectId> {
        (id != FunctionId::UNKNOWN).then_some(ObjectId(1 + u32::from(id.0 >= OTHER_OBJECT)))
    }
}

fn time(text: &str) -> EventTime {
    let ns: Vec<Ns> = text.split('/').map(|t| Ns(t.parse().unwrap())).collect();
    match ns[..] {
        [point] => EventTime::exact(point),
        [lo, point, hi] => EventTime { lo, point, hi },
        _ => panic!("no time: {text}"),
    }
}

fn record(at: u64, tid: Tid, body: Sideband) -> SidebandRecord {
    let pid = Some(Pid(7));
    SidebandRecord { time: Some(Ns(at)), cpu: Some(Cpu(3)), pid, tid: Some(tid), file_offset: 0, body }
}

fn cause(words: &[&str]) -> GapCause {
    match words {
        [] => GapCause::Overflow,
        ["overflow"] => GapCause::Overflow,
        ["truncated"] => GapCause::Truncated,
        ["desync"] => GapCause::Desync { ip: Avma(0) },
        ["missing"] => GapCause::MissingCode { object: ObjectId(1) },
        _ => panic!("no cause: {words:?}"),
    }
}

fn sideband(word: &str, args: &[&str], tid: Tid, out: &mut Vec<SidebandRecord>) {
    let at = |i: usize| args[i].parse().unwrap();
    match word {
        "off" => {
            out.push(record(at(0), tid, Sideband::Switch { out: true, preempted: false }));
            if args.len() > 1 {
                let back = record(at(1), tid, Sideband::Switch { out: false, preempted: false });
                let cpu = args.get(2).map_or(back.cpu, |cpu| Some(Cpu(cpu.parse().unwrap())));
                out.push(SidebandRecord { cpu, ..back });
            }
        }
        "slept" => {
            let tid_at = |i: usize| Tid(args[i].parse().unwrap());
            let waiting = Some(Box::new(Waiting { syscall: args[1].parse().ok(), stack: vec![] }));
            let leaves = Sideband::SchedSwitch { prev: tid, preempted: false, next: Tid(0), waiting };
            let waker = WakerSeen {
                pid: Pid(7),
                tid: tid_at(3),
                name: "w".to_owned(),
                stack: vec![],
                user_stack: vec![],
                is_perhaps_interrupted: false,
            };
            out.push(record(at(0), tid, leaves));
            out.push(record(at(0), tid, Sideband::Switch { out: true, preempted: false }));
            out.push(record(at(2), waker.tid, Sideband::SchedWaking(Box::new(Waking { tid, waker }))));
            out.push(record(at(4), tid, Sideband::Switch { out: false, preempted: false }));
        }
        "born" => {
            let parent_tid = Tid(1);
            let fork = Sideband::Fork { pid: Pid(7), tid, parent_pid: Pid(7), parent_tid };
            out.push(record(at(0), tid, fork));
        }
        "executed" => {
            out.push(record(at(0), tid, Sideband::Comm { pid: Pid(7), tid, name: String::new(), exec: true }))
        }
        "traced" => out.push(record(at(0), tid, Sideband::ItraceStart { pid: Pid(7), tid })),
        "late" => out.push(SidebandRecord { time: None, ..record(0, tid, Sideband::AttachedLate { tid }) }),
        "died" => out.push(record(at(0), tid, Sideband::Exit { pid: Pid(7), tid })),
        _ => panic!("what is {word}?"),
    }
}

impl Program {
    fn site(&self, text: &str, len: u8) -> Site {
        let ip = address(text);
        Site { ip, function: self.function_at(SpaceId(0), ip).id, len }
    }

    fn region_of(&self, starts: &str, ends: &str) -> Region {
        let marks = |text: &str| -> Vec<Mark> {
            text.split(',').filter_map(|text| self.place(SpaceId(0), address(text))).collect()
        };
        let functions = starts.split(',').chain(ends.split(',')).map(|text| self.target(text).function);
        Region { starts: marks(starts), ends: marks(ends), functions: functions.collect() }
    }

    fn target(&self, text: &str) -> Target {
        let ip = address(text);
        let at = self.function_at(SpaceId(0), ip);
        Target { ip, function: at.id, at_entry: at.at_entry }
    }

    fn transfer(&self, word: &str, args: &[&str]) -> Transfer {
        let kind = match word.trim_start_matches("out.") {
            "call" => BranchKind::Call,
            "icall" => BranchKind::IndirectCall,
            "ret" => BranchKind::Return,
            "ijmp" => BranchKind::IndirectJump,
            "jcc" => BranchKind::ConditionalJump,
            "abort" => BranchKind::Abort,
            "on" => BranchKind::RunsOn,
            _ => BranchKind::Jump,
        };
        let len = if matches!(kind, BranchKind::Call | BranchKind::IndirectCall) { 5 } else { 1 };
        let to_outside = args.get(1).map(|to| address(to));
        match word {
            "start" => Transfer::Start { to: self.target(args[0]), after_gap: false },
            "resume" => Transfer::Start { to: self.target(args[0]), after_gap: true },
            "syscall" => {
                Transfer::End { kind: EndKind::Syscall, from: self.site(args[0], 2), to: to_outside }
            }
            "async" => Transfer::End {
                kind: EndKind::Async(AsyncCause::Unknown),
                from: self.site(args[0], 0),
                to: to_outside,
            },
            "out.fall" => {
                Transfer::End { kind: EndKind::FallThrough, from: self.site(args[0], 1), to: to_outside }
            }
            _ if word.starts_with("out.") => {
                Transfer::End { kind: EndKind::Branch(kind), from: self.site(args[0], len), to: to_outside }
            }
            "call" | "icall" | "ret" | "jmp" | "ijmp" | "jcc" | "abort" | "on" => {
                Transfer::Branch { kind, from: self.site(args[0], len), to: self.target(args[1]) }
            }
            _ => panic!("what is {word}?"),
        }
    }
}

/// The times off the CPU of a script of one thread.
pub(super) fn schedule(script: &str) -> Schedule {
    let mut records = Vec::new();
    for line in script.lines() {
        let mut words = line.split_whitespace();
        if let Some(word @ ("off" | "slept")) = words.next() {
            sideband(word, &words.collect::<Vec<_>>(), Tid(7), &mut records);
        }
    }
    Schedule::new(&records)
}

/// The report on a script, asked for `f` unless `request` says otherwise.
#[track_caller]
pub(super) fn analyse(script: &str, request: Request) -> Report {
    let (report, violations) = analyse_and_check(script, request);
    assert_eq!(violations, [], "{script}");
    report
}

/// The report on a script that may be nonsense, and its violations.
pub(super) fn analyse_and_check(script: &str, request: Request) -> (Report, Vec<Violation>) {
    run(script, request, None)
}

/// The report on a script; `sink` takes the trees.
#[track_caller]
pub(super) fn analyse_trees(script: &str, request: Request, sink: &mut dyn TreeSink) -> Report {
    let (report, violations) = run(script, request, Some(sink));
    assert_eq!(violations, [], "{script}");
    report
}

/// The complete calls of `f` by the last event of a script, and those once no more events come.
pub(super) fn complete_by_the_end(script: &str) -> (u64, u64) {
    let Parsed { program, events, request, end, .. } = parse(script, Request::default());
    let schedule = Schedule::new(&[]);
    let mut analysis = Analysis::new(&request, surroundings(&program, &schedule, false, end));
    for (tid, space, event) in &events {
        analysis.events(Pid(7), *tid, *space, &[*event]);
    }
    let complete = |sums: &CallSums| sums.figures(true, None)[0].calls.complete;
    let mut sums = analysis.take_calls();
    let before = complete(&sums);
    analysis.decide_rest();
    sums.merge(&analysis.take_calls());
    (before, complete(&sums))
}

/// The report without rows by an analysis that stops before each event, while the schedule grows and
/// forgets; and the schedule at the end.
pub(super) fn in_parts(script: &str) -> (Report, Schedule) {
    let Parsed { program, events, mut records, request, has_ip_filter, end, .. } =
        parse(script, Request::default());
    records.sort_by_key(|record| record.time);
    let is_switch = |record: &SidebandRecord| {
        matches!(record.body, Sideband::Switch { .. } | Sideband::SwitchCpuWide { .. })
    };
    let mut schedule = Schedule::growing(true, records.iter().any(is_switch));
    let mut records = records.into_iter().peekable();
    let (mut sums, mut paused) = (CallSums::default(), None::<PausedAnalysis>);
    let next = events.iter().skip(1).map(|(.., event)| event.time().point).chain([end]);
    for ((tid, space, event), until) in events.iter().zip(next) {
        let new = std::iter::from_fn(|| records.next_if(|record| record.time <= Some(until)));
        schedule.grow(&new.collect::<Vec<_>>());
        let around = surroundings(&program, &schedule, has_ip_filter, end);
        let mut analysis = match paused.take() {
            Some(paused) => paused.resume(around),
            None => Analysis::new(&request, around),
        };
        analysis.events(Pid(7), *tid, *space, &[*event]);
        let ended = schedule.ended_before(until);
        analysis.finish_threads(&ended);
        sums.merge(&analysis.take_calls());
        let undecided = analysis.undecided_threads();
        paused = Some(analysis.pause(until));
        schedule.forget_before(until, &undecided);
        schedule.forget_threads(&ended);
    }
    let paused = paused.expect("a script has events");
    let mut summary =
        paused.resume(surroundings(&program, &schedule, has_ip_filter, end)).finish_with_summary();
    sums.add_to(&mut summary);
    (summary.into_report(), schedule)
}

/// What a script says.
struct Parsed {
    program: Program,
    events: Vec<(Tid, SpaceId, TraceEvent)>,
    records: Vec<SidebandRecord>,
    request: Request,
    has_ip_filter: bool,
    whole_cpus: bool,
    has_cyc: bool,
    /// Of the recording.
    end: Ns,
}

fn parse(script: &str, request: Request) -> Parsed {
    let code = vec![0x90; SLOT as usize * NAMES.len()];
    let mut program = Program { code, regions: BTreeMap::new(), pads: BTreeMap::new() };
    let (mut events, mut records) = (Vec::new(), Vec::new());
    let mut request = request;
    if request.functions.is_empty() {
        request.functions = vec![id("f")];
    }
    let (mut tid, mut space, mut has_ip_filter, mut has_cyc) = (Tid(7), SpaceId(0), false, true);
    let (mut whole_cpus, mut end) = (false, Ns(1000));
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["filter"] => has_ip_filter = true,
            ["whole_cpus"] => whole_cpus = true,
            ["no_cyc"] => has_cyc = false,
            ["ends", at] => end = Ns(at.parse().unwrap()),
            [name @ ("region" | "region2"), starts, ends] => {
                program.regions.insert(id(name), program.region_of(starts, ends));
            }
            ["stack_switches"] => request.stack_switches = true,
            ["code", "call", at, to] => {
                let (at, to) = (address(at).0, address(to).0);
                let displacement = (to as i64 - at as i64 - 5) as i32;
                program.code[at as usize] = 0xe8;
                program.code[at as usize + 1..][..4].copy_from_slice(&displacement.to_le_bytes());
            }
            ["code", "sigreturn", at] => {
                program.code[address(at).0 as usize..][..7].copy_from_slice(b"\xb8\x0f\0\0\0\x0f\x05");
            }
            ["pad", at, pad] => {
                program.pads.insert(address(at).plus(5), address(pad));
            }
            ["tid", number] => tid = Tid(number.parse().unwrap()),
            ["space", number] => space = SpaceId(number.parse().unwrap()),
            [from, "gap", to, ref why @ ..] => {
                let (from, to) = (time(from), time(to));
                let at = AuxOffset(events.len() as u64);
                let gap = Gap { from, to, bytes: 16, at, cause: cause(why) };
                events.push((tid, space, TraceEvent::Gap(gap)));
            }
            [word @ ("off" | "slept" | "born" | "died" | "traced" | "executed" | "late"), ref args @ ..] => {
                sideband(word, args, tid, &mut records)
            }
            [at, word, ref args @ ..] => {
                let transfer = program.transfer(word, args);
                let event = BranchEvent { time: time(at), at: AuxOffset(events.len() as u64), transfer };
                events.push((tid, space, TraceEvent::Branch(event)));
            }
            _ => panic!("what is {line}?"),
        }
    }
    Parsed { program, events, records, request, has_ip_filter, whole_cpus, has_cyc, end }
}

/// What a thread has executed by the time of an event: by each ns an instruction, two conditional branches
/// and three instructions of the kernel; and a cycle, which is as certain as the time, and the tenth of one
/// of the bus clock. `gaps`: of the thread, so far.
fn counters_at(event: &TraceEvent, has_cyc: bool, gaps: u32) -> Counters {
    let EventTime { lo, point, hi } = event.time();
    let executed = Executed {
        instructions: point.0,
        conditional_branches: 2 * point.0,
        indirect_branches: point.0,
        calls: point.0,
        kernel_instructions: 3 * point.0,
        gaps,
        kernel_gaps: 0,
    };
    let bus = point.0 * Cycles::BUS_UNITS / 10;
    let cycles = has_cyc.then_some(Cycles { lo: lo.0, point: point.0, hi: hi.0, bus, ..Cycles::default() });
    Counters { executed, cycles }
}

fn surroundings<'a>(
    program: &'a Program,
    schedule: &'a Schedule,
    has_ip_filter: bool,
    end: Ns,
) -> Surroundings<'a> {
    Surroundings {
        code: program,
        functions: program,
        schedule,
        window: (Ns(0), end),
        has_ip_filter,
        ..crate::nowhere::surroundings()
    }
}

fn run(script: &str, request: Request, sink: Option<&mut dyn TreeSink>) -> (Report, Vec<Violation>) {
    let Parsed { program, events, records, request, has_ip_filter, whole_cpus, has_cyc, end } =
        parse(script, request);
    let schedule = Schedule::new(&records);
    let around = surroundings(&program, &schedule, has_ip_filter, end);
    let around = Surroundings { traces_whole_cpus: whole_cpus, ..around };
    if sink.is_none() {
        check_ways_to_analyse(&request, around, &events);
    }
    let is_overflow =
        |event: &TraceEvent| matches!(event, TraceEvent::Gap(Gap { cause: GapCause::Overflow, .. }));
    let overflows = events.iter().filter(|(.., event)| is_overflow(event)).count() as u64;
    let mut analysis = match sink {
        Some(sink) => CheckedAnalysis::with_trees(&request, around, sink),
        None => CheckedAnalysis::new(&request, around),
    };
    let mut gaps: BTreeMap<Tid, u32> = BTreeMap::new();
    for (tid, space, event) in &events {
        if analysis.wants_counters() {
            let gaps = gaps.entry(*tid).or_default();
            *gaps += u32::from(matches!(event, TraceEvent::Gap(_)));
            let before = counters_at(event, has_cyc, *gaps);
            let at_events = &[CountersSince::default()];
            let counters = StretchCounters { before, at_events, has_cycles: false };
            analysis.counted(Pid(7), *tid, *space, &[*event], counters);
        } else {
            analysis.events(Pid(7), *tid, *space, &[*event]);
        }
    }
    analysis.overflows(AuxOwner::Cpu(Cpu(0)), overflows);
    analysis.finish()
}

/// The branches of each call of `f`: `from -> to`.
pub(super) fn branch_paths(script: &str) -> Vec<Vec<String>> {
    branch_paths_of("f", script)
}

/// The branches of each call of a function or region.
pub(super) fn branch_paths_of(name: &str, script: &str) -> Vec<Vec<String>> {
    let request = Request { functions: vec![id(name)], ..Request::default() };
    let rows = analyse(script, request).functions.swap_remove(0).rows;
    let Parsed { program, events, .. } = parse(script, Request::default());
    let mut recorder: BranchRecorder<'_, BranchPath> = BranchRecorder::new(&rows, &program);
    for (tid, space, event) in &events {
        recorder.events(Pid(7), *tid, *space, &[*event]);
    }
    let step = |step: &branch_path::BranchStep| {
        let to = match step.to {
            To::Place(to) => site_text(Some(to)),
            To::Kernel => "[kernel]".into(),
            To::Handler(to) => format!("[handler] {}", site_text(Some(to))),
            To::Outside => "[outside]".into(),
        };
        format!("{} -> {to}", site_text(Some(step.from)))
    };
    let paths = recorder.finish().into_iter().flatten();
    paths.map(|path| path.steps.iter().map(step).collect()).collect()
}

/// What calls of `f` did in their own code: straight code, then children, then the time left over.
pub(super) fn own_code(script: &str, detail: CodeDetail) -> Vec<String> {
    let Parsed { program, events, records, request, has_ip_filter, whole_cpus, end, .. } =
        parse(script, Request::default());
    let schedule = Schedule::new(&records);
    let around = surroundings(&program, &schedule, has_ip_filter, end);
    let around = Surroundings { traces_whole_cpus: whole_cpus, ..around };
    let code = CodeRequest { detail, groups: 1, group_of: Box::new(|_| Some(0)) };
    let mut analysis = Analysis::new(&request, around).with_code(code);
    for (tid, space, event) in &events {
        analysis.events(Pid(7), *tid, *space, &[*event]);
    }
    let (_, of_functions) = analysis.finish_with_code();
    let OwnCode { code, children, elsewhere, own_error_ns, .. } = &of_functions[0][0];
    let times = |time: &TimeRow| format!("x{} {} ns", time.total.count, time.total.sum_ns);
    let code = code.iter().map(|row| {
        let end = row.end.map_or("?".to_owned(), |end| {
            let before = if end.is_executed { "" } else { "<" };
            format!("{before}{}", address_text(end.at.svma.0))
        });
        format!("{}..{end} {}", address_text(row.start.svma.0), times(&row.time))
    });
    let children = children.iter().map(|(key, time)| {
        format!(
            "{} {} at {} {}",
            key.kind.name(),
            function_name(key.function),
            site_text(key.site),
            times(time)
        )
    });
    let rest = (elsewhere.sum_ns > 0).then(|| format!("elsewhere {} ns", elsewhere.sum_ns));
    let error = (*own_error_ns > 0).then(|| format!("own error {own_error_ns} ns"));
    code.chain(children).chain(rest).chain(error).collect()
}

fn site_text(site: Option<Place>) -> String {
    site.map_or("-".into(), |place| address_text(place.svma.0))
}

fn caller_text(from: CalledFrom) -> String {
    match from.caller {
        Caller::Function { tail: false, .. } => site_text(from.site),
        Caller::Function { tail: true, .. } => format!("jump {}", site_text(from.site)),
        Caller::Signal => "[signal]".into(),
        Caller::Interrupt => "[interrupt]".into(),
        Caller::Unknown => "[unknown]".into(),
    }
}

/// `start +latency status caller`, and the fields that are not 0.
pub(super) fn row_text(row: &CallRow) -> String {
    let at_least = if row.end.status.counted() { "+" } else { ">=" };
    let mut text = format!(
        "{} {at_least}{} {} {}",
        row.start_ns.0,
        row.latency_ns,
        row.end.status.name(),
        caller_text(row.from)
    );
    if let Caller::Function { function, .. } = row.from.caller {
        let place = row.from.site.unwrap();
        assert_eq!(u64::from(function.0), (place.svma.0 & !KERNEL) / SLOT, "the site belongs to the caller");
    }
    for (name, number) in
        [("error", row.error_ns), ("off", row.off_cpu_ns.unwrap_or(0)), ("depth", u64::from(row.depth))]
    {
        if number != 0 {
            write!(text, " {name} {number}").unwrap();
        }
    }
    if row.end.by_jump {
        text += " by jump";
    }
    if row.is_hidden() {
        text += " hidden";
    }
    if row.end.undecided {
        text += " undecided";
    }
    text
}

pub(super) fn callee_text(kind: ChildKind, function: FunctionId, site: Option<Place>) -> String {
    let name = NAMES[function.0 as usize];
    match (function, site) {
        (FunctionId::UNKNOWN, None) => kind.name().to_string(),
        (FunctionId::UNKNOWN, Some(_)) => format!("{} at {}", kind.name(), site_text(site)),
        (_, None) => format!("{} {name}", kind.name()),
        (_, Some(_)) => format!("{} {name} at {}", kind.name(), site_text(site)),
    }
}

/// Each node, indented by its depth: its kind and name, `start +total`, and figures that are not usual.
pub(super) fn tree_text(tree: &CallTree) -> Vec<String> {
    let error = |ns: u64| if ns == 0 { String::new() } else { format!(" error {ns}") };
    let line = |Step { node, depth, own, own_error_ns, .. }: Step<'_>| {
        let (callee, total) = (callee_text(node.kind, node.function, node.site), node.total);
        let mut text = format!("{:1$}{callee} {2} +{3}", "", 2 * depth, node.start.0, total.sum_ns);
        text += &error(node.error_ns);
        if own.sum_ns != total.sum_ns {
            write!(text, " self {}{}", own.sum_ns, error(own_error_ns)).unwrap();
        }
        if let (Some(off @ 1..), Some(own)) = (total.off_cpu_ns, own.off_cpu_ns) {
            write!(text, " off {off} self {own}").unwrap();
        }
        if total.count != 1 {
            write!(text, " x{}", total.count).unwrap();
        }
        if node.status != Status::Complete {
            write!(text, " {}", node.status.name()).unwrap();
        }
        text
    };
    tree.walk().map(line).collect()
}

fn child_text(child: &ChildRow) -> String {
    let mut text = callee_text(child.kind, child.function, child.site);
    write!(text, " x{} {}", child.total.count, child.total.sum_ns).unwrap();
    if let Some(off @ 1..) = child.total.off_cpu_ns {
        write!(text, " off {off}").unwrap();
    }
    text
}

/// Children rows.
pub(super) fn children_text(function: &FunctionReport) -> Vec<String> {
    function.figures.children.iter().map(child_text).collect()
}

/// The open calls, their children, and their callers.
pub(super) fn open_text(open: &OpenCalls) -> Vec<String> {
    let OpenCalls { observed, resumed, children, callers, overfull, longest: _ } = open;
    assert_eq!(*overfull, None);
    if observed.count == 0 {
        assert_eq!(*open, OpenCalls::default());
        return Vec::new();
    }
    let mut head = format!("{} call {}", observed.count, observed.sum_ns);
    for (name, ns) in [("off", observed.off_cpu_ns), ("resumed", Some(resumed.sum_ns))] {
        if let Some(ns) = ns.filter(|ns| *ns != 0) {
            write!(head, " {name} {ns}").unwrap();
        }
    }
    let caller =
        |c: &OpenCaller| format!("from {} x{} {}", caller_text(c.from), c.observed.count, c.observed.sum_ns);
    [head].into_iter().chain(children.iter().map(child_text)).chain(callers.iter().map(caller)).collect()
}

#[track_caller]
fn compare(what: &str, got: &[String], expect: &str) {
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(got, expect, "{what}");
}

/// Calls of `f`.
#[track_caller]
pub(super) fn check(script: &str, rows: &str) {
    let report = analyse(script, Request::default());
    let got: Vec<String> = report.functions[0].rows.iter().map(row_text).collect();
    compare("rows", &got, rows);
}

/// Calls of `region`, and the children of those that count.
#[track_caller]
pub(super) fn check_region(script: &str, rows: &str, children: &str) {
    let request = Request { functions: vec![id("region")], ..Request::default() };
    let report = analyse(script, request);
    let got: Vec<String> = report.functions[0].rows.iter().map(row_text).collect();
    compare("rows", &got, rows);
    compare("children", &children_text(&report.functions[0]), children);
}

/// Calls of `f`, and the children of those that count.
#[track_caller]
pub(super) fn check_children(script: &str, rows: &str, children: &str) {
    let report = analyse(script, Request::default());
    let got: Vec<String> = report.functions[0].rows.iter().map(row_text).collect();
    compare("rows", &got, rows);
    compare("children", &children_text(&report.functions[0]), children);
}

/// Calls of `f` below an ancestor and the like.
#[track_caller]
pub(super) fn check_request(script: &str, request: Request, rows: &str) {
    let report = analyse(script, request);
    let got: Vec<String> = report.functions[0].rows.iter().map(row_text).collect();
    compare("rows", &got, rows);
}
