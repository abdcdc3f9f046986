//! The live cases.

use crate::case::{Case, Losses, Word};

const NEST: &[&str] = &["nest", "20"];
const NEST_FUNCTIONS: &[&str] = &["leaf", "mid", "outer"];
const THREADS_FUNCTIONS: &[&str] = &["inner", "work", "locked", "jumper", "fibonacci"];

/// CYC, and an MTC about every 20 us: the emulated CPU takes so long for an instruction.
const EVENT: &str = "intel_pt/cyc,mtc_period=9/u";

/// All of them, in the order in which they run.
pub const CASES: &[Case] = &[
    Case {
        name: "perf-nest",
        knobs: &[],
        target: NEST,
        command: &["perf", "record", "-B", "-N", "-e", EVENT, "-o", Word::DATA, Word::TARGET],
        counted: NEST_FUNCTIONS,
        losses: Losses::None,
    },
    Case {
        name: "perf-noretcomp",
        knobs: &[],
        target: NEST,
        command: &[
            "perf",
            "record",
            "-B",
            "-N",
            "-e",
            "intel_pt/cyc,noretcomp/u",
            "-o",
            Word::DATA,
            Word::TARGET,
        ],
        counted: NEST_FUNCTIONS,
        losses: Losses::None,
    },
    Case {
        name: "perf-long-tnt",
        knobs: &[("long_tnt", 1)],
        target: NEST,
        command: &["perf", "record", "-B", "-N", "-e", "intel_pt/mtc=0/u", "-o", Word::DATA, Word::TARGET],
        counted: NEST_FUNCTIONS,
        losses: Losses::None,
    },
    Case {
        name: "perf-filter",
        knobs: &[],
        target: &["nest", "500"],
        command: &[
            "perf",
            "record",
            "-B",
            "-N",
            "-e",
            EVENT,
            "--filter",
            "filter outer @ {programs}/nest",
            "-o",
            Word::DATA,
            Word::TARGET,
        ],
        counted: &["outer"],
        losses: Losses::None,
    },
    Case {
        name: "perf-threads",
        knobs: &[],
        target: &["threads"],
        command: &["perf", "record", "-B", "-N", "-e", EVENT, "-o", Word::DATA, Word::TARGET],
        counted: THREADS_FUNCTIONS,
        losses: Losses::None,
    },
    Case {
        name: "perf-threads-filters",
        knobs: &[],
        target: &["threads"],
        command: &[
            "perf",
            "record",
            "-B",
            "-N",
            "-e",
            EVENT,
            "--filter",
            "filter work @ {programs}/threads, filter inner @ {programs}/threads",
            "-o",
            Word::DATA,
            Word::TARGET,
        ],
        counted: &["inner", "work"],
        losses: Losses::None,
    },
    Case {
        name: "perf-attach",
        knobs: &[],
        target: &["server"],
        command: &[
            "perf",
            "record",
            "-B",
            "-N",
            "--per-thread",
            "-p",
            Word::PID,
            "-e",
            EVENT,
            "-o",
            Word::DATA,
            "sleep",
            "0.3",
        ],
        counted: &[],
        losses: Losses::None,
    },
    Case {
        name: "perf-overflow",
        knobs: &[("overflow_every", 1000)],
        target: NEST,
        command: &["perf", "record", "-B", "-N", "-e", EVENT, "-o", Word::DATA, Word::TARGET],
        counted: &[],
        losses: Losses::Overflows,
    },
    Case {
        name: "perf-full",
        knobs: &[("full_every", 20_000)],
        target: NEST,
        command: &["perf", "record", "-B", "-N", "-e", EVENT, "-o", Word::DATA, Word::TARGET],
        counted: &[],
        losses: Losses::Full,
    },
    Case {
        name: "perf-damage",
        knobs: &[("damage_every", 20_000)],
        target: NEST,
        command: &["perf", "record", "-B", "-N", "-e", EVENT, "-o", Word::DATA, Word::TARGET],
        counted: &[],
        losses: Losses::Damage,
    },
];
