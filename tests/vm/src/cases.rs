//! The live cases.

use crate::case::{Case, Losses, Recorder, Start, Word};

const NEST_FUNCTIONS: &[&str] = &["leaf", "mid", "outer"];
const THREADS_FUNCTIONS: &[&str] = &["inner", "work", "locked", "jumper", "fibonacci"];

/// By perf, with CYC, and an MTC about every 20 us: the emulated CPU takes so long for an instruction.
const PERF: Case = Case {
    name: "",
    knobs: &[],
    cpus: 1,
    target: &["nest", "20"],
    start: Start::ByRecorder,
    recorder: Recorder::Perf,
    arguments: &["-e", "intel_pt/cyc,mtc_period=9/u", Word::TARGET],
    counted: &[],
    untraced: &[],
    losses: Losses::None,
    sched: false,
};

/// The command on a running target: one second is long here, and the target's end is the window's.
const LIVE: Case = Case {
    start: Start::Waits,
    recorder: Recorder::FuncLatency,
    arguments: &["-p", Word::PID, "-d", "20", "-f", "leaf", "-f", "mid", "-f", "outer"],
    ..PERF
};

/// All of them, in the order in which they run.
pub const CASES: &[Case] = &[
    // The machine starts with two CPUs; to switch one on again takes half a minute.
    Case { name: "perf-migrant", cpus: 2, target: &["migrant"], counted: &["stride", "journey"], ..PERF },
    Case {
        name: "live-migrant",
        cpus: 2,
        target: &["migrant"],
        arguments: &["-p", Word::PID, "-d", "20", "-f", "journey"],
        counted: &["stride", "journey"],
        ..LIVE
    },
    Case {
        name: "live-migrant-thread-buffers",
        cpus: 2,
        target: &["migrant"],
        arguments: &["-p", Word::PID, "-d", "20", "-t", "-f", "journey"],
        counted: &["stride", "journey"],
        ..LIVE
    },
    Case {
        name: "live-two-cpus",
        cpus: 2,
        target: &["threads"],
        arguments: &["-p", Word::PID, "-d", "20", "-f", "work"],
        counted: THREADS_FUNCTIONS,
        ..LIVE
    },
    Case {
        name: "live-one-of-two-cpus",
        cpus: 2,
        target: &["migrant"],
        arguments: &["-C", "0", "-p", Word::PID, "-d", "20", "-f", "journey"],
        counted: &["stride", "journey"],
        ..LIVE
    },
    Case {
        name: "live-whole-cpu",
        cpus: 2,
        target: &["migrant"],
        arguments: &["-C", "0", "-d", "2", "-f", "journey"],
        counted: &["stride", "journey"],
        ..LIVE
    },
    Case {
        name: "live-filters-two-cpus",
        cpus: 2,
        target: &["threads"],
        arguments: &["-p", Word::PID, "-d", "20", "-i", "-f", "work", "-f", "inner"],
        counted: &["work", "inner"],
        ..LIVE
    },
    Case { name: "perf-nest", counted: NEST_FUNCTIONS, ..PERF },
    Case {
        name: "perf-noretcomp",
        arguments: &["-e", "intel_pt/cyc,noretcomp/u", Word::TARGET],
        counted: NEST_FUNCTIONS,
        ..PERF
    },
    Case {
        name: "perf-long-tnt",
        knobs: &[("long_tnt", 1)],
        arguments: &["-e", "intel_pt/mtc_period=9/u", Word::TARGET],
        counted: NEST_FUNCTIONS,
        ..PERF
    },
    Case {
        name: "perf-filter",
        target: &["nest", "200"],
        arguments: &["-e", "intel_pt/cyc/u", "--filter", "filter outer @ {programs}/nest", Word::TARGET],
        counted: &["outer"],
        ..PERF
    },
    Case { name: "perf-threads", target: &["threads"], counted: THREADS_FUNCTIONS, ..PERF },
    Case {
        name: "perf-threads-filters",
        target: &["threads"],
        arguments: &[
            "-e",
            "intel_pt/cyc/u",
            "--filter",
            "filter work @ {programs}/threads, filter inner @ {programs}/threads",
            Word::TARGET,
        ],
        counted: &["inner", "work"],
        ..PERF
    },
    Case { name: "perf-50-threads", target: &["threads", "50", "1"], counted: THREADS_FUNCTIONS, ..PERF },
    Case { name: "perf-family", target: &["family"], counted: &["chore"], ..PERF },
    Case {
        name: "perf-attach",
        target: &["server"],
        start: Start::Runs,
        arguments: &["--per-thread", "-T", "-p", Word::PID, "-e", "intel_pt/cyc/u", "sleep", "0.3"],
        counted: &["hot", "handle"],
        ..PERF
    },
    Case {
        name: "perf-exit",
        target: &["server", "20"],
        start: Start::Waits,
        arguments: &["-p", Word::PID, "-e", "intel_pt/cyc/u"],
        counted: &["hot", "handle"],
        ..PERF
    },
    Case {
        name: "perf-overflow",
        knobs: &[("overflow_every", 1000)],
        counted: NEST_FUNCTIONS,
        losses: Losses::Overflows,
        ..PERF
    },
    Case {
        name: "perf-full",
        knobs: &[("full_every", 20_000)],
        target: &["nest", "300"], // long enough for perf to read the full buffer while calls still run
        counted: NEST_FUNCTIONS,
        losses: Losses::Full,
        ..PERF
    },
    Case {
        name: "perf-damage",
        knobs: &[("damage_every", 20_000)],
        target: &["nest", "100"], // long enough for damage not to hide all calls
        counted: NEST_FUNCTIONS,
        losses: Losses::Damage,
        ..PERF
    },
    Case { name: "live-nest", counted: NEST_FUNCTIONS, ..LIVE },
    Case {
        name: "live-launched",
        start: Start::ByRecorder,
        arguments: &["-f", "outer", "--", Word::TARGET],
        counted: NEST_FUNCTIONS,
        ..LIVE
    },
    Case {
        name: "live-filter",
        target: &["nest", "200"],
        arguments: &["-p", Word::PID, "-d", "20", "-i", "-f", "outer"],
        counted: &["outer"],
        ..LIVE
    },
    Case {
        name: "live-filter-launched",
        target: &["nest", "200"],
        start: Start::ByRecorder,
        arguments: &["-i", "-f", "outer", "-f", "leaf", "--", Word::TARGET],
        counted: &["outer", "leaf"],
        ..LIVE
    },
    // The kernel cannot filter a running process for what lies where its text shares a file page with
    // constants: all is traced.
    Case {
        name: "live-filter-first",
        target: &["edges"],
        arguments: &["-p", Word::PID, "-d", "20", "-i", "-f", "first"],
        counted: &["first", "middle", "last"],
        ..LIVE
    },
    Case {
        name: "live-filter-last",
        target: &["edges"],
        arguments: &["-p", Word::PID, "-d", "20", "-i", "-f", "last"],
        counted: &["last"],
        untraced: &["first", "middle"],
        ..LIVE
    },
    Case {
        name: "live-filter-edges-launched",
        target: &["edges"],
        start: Start::ByRecorder,
        arguments: &["-i", "-f", "first", "-f", "last", "--", Word::TARGET],
        counted: &["first", "last"],
        untraced: &["middle"],
        ..LIVE
    },
    Case {
        name: "live-ancestor",
        arguments: &["-p", Word::PID, "-d", "20", "-i", "-f", "leaf", "-a", "outer"],
        counted: &["leaf"],
        ..LIVE
    },
    Case {
        name: "live-thread-buffers",
        arguments: &["-p", Word::PID, "-d", "20", "-t", "-f", "outer"],
        counted: NEST_FUNCTIONS,
        ..LIVE
    },
    Case {
        name: "live-tid",
        arguments: &["-T", Word::PID, "-d", "20", "-f", "outer"],
        counted: NEST_FUNCTIONS,
        ..LIVE
    },
    Case {
        name: "live-cpu",
        arguments: &["-C", "0", "-p", Word::PID, "-d", "20", "-f", "outer"],
        counted: NEST_FUNCTIONS,
        ..LIVE
    },
    Case {
        name: "live-off-cpu",
        target: &["server", "20"],
        arguments: &["-p", Word::PID, "-d", "20", "-o", "-f", "handle"],
        counted: &["hot", "handle"],
        ..LIVE
    },
    Case {
        name: "live-window",
        target: &["server"],
        start: Start::Runs,
        arguments: &["-p", Word::PID, "-d", "0.3", "-f", "handle"],
        counted: &["hot", "handle"],
        ..LIVE
    },
    Case {
        name: "live-window-thread-buffers",
        target: &["server"],
        start: Start::Runs,
        arguments: &["-p", Word::PID, "-d", "0.3", "-t", "-f", "handle"],
        counted: &["hot", "handle"],
        ..LIVE
    },
    Case {
        name: "live-threads",
        target: &["threads"],
        arguments: &["-p", Word::PID, "-d", "20", "-f", "work"],
        counted: THREADS_FUNCTIONS,
        ..LIVE
    },
    Case {
        name: "live-sched",
        target: &["waits"],
        arguments: &[
            "-p",
            Word::PID,
            "-d",
            "20",
            "--waker-stacks",
            "-f",
            "sleeps",
            "-f",
            "waits",
            "-f",
            "spins",
        ],
        counted: &["sleeps", "waits", "spins"],
        sched: true,
        ..LIVE
    },
    Case {
        name: "live-newborn-thread-buffers",
        target: &["births"],
        arguments: &["-p", Word::PID, "-d", "20", "-t", "-f", "stage"],
        counted: &["leaf", "stage"],
        losses: Losses::Births,
        ..LIVE
    },
    Case {
        name: "live-200-threads",
        target: &["threads", "200", "1"],
        arguments: &["-p", Word::PID, "-d", "30", "-f", "work"],
        counted: THREADS_FUNCTIONS,
        ..LIVE
    },
    Case {
        name: "live-family",
        target: &["family"],
        arguments: &["-p", Word::PID, "-d", "20", "--follow", "-f", "chore"],
        counted: &["chore"],
        ..LIVE
    },
    Case {
        name: "live-brood",
        target: &["brood"],
        arguments: &["-p", Word::PID, "-d", "20", "--follow", "-f", "chore"],
        counted: &["chore"],
        ..LIVE
    },
    Case {
        name: "live-brood-filter-thread-buffers",
        target: &["brood"],
        arguments: &["-p", Word::PID, "-d", "20", "--follow", "-i", "-t", "-f", "chore"],
        counted: &["chore"],
        ..LIVE
    },
    Case {
        name: "live-overflow",
        knobs: &[("overflow_every", 1000)],
        counted: NEST_FUNCTIONS,
        losses: Losses::Overflows,
        ..LIVE
    },
    Case {
        name: "live-full",
        knobs: &[("full_every", 20_000)],
        counted: NEST_FUNCTIONS,
        losses: Losses::Full,
        ..LIVE
    },
    Case {
        name: "live-stalled",
        target: &["nest", "300"],
        arguments: &["-p", Word::PID, "-d", "20", "-m", "64K", "-f", "outer"],
        counted: NEST_FUNCTIONS,
        losses: Losses::Stalled,
        ..LIVE
    },
    Case {
        name: "live-damage",
        knobs: &[("damage_every", 20_000)],
        counted: NEST_FUNCTIONS,
        losses: Losses::Damage,
        ..LIVE
    },
];
