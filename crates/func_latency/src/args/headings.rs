//! The groups that `--help` shows options in.

/// Functions, processes, threads.
pub(super) const TARGET: &str = "What to look at";
/// Calls of them.
pub(super) const CALLS: &str = "Which calls";
/// Code and decoder.
pub(super) const DECODING: &str = "Decoding";
/// The report on stdout.
pub(super) const REPORT: &str = "Report";
/// What is written besides.
pub(super) const FILES: &str = "Files to write";
/// How large what is written for viewers of timelines gets.
pub(super) const TIMELINES: &str = "Timelines";
/// What makes a report fail.
pub(super) const CHECKS: &str = "Checks";
/// How a recording is made.
pub(super) const RECORDING: &str = "Recording";
/// What `watch` keeps.
pub(super) const CAPTURES: &str = "Captures";
/// How probes time calls.
pub(super) const PROBES: &str = "Probes (where there is no Intel PT)";
/// How often something is run.
pub(super) const RUNS: &str = "Runs";
/// Without effect, or older names of what there is.
pub(super) const OLD: &str = "Taken, so that command lines of PT_PERF run";

/// What a recording needs; options without a heading, too.
pub(super) const OF_RECORDINGS: [&str; 2] = [TARGET, RECORDING];

/// What has no effect on runs that are repeated, but for the options that [`OF_RUNS`] names.
pub(super) const NOT_OF_RUNS: [&str; 3] = [REPORT, FILES, OLD];
/// Options of runs in these groups.
pub(super) const OF_RUNS: [&str; 2] = ["format", "save"];

/// What has no effect on a recording.
pub(super) const OF_REPORTS: [&str; 5] = [CALLS, DECODING, REPORT, FILES, CHECKS];
