//! Times the calls of functions by probes at their entries and ends, where there is no Intel PT; and tells
//! why recorded threads are off their CPUs, where there is.
//!
//! ```text
//! probe_points  a function's code -> where it is probed                  (pure)
//! programs      the eBPF programs that pair entries with ends (bpf/probes.bpf.c), loaded
//! attach        probes in processes
//! session       programs and functions, ready for a run
//! run           one run, step by step: count, time with children or without, end
//! records       what the programs tell -> a sink
//! stacks        where calls that were counted came from (bpf/stacks.h)
//! removal       probes that are being removed
//! wire          what programs and user space agree on (bpf/probes.h)
//! sched         the scheduler's events of what is recorded (bpf/sched.bpf.c, sched_wire)
//! offers        what this kernel has for probes
//! waker_stack   which stack of a waking thread is recorded
//! cost          what a probe costs here              (idle: on functions that do nothing; load: in between)
//! ```
//!
//! The programs pair entries and ends in the kernel, by the place of the return address on the stack, and
//! write one record for each call. They also follow the scheduler, so that each call has its time off the
//! CPU. `docs/uprobes.md` says why things are as they are.

mod attach;
mod cost;
mod error;
mod idle;
mod load;
mod offers;
mod probe_points;
mod programs;
mod records;
mod removal;
mod run;
mod sched;
mod sched_wire;
mod session;
mod stacks;
mod waker_stack;
mod wire;

pub use attach::{Part, ProbedFunction, ProbedPlace};
pub use cost::{Cost, Costs, EndCosts, LiveCosts};
pub use error::BpfError;
pub use offers::Offers;
pub use probe_points::{
    CallFrame, CodeError, CodePart, Ends, FunctionCode, ProbePoint, ProbePoints, RegionPlace,
};
pub use removal::{Removal, Removed};
pub use run::{Group, Hits, Placing, Run, Summary, now as monotonic_now, realtime_offset_ns};
pub use sched::{SchedBy, SchedSession};
pub use session::{INTERVAL, Room, Session};
pub use stacks::StackSeen;
pub use waker_stack::WakerStack;

/// Reads `bytes` as each kind of record that our programs write: for tests of what any bytes do.
#[doc(hidden)]
pub fn read_as_records(bytes: &[u8]) {
    let _ = wire::record(bytes);
    let _ = wire::thread(bytes, model::Ns(1));
    let _ = sched_wire::event(bytes);
}

/// What the kernel has for probes, if it accepts the programs.
///
/// # Errors
/// Why it does not.
pub fn try_programs() -> Result<Offers, BpfError> {
    let sizes =
        programs::Sizes { functions: 1, threads: 1, ring_bytes: 4096, waker_stack: WakerStack::Kernel };
    Ok(Offers::of(programs::Programs::load(sizes)?.has_multi))
}
