//! Branches to calls, histograms, children, callers.

pub mod histogram;
pub mod report;
pub mod stats;

pub use histogram::Bucket;
pub use report::{
    CallCounts, CallId, CallRow, Caller, CallerReport, CauseLoss, ChildKind, ChildRow, FunctionReport, Limits,
    Loss, Place, Report, Status, ThreadLoss, Total, TraceSummary,
};
pub use stats::{Spread, Stats};
