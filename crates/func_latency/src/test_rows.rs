//! Rows of calls for tests.

use analyzer::{CallId, CallRow, Caller, Status};
use model::{FunctionId, Ns, Tid};

/// A call of one function, from outside of all that was seen: nothing but this is known of it.
pub(crate) fn row(tid: i32, number: u64, latency_ns: u64, status: Status) -> CallRow {
    CallRow {
        id: CallId { tid: Tid(tid), number },
        pid: None,
        tid: Tid(tid),
        cpu: None,
        start_ns: Ns(1000 + number),
        latency_ns,
        error_ns: 0,
        off_cpu_ns: None,
        status,
        cut_by: None,
        caller: Caller::Unknown,
        site: None,
        function: FunctionId(1),
        depth: 0,
        ended_by_jump: false,
        hidden: false,
        undecided: false,
        aux_buffer: None,
        aux_offset: None,
        probed: None,
        counted: None,
    }
}
