//! Rows of calls for tests.

use analyzer::{CallEnd, CallId, CallRow, CalledFrom, Evidence, Status, TracedRow};
use model::{FunctionId, Ns, Tid};

/// A call of one function, from outside of all that was seen: nothing but this is known of it.
pub(crate) fn row(tid: i32, number: u64, latency_ns: u64, status: Status) -> CallRow {
    CallRow {
        id: CallId { tid: Tid(tid), number },
        pid: None,
        cpu: None,
        start_ns: Ns(1000 + number),
        latency_ns,
        error_ns: 0,
        off_cpu_ns: None,
        end: CallEnd::of(status),
        from: CalledFrom::UNKNOWN,
        function: FunctionId(1),
        depth: 0,
        evidence: Evidence::Traced(TracedRow::default()),
    }
}
