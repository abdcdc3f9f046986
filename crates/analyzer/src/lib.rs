//! Branches to calls, calls to figures.
//!
//! [`Analysis`] is a [`model::EventSink`]: it takes the control transfers and gaps of every thread in order,
//! keeps a stack of frames per thread, and gathers the calls of the wanted functions into a [`Report`]. It is
//! pure and works in one pass; what it keeps grows with the number of different latencies of the wanted
//! functions (each once, with its count; a row for each call if asked for) and with the open frames, not with
//! the length of the trace.
//!
//! ```text
//!   events of a thread
//!     -> transfers  tracing starts, goes on and stops
//!        branches   calls, returns, tail calls, stubs
//!        landing    exceptions and longjmp: which frame did control land in?
//!        kernel     system calls, interrupts, signals
//!        filter     what lies outside the IP filter    -> frames (of a thread; undecided: of a hypothesis)
//!        regions    code between two places, in a frame of these (region_calls)
//!     -> a call ends: its row, what its children took (activation, ended, children), its tree if asked for
//!     -> aggregate  figures by function and caller                   -> Report
//!   trees of slow and of typical calls -> ledger       what makes the difference
//!   all their branches                 -> branch_path  where they part
//!   trees of all calls                 -> modes        the ways that calls go
//!   figures of runs, or of blocks of calls -> samples   what repeated runs say
//! ```
//!
//! [`ProbedAnalysis`] takes calls that probes have paired already ([`model::ProbeSink`]) to the same figures.
//!
//! What a call is, when it counts as complete and what a child is: `docs/architecture.md`, and the tests in
//! `rules`, one for each rule. Functions are ids and instructions are places here; it is `image` that names
//! them.

mod activation;
mod activation_pool;
mod aggregate;
mod analysis;
mod asked;
pub mod branch_path;
mod branches;
mod by_row;
mod call_row;
mod call_site;
mod call_sums;
mod certainty;
pub mod check;
mod checked_analysis;
mod children;
mod code_map;
mod control;
mod counted;
mod counted_sums;
mod counting;
mod digest;
mod durations;
mod ended;
mod entered;
mod event_by_event;
mod figures;
mod filter;
mod finished;
mod frames;
mod gatherer;
mod ghosts;
mod held;
mod hidden;
pub mod histogram;
mod kept_calls;
mod kernel;
mod kernel_frames;
mod kernel_level;
mod kernel_part;
mod landing;
pub mod ledger;
mod lives;
mod look_ahead;
mod loss;
mod maybe_ip;
mod metric;
pub mod modes;
mod nowhere;
mod off_cpu;
mod off_cpu_causes;
mod open_calls;
mod open_region;
mod own_code;
mod passed;
mod place;
mod plain_children;
mod probed;
mod ran;
mod region_calls;
mod regions;
mod renumber;
pub mod report;
pub mod request;
mod row_children;
mod row_output;
mod row_reasons;
mod row_sink;
#[cfg(test)]
mod rules;
mod running;
mod runs;
pub mod samples;
mod session;
mod slowest;
mod sorted_pairs;
mod sparse;
mod stack;
pub mod stats;
mod status;
mod summary;
mod taken;
mod thread;
mod thread_clock;
mod total;
mod traced_causes;
mod traced_sums;
mod transfers;
pub mod tree;
mod undecided;
mod waits;
mod window;
mod work;

pub use analysis::{Analysis, PausedAnalysis};
pub use call_row::{CallId, CallRow, Evidence, ProbedRow, SliceKind, TracedRow};
pub use call_sums::CallSums;
pub use check::{Violation, check, check_with};
pub use checked_analysis::CheckedAnalysis;
pub use children::{ChildKey, ChildRow};
pub use counted::{Counted, CycleCount};
pub use counted_sums::CounterReport;
pub use digest::{RunDigest, RunDigester};
pub use durations::SortedDurations;
pub use event_by_event::EventByEvent;
pub use histogram::Bucket;
pub use ledger::Ledger;
pub use metric::{CountBucket, CountFigure, CountSpread, Distribution, Metric};
pub use off_cpu_causes::{
    OffCpuCauses, Reason, ReasonRow, RowWait, StackNames, ToldBy, Waker, WakerRow, WakerStackRow,
};
pub use open_calls::{OpenCaller, OpenCalls};
pub use own_code::{CodeBegin, CodeDetail, CodeEnd, CodeRequest, CodeRow, GroupOf, OwnCode, TimeRow};
pub use place::{CalledFrom, Caller, ChildKind, Place};
pub use probed::{ProbedAnalysis, ProbedParts};
pub use renumber::NewIds;
pub use report::{
    CallCounts, CallFigures, CallerReport, CauseLoss, CpuLoss, ErrorBound, FunctionReport, GapPlace, Limits,
    Loss, OutermostCalls, Report, RowDetails, Sliced, Tails, ThreadLoss, TraceSummary, Untimed,
};
pub use request::{Ancestor, CountersAsked, LatencyRange, Request, StartWindow, Surroundings, scheduler};
pub use row_children::{RowChild, RowChildren};
pub use row_reasons::{RowReason, RowReasons};
pub use row_sink::{PartOfRow, RowGap, RowParts, RowSink};
pub use slowest::SlowestCalls;
pub use stats::{Quantiles, Spread, Stats};
pub use status::{CallEnd, Cut, CutCause, Status};
pub use summary::Summary;
pub use total::Total;
pub use tree::{CallTree, FoundPaths, Node, Paths, ShortCalls, Step, TreeSink, Trees, off_cpu_spans};
pub use waits::{Wait, Waits};
pub use work::Work;
