//! One run: probes in, a window of time, probes out; records are read meanwhile.
//!
//! ```text
//!   scheduler, exits      entries                             entries, exits, scheduler out
//!   ------|------------------|------------ window ------------------|-----------> open calls are read from the map
//! ```
//! Exits are probed first, so that each call whose entry is seen has an end that is seen; what returns without an entry
//! was running at the start.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags, RingBufferBuilder};
use model::{LostCalls, Ns, OffCpuSplit, ProbeSink, ProbedCall, ProbedEnd, ProbedSlice, ProbedThread, Tid};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// From when to when entries were probed.
    pub window: (Ns, Ns),
    /// What of the window was probed how.
    pub slices: Vec<ProbedSlice>,
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
        let from = now();
        let entries = attach(&self.programs, "on_probe", &self.functions, Which::Entries)?;
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
        let children = self.functions.iter().any(|function| function.is_child);
        Ok(Summary {
            window: (from, to),
            slices: vec![ProbedSlice { start: from, end: to, children }],
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
        if lost.from <= self.window.1 {
            self.sink.lost(&LostCalls { to: lost.to.min(self.window.1), ..*lost });
        }
    }

    fn thread(&mut self, thread: &ProbedThread) {
        self.sink
            .thread(&ProbedThread { died: thread.died.filter(|died| *died <= self.window.1), ..*thread });
    }
}

/// What of a call is in the window: probes are not removed in an instant.
fn within(call: &ProbedCall, (from, to): (Ns, Ns)) -> Option<ProbedCall> {
    if call.start > to || call.end < from {
        return None;
    }
    if call.end_kind == ProbedEnd::NoEntry {
        return (call.end <= to).then_some(ProbedCall { start: from, ..*call });
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
