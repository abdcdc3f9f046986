//! What the programs tell: records in a ring, and of calls that are open what their map has.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use model::{LostCalls, Ns, OffCpuSplit, ProbeSink, ProbedCall, ProbedEnd, ProbedThread};

use crate::error::BpfError;
use crate::programs::Programs;
use crate::wire::{self, ThreadState, Told};

/// Records that are read at a time.
const RECORDS: usize = 4096;

/// What is read in one go: a ring that is filled as fast as it is read must not keep us from seeing the
/// window's end.
const RECORDS_MAX: usize = 1 << 20;

type Record = (Option<LostCalls>, Told);

/// The ring.
pub(crate) struct Records {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<Record>>>,
}

impl Records {
    /// Of these programs.
    pub(crate) fn of(programs: &Programs) -> Result<Self, BpfError> {
        let failed = BpfError::other("cannot read the ring");
        let read = Rc::new(RefCell::new(Vec::new()));
        let keep = Rc::clone(&read);
        let map = programs.map("calls")?;
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            keep.borrow_mut().extend(wire::record(bytes));
            0
        };
        builder.add(&map, take).map_err(&failed)?;
        let ring = builder.build().map_err(&failed)?;
        Ok(Self { ring, read })
    }

    /// Gives the records in the ring to the sink.
    pub(crate) fn read(&self, taken: &mut Taken<'_>) -> Result<(), BpfError> {
        for _ in 0..RECORDS_MAX / RECORDS {
            let count = self.ring.consume_raw_n(RECORDS);
            self.read.borrow_mut().drain(..).for_each(|record| taken.record(record));
            match usize::try_from(count) {
                Err(_) => {
                    return Err(BpfError::Other { doing: "cannot read the ring", what: format!("{count}") });
                }
                Ok(count) if count < RECORDS => break,
                Ok(_) => (),
            }
        }
        Ok(())
    }
}

/// What was open, and what no later record has told.
pub(crate) fn read_threads(programs: &Programs, taken: &mut Taken<'_>) -> Result<(), BpfError> {
    let map = programs.map("threads")?;
    let states = map.keys().filter_map(|key| {
        let bytes = map.lookup(&key, MapFlags::ANY).ok().flatten()?;
        wire::thread(&bytes, taken.window.1)
    });
    let mut states: Vec<ThreadState> = states.collect();
    states.sort_by_key(|state| state.life.tid);
    for state in states {
        taken.thread(&state.life);
        state.lost.iter().for_each(|lost| taken.lost(lost));
        state.open.iter().rev().for_each(|call| taken.call(call));
    }
    Ok(())
}

/// What is in the window goes to the sink.
pub(crate) struct Taken<'s> {
    pub(crate) sink: &'s mut dyn ProbeSink,
    pub(crate) window: (Ns, Ns),
}

impl Taken<'_> {
    fn record(&mut self, (lost, told): Record) {
        lost.iter().for_each(|lost| self.lost(lost));
        match told {
            Told::OffCpu(interval) => self.sink.off_cpu(&interval),
            Told::Call(call) => self.call(&call),
            Told::Thread(thread) => self.thread(&thread),
        }
    }

    fn call(&mut self, call: &ProbedCall) {
        if let Some(call) = within(call, self.window) {
            self.sink.call(&call);
        }
    }

    fn lost(&mut self, lost: &LostCalls) {
        if lost.from <= self.window.1 && lost.to >= self.window.0 {
            self.sink.lost(&LostCalls { to: lost.to.min(self.window.1), ..*lost });
        }
    }

    fn thread(&mut self, thread: &ProbedThread) {
        self.sink
            .thread(&ProbedThread { died: thread.died.filter(|died| *died <= self.window.1), ..*thread });
    }
}

/// What of a call is in the window: probes are neither placed nor removed in an instant.
fn within(call: &ProbedCall, (from, to): (Ns, Ns)) -> Option<ProbedCall> {
    if call.start > to || call.end < from {
        return None;
    }
    let has_no_entry = call.end_kind == ProbedEnd::NoEntry;
    // It may have begun when entries were no longer probed.
    if has_no_entry && call.end > to {
        return None;
    }
    if has_no_entry || call.start < from {
        let (end, end_kind) = (call.end.min(to), ProbedEnd::NoEntry);
        return Some(ProbedCall { start: from, end, end_kind, off_cpu: OffCpuSplit::default(), ..*call });
    }
    if call.end <= to {
        return Some(*call);
    }
    let most = to.since(call.start);
    let OffCpuSplit { blocked_ns, runnable_ns, preempted_ns } = call.off_cpu;
    let blocked_ns = blocked_ns.min(most);
    let runnable_ns = runnable_ns.min(most - blocked_ns);
    let preempted_ns = preempted_ns.min(most - blocked_ns - runnable_ns);
    let off_cpu = OffCpuSplit { blocked_ns, runnable_ns, preempted_ns };
    Some(ProbedCall { end: to, end_kind: ProbedEnd::Open, off_cpu, ..*call })
}

#[cfg(test)]
mod tests {
    use model::{Avma, Cpu, Pid, Tid};

    use super::*;

    const WINDOW: (Ns, Ns) = (Ns(1_000), Ns(2_000));

    fn call(start: u64, end: u64, end_kind: ProbedEnd) -> ProbedCall {
        ProbedCall {
            function: 0,
            pid: Pid(1),
            tid: Tid(1),
            cpu: Cpu(0),
            start: Ns(start),
            end: Ns(end),
            off_cpu: OffCpuSplit::default(),
            return_address: None,
            entry: Avma(0),
            number: 0,
            parent: None,
            probes: 0,
            depth: 0,
            end_kind,
        }
    }

    /// Start, end and kind of end of the call's part in the window.
    fn seen(start: u64, end: u64, end_kind: ProbedEnd) -> Option<(u64, u64, ProbedEnd)> {
        within(&call(start, end, end_kind), WINDOW).map(|call| (call.start.0, call.end.0, call.end_kind))
    }

    #[test]
    fn a_call_that_is_running_when_the_window_begins_is_open_from_there() {
        use ProbedEnd::{NoEntry, Open, Return, Unwound};
        assert_eq!(seen(1_500, 1_500, NoEntry), Some((1_000, 1_500, NoEntry)));
        // Its entry was probed before the last one was.
        for end_kind in [Return, Unwound, Open] {
            assert_eq!(seen(900, 1_500, end_kind), Some((1_000, 1_500, NoEntry)));
        }
        assert_eq!(seen(900, 2_100, Return), Some((1_000, 2_000, NoEntry)));
        assert_eq!(seen(1_000, 1_500, Return), Some((1_000, 1_500, Return)));
        assert_eq!(seen(1_900, 2_100, Return), Some((1_900, 2_000, Open)));
    }

    #[test]
    fn a_call_that_ends_before_the_window_or_begins_after_it_is_not_in_it() {
        use ProbedEnd::{NoEntry, Return};
        for (start, end, end_kind) in [
            (999, 999, NoEntry),
            (900, 999, Return),
            (2_001, 2_002, Return),
            // Entries are no longer probed then.
            (2_001, 2_001, NoEntry),
        ] {
            assert_eq!(seen(start, end, end_kind), None);
        }
    }
}
