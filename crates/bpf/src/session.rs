//! One run: probes in, a window of time, probes out; records are read meanwhile.
//!
//! ```text
//!   scheduler, exits, entries                                 entries, exits, scheduler out
//!   ------|------|-------|---------------- window ------------------|-----------> open calls are read from the map
//! ```
//! Exits are probed first, so that each call whose entry is seen has an end that is seen.  The window
//! begins when the last entry is probed: a call that ends in it without an entry was running when it began.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags, RingBufferBuilder};
use model::{LostCalls, Ns, OffCpuSplit, ProbeSink, ProbedCall, ProbedEnd, ProbedThread, Tid};
use rustix::time::{ClockId, clock_gettime};

use crate::attach::{ProbedFunction, Which, attach};
use crate::error::BpfError;
use crate::programs::{Programs, Sizes};
use crate::waker_stack::WakerStack;
use crate::wire::{self, Told};

/// How often the ring is emptied.
const INTERVAL: Duration = Duration::from_millis(5);

/// What is read at a time: a ring that is filled as fast as it is read must not keep us from seeing the window's end.
const RECORDS_MAX: usize = 1 << 20;

/// What is said of a run as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// From when to when all entries were probed.
    pub window: (Ns, Ns),
    /// What is to be added to times to get real time.
    pub realtime_offset_ns: i64,
    /// Entries that were deeper on the stack than is followed.
    pub too_deep: u64,
    /// Entries of threads for which there was no room.
    pub no_room: u64,
    /// Times off the CPU whose records had no room: reasons and wakers do not have them.
    pub lost_intervals: u64,
    /// Switches of the threads that the kernel did not tell: what they were off the CPU is lacking there.
    pub missed_switches: u64,
    /// Returns from where no call was known to be: the thread has switched its stack.
    pub odd_returns: u64,
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Threads that have calls, at a time.
    pub threads: usize,
    /// Bytes of the ring; a power of two of at least a page.
    pub ring_bytes: u32,
}

/// Programs and functions, ready.
pub struct Session {
    pub(crate) programs: Programs,
    pub(crate) functions: Vec<ProbedFunction>,
}

impl Session {
    /// Loads the programs.
    ///
    /// # Errors
    /// The kernel does not let us, or there is nothing to probe.
    pub fn open(
        functions: Vec<ProbedFunction>,
        room: Room,
        waker_stack: WakerStack,
    ) -> Result<Self, BpfError> {
        if functions.iter().all(|function| function.places.is_empty()) {
            return Err(BpfError::NothingToProbe);
        }
        let Room { threads, ring_bytes } = room;
        let sizes = Sizes { functions: functions.len(), threads, ring_bytes, waker_stack };
        let programs = Programs::load(sizes)?;
        let lengths = programs.map("lengths")?;
        for (index, function) in (0u32..).zip(&functions) {
            let length = function.points.first_part_len;
            let written = lengths.update(&index.to_ne_bytes(), &length.to_ne_bytes(), MapFlags::ANY);
            written.map_err(BpfError::other("cannot say how long functions are"))?;
        }
        Ok(Self { programs, functions })
    }

    /// How often each function is entered in so long.
    ///
    /// # Errors
    /// A probe cannot be placed.
    pub fn count(&mut self, time: Duration) -> Result<Vec<u64>, BpfError> {
        let links = attach(&self.programs, "on_count", &self.functions, Which::Entries)?;
        std::thread::sleep(time);
        drop(links);
        Ok((0u32..).zip(&self.functions).map(|(index, _)| self.programs.sum("hits", index)).collect())
    }

    /// Takes calls for `window`, or until `is_over`.
    ///
    /// # Errors
    /// A probe cannot be placed, or the ring cannot be read.
    pub fn record(
        &mut self,
        window: Duration,
        is_over: &mut dyn FnMut() -> bool,
        sink: &mut dyn ProbeSink,
    ) -> Result<Summary, BpfError> {
        let scheduler = self.attach_scheduler()?;
        let mut exits = attach(&self.programs, "on_probe", &self.functions, Which::Exits)?;
        exits.extend(attach(&self.programs, "on_probe", &self.functions, Which::Returns)?);
        let entries = attach(&self.programs, "on_probe", &self.functions, Which::Entries)?;
        let from = now();
        let taken = RefCell::new(Taken { sink, window: (from, Ns::MAX) });
        let map = self.programs.map("calls")?;
        let failed = BpfError::other("cannot read the ring");
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            taken.borrow_mut().record(bytes);
            0
        };
        builder.add(&map, take).map_err(&failed)?;
        let ring = builder.build().map_err(&failed)?;
        let started = Instant::now();
        while started.elapsed() < window && !is_over() {
            ring.consume_raw_n(RECORDS_MAX);
            std::thread::sleep(INTERVAL.min(window.saturating_sub(started.elapsed())));
        }
        let to = now();
        taken.borrow_mut().window.1 = to;
        drop((entries, exits, scheduler));
        ring.consume().map_err(&failed)?;
        drop(ring);
        self.read_threads(&mut taken.borrow_mut())?;
        let counter = |index| self.programs.sum("counters", index);
        Ok(Summary {
            window: (from, to),
            realtime_offset_ns: clock(ClockId::Realtime) as i64 - clock(ClockId::Monotonic) as i64,
            too_deep: counter(0),
            no_room: counter(1),
            odd_returns: counter(2),
            lost_intervals: counter(3),
            missed_switches: counter(4),
        })
    }

    fn attach_scheduler(&self) -> Result<Vec<Link>, BpfError> {
        let attach = |name| {
            self.programs
                .program(name)?
                .attach_trace()
                .map_err(BpfError::other("cannot attach to the scheduler"))
        };
        ["on_switch", "on_waking", "on_exit"].into_iter().map(attach).collect()
    }

    /// What was open, and what no later record has told.
    fn read_threads(&self, taken: &mut Taken<'_>) -> Result<(), BpfError> {
        let map = self.programs.map("threads")?;
        let mut tids: Vec<Tid> = map
            .keys()
            .filter_map(|key| Some(Tid(i32::from_ne_bytes(key.get(..4)?.try_into().ok()?))))
            .collect();
        tids.sort_unstable();
        for tid in tids {
            let bytes = map.lookup(&tid.0.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
            let Some(state) = wire::thread(tid, &bytes, taken.window.1) else { continue };
            taken.thread(&state.life);
            state.lost.iter().for_each(|lost| taken.lost(lost));
            state.open.iter().rev().for_each(|call| taken.call(call));
        }
        Ok(())
    }
}

/// What is in the window goes to the sink.
struct Taken<'s> {
    sink: &'s mut dyn ProbeSink,
    window: (Ns, Ns),
}

impl Taken<'_> {
    fn record(&mut self, bytes: &[u8]) {
        let Some((lost, told)) = wire::record(bytes) else { return };
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

fn now() -> Ns {
    Ns(clock(ClockId::Monotonic))
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use model::{Avma, Cpu, Pid};

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

    /// Start, end and kind of what is in the window.
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
