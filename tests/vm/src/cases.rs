//! The live cases.

use crate::case::{Case, Losses, Word};

const NEST: &[&str] = &["nest", "20"];
const NEST_FUNCTIONS: &[&str] = &["leaf", "mid", "outer"];
const THREADS_FUNCTIONS: &[&str] = &["inner", "work", "locked", "jumper", "fibonacci"];

/// `perf record` with CYC, and an MTC about every 20 us: the emulated CPU takes so long for an instruction.
const PERF: &[&str] =
    &["perf", "record", "-B", "-N", "-e", "intel_pt/cyc,mtc_period=9/u", "-o", Word::DATA, Word::TARGET];

/// What most cases have in common.
const LIKE_PERF: Case =
    Case { name: "", knobs: &[], cpus: 1, target: NEST, command: PERF, counted: &[], losses: Losses::None };

/// All of them, in the order in which they run.
pub const CASES: &[Case] = &[
    Case { name: "perf-nest", counted: NEST_FUNCTIONS, ..LIKE_PERF },
    Case {
        name: "perf-noretcomp",
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
        ..LIKE_PERF
    },
    Case {
        name: "perf-long-tnt",
        knobs: &[("long_tnt", 1)],
        command: &["perf", "record", "-B", "-N", "-e", "intel_pt/mtc=0/u", "-o", Word::DATA, Word::TARGET],
        counted: NEST_FUNCTIONS,
        ..LIKE_PERF
    },
    Case {
        name: "perf-filter",
        target: &["nest", "200"],
        command: &[
            "perf",
            "record",
            "-B",
            "-N",
            "-e",
            "intel_pt/cyc/u",
            "--filter",
            "filter outer @ {programs}/nest",
            "-o",
            Word::DATA,
            Word::TARGET,
        ],
        counted: &["outer"],
        ..LIKE_PERF
    },
    Case { name: "perf-threads", target: &["threads"], counted: THREADS_FUNCTIONS, ..LIKE_PERF },
    Case {
        name: "perf-threads-filters",
        target: &["threads"],
        command: &[
            "perf",
            "record",
            "-B",
            "-N",
            "-e",
            "intel_pt/cyc/u",
            "--filter",
            "filter work @ {programs}/threads, filter inner @ {programs}/threads",
            "-o",
            Word::DATA,
            Word::TARGET,
        ],
        counted: &["inner", "work"],
        ..LIKE_PERF
    },
    Case {
        name: "perf-100-threads",
        target: &["threads", "100", "1"],
        counted: THREADS_FUNCTIONS,
        ..LIKE_PERF
    },
    Case { name: "perf-migrant", cpus: 2, target: &["migrant"], counted: &["step", "journey"], ..LIKE_PERF },
    Case { name: "perf-two-cpus", cpus: 2, target: &["threads"], counted: THREADS_FUNCTIONS, ..LIKE_PERF },
    Case { name: "perf-family", target: &["family"], counted: &["chore"], ..LIKE_PERF },
    Case {
        name: "perf-attach",
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
            "intel_pt/cyc/u",
            "-o",
            Word::DATA,
            "sleep",
            "0.3",
        ],
        ..LIKE_PERF
    },
    Case {
        name: "perf-exit",
        target: &["server", "500"],
        command: &["perf", "record", "-B", "-N", "-p", Word::PID, "-e", "intel_pt/cyc/u", "-o", Word::DATA],
        ..LIKE_PERF
    },
    Case {
        name: "perf-overflow",
        knobs: &[("overflow_every", 1000)],
        losses: Losses::Overflows,
        ..LIKE_PERF
    },
    Case { name: "perf-full", knobs: &[("full_every", 20_000)], losses: Losses::Full, ..LIKE_PERF },
    Case { name: "perf-damage", knobs: &[("damage_every", 20_000)], losses: Losses::Damage, ..LIKE_PERF },
];
