//! The vocabulary of func_latency.
//!
//! Data flows one way: `perf.data` bytes become a [`Recording`]; its AUX bytes become [`TraceEvent`]s
//! (a [`BranchEvent`] or a [`Gap`], per thread, in order); those become calls and a report.  This crate
//! holds the types that cross a crate boundary on that way, and nothing that reads, decodes or prints.
//!
//! Units stand last in names (`start_ns`).  Each address space and each clock has its own type, because
//! mixing them up is the usual mistake of this field: see [`address`] and [`clock`].

pub mod address;
pub mod clock;
pub mod code;
pub mod counters;
pub mod event;
pub mod function_set;
pub mod gap;
pub mod ids;
pub mod ip_filter;
pub mod probe_cost;
pub mod probed;
pub mod recording;
pub mod sched;
pub mod schedule;
pub mod sideband;
pub mod stretch_counters;
pub mod unknown;

pub use address::{AuxOffset, Avma, FileOffset, Svma};
pub use clock::{ClockBehind, EventTime, Ns, Tsc, TscClock};
pub use code::{
    CodeSource, FunctionAt, FunctionId, FunctionKind, FunctionLookup, FunctionStretch, Mark, NoCode,
    ObjectId, Region, SpaceId,
};
pub use counters::{Counters, Cycles, Executed};
pub use event::{
    AsyncCause, BranchEvent, BranchKind, DigestSink, DigestedRun, Digester, EndKind, EventSink, RunEvents,
    RunPart, Site, Target, TraceEvent, Transfer, WholeRun,
};
pub use function_set::FunctionSet;
pub use gap::{Gap, GapCause};
pub use ids::{Cpu, Pid, Tid};
pub use ip_filter::IpFilter;
pub use probe_cost::{CallProbes, ProbeCost, ProbeTime};
pub use probed::{
    LostCalls, OffCpuInterval, OffCpuSplit, ProbeSink, ProbedCall, ProbedEnd, ProbedSlice, ProbedThread,
    WakerSeen,
};
pub use recording::{
    AuxBuffer, AuxOwner, AuxPiece, AuxRecord, ClockOffsets, CpuCoverage, CpuModel, Damage, PtConfig,
    Recording,
};
pub use sched::{SchedBody, SchedEvent, SchedTask, Waiting, Waking};
pub use schedule::Schedule;
pub use sideband::{BuildId, Inode, Mmap, Sideband, SidebandRecord};
pub use stretch_counters::{CountersSince, ExecutedSince, StretchCounters};
pub use unknown::{NoOffCpu, NoTimes};
