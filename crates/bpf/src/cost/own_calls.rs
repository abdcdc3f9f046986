//! Calls of our own functions that do nothing, with probes: batch by batch.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process;
use std::rc::Rc;
use std::time::{Duration, Instant};

use model::{
    CallProbes, FileOffset, LostCalls, Ns, OffCpuInterval, Pid, ProbeSink, ProbeTime, ProbedCall,
    ProbedThread, Svma,
};

use crate::attach::{ProbedFunction, ProbedPlace};
use crate::error::BpfError;
use crate::idle::Idle;
use crate::load::Load;
use crate::probe_points::{CodePart, Ends, FunctionCode, ProbePoints};
use crate::removal::Removal;
use crate::session::{Room, Session};
use crate::waker_stack::WakerStack;

/// Calls of each function in a batch, by load.
pub(super) type Shape = [usize; Load::KINDS];

/// Times of calls, by load: those of each batch together.
#[derive(Clone, Debug, Default)]
pub(super) struct Times([Vec<Vec<u64>>; Load::KINDS]);

/// Percentile of a batch above which calls were disturbed by more than cold caches.
const MOST: usize = 75;

/// A value of these that `per_cent` of them do not exceed.
fn percentile(values: impl IntoIterator<Item = u64>, per_cent: usize) -> u64 {
    let mut sorted: Vec<u64> = values.into_iter().collect();
    sorted.sort_unstable();
    let rank = (per_cent * sorted.len()).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

impl Times {
    /// Adds a batch: the times of its calls, in their order.
    pub(super) fn add(&mut self, shape: Shape, times: impl IntoIterator<Item = u64>) {
        let mut times = times.into_iter();
        for (batches, calls) in self.0.iter_mut().zip(shape) {
            batches.push(times.by_ref().take(calls).collect());
        }
    }

    /// Forgets all but the last batches.
    pub(super) fn keep(&mut self, last: usize) {
        for batches in &mut self.0 {
            batches.drain(..batches.len().saturating_sub(last));
        }
    }

    /// Where most of them lie.  A burst of interruptions spoils a batch, so that the median of the batches is
    /// taken.
    pub(super) fn range(&self) -> ProbeTime {
        let most = |batches: &Vec<Vec<u64>>| {
            percentile(batches.iter().map(|batch| percentile(batch.iter().copied(), MOST)), 50)
        };
        let least_ns = percentile(self.0.iter().flatten().flatten().copied(), 1);
        let most_ns = self.0.iter().map(most).max().unwrap_or_default().max(least_ns);
        ProbeTime { least_ns, most_ns, rare_ns: self.under_worst_load(99).max(most_ns) }.widened()
    }

    /// The median where it is largest.
    pub(super) fn coldest_median(&self) -> u64 {
        self.under_worst_load(50)
    }

    /// What `per_cent` of the calls do not exceed, under the load where that is most.
    fn under_worst_load(&self, per_cent: usize) -> u64 {
        let of_load = |batches: &Vec<Vec<u64>>| percentile(batches.iter().flatten().copied(), per_cent);
        self.0.iter().map(of_load).max().unwrap_or_default()
    }
}

/// What calls of one function took.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// Of the time on the CPU that the probes saw.
    pub(super) inside: Times,
    /// By our own clock, without what the call takes by itself.
    pub(super) whole: Times,
}

impl Samples {
    pub(super) fn probes(&self) -> CallProbes {
        CallProbes { inside: self.inside.range(), whole: self.whole.range() }
    }
}

/// A function that is called.
struct Function {
    idle: Idle,
    ends: Ends,
    /// What a call takes without probes.
    bare_ns: u64,
    /// What calls of the last batch took by our clock.
    clocked_ns: Vec<u64>,
    samples: Samples,
}

/// Functions of our own, and what their calls took.
pub(super) struct OwnCalls {
    functions: Vec<Function>,
    loads: [Load; Load::KINDS],
    /// Of the last batch, while what the probes saw of it has not been read.
    shape: Option<Shape>,
    /// What the probes saw since the last batch, by function.
    seen: Rc<RefCell<Vec<Vec<u64>>>>,
    /// Batches that were made.
    made: usize,
    /// Batches with every call seen.
    seen_whole: usize,
}

/// Calls by which the time without probes is measured.
const BARE_CALLS: usize = 40;

impl OwnCalls {
    /// No call has been made yet, and no probe is placed.
    pub(super) fn new(functions: &[(Idle, Ends)]) -> Self {
        let function = |(idle, ends): &(Idle, Ends)| Function {
            idle: *idle,
            ends: *ends,
            bare_ns: (0..BARE_CALLS).map(|_| timed_ns(idle)).min().unwrap_or_default(),
            clocked_ns: Vec::new(),
            samples: Samples::default(),
        };
        Self {
            functions: functions.iter().map(function).collect(),
            loads: Load::each(),
            shape: None,
            seen: Rc::new(RefCell::new(vec![Vec::new(); functions.len()])),
            made: 0,
            seen_whole: 0,
        }
    }

    /// Places the probes, and makes calls for `window`: `make` is called each `interval` until it says that
    /// it was enough.  The probes are being removed then.  With `sched` the scheduler is followed, and what a
    /// call was off the CPU is not its time.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub(super) fn record(
        &mut self,
        window: Duration,
        interval: Duration,
        sched: Option<WakerStack>,
        mut make: impl FnMut(&mut Self) -> bool,
    ) -> Result<Removal, BpfError> {
        let probed = self.functions.iter().map(|function| own_function(&function.idle, function.ends));
        let probed: Option<Vec<ProbedFunction>> = probed.collect();
        let probed = probed.ok_or_else(|| unknown("own code is not found"))?;
        let room = Room { threads: 64, ring_bytes: 1 << 20 };
        let mut session = Session::open(probed, room, sched)?;
        let mut seen = Latencies(Rc::clone(&self.seen));
        let mut last: Option<Instant> = None;
        // All probes are there from the first look on.
        let mut is_over = || {
            if last.is_some_and(|last| last.elapsed() < interval) {
                return false;
            }
            self.gather();
            let is_enough = make(self);
            last = Some(Instant::now());
            is_enough
        };
        let (_, removal) = session.record(window, &mut is_over, &mut seen)?;
        self.gather();
        Ok(removal)
    }

    /// Makes a batch of calls.
    pub(super) fn make(&mut self, shape: Shape) {
        for (load, calls) in self.loads.iter_mut().zip(shape) {
            for function in &mut self.functions {
                function.clocked_ns.extend((0..calls).map(|_| {
                    load.run();
                    timed_ns(&function.idle)
                }));
            }
        }
        self.shape = Some(shape);
        self.made += 1;
    }

    /// Adds the samples of the last batch, if each of its calls was seen.
    fn gather(&mut self) {
        let Some(shape) = self.shape.take() else { return };
        let mut seen = self.seen.borrow_mut();
        let calls: usize = shape.iter().sum();
        let is_complete = seen.iter().all(|seen| seen.len() == calls);
        self.seen_whole += usize::from(is_complete);
        for (function, seen) in self.functions.iter_mut().zip(seen.iter_mut()) {
            let (clocked_ns, seen) = (function.clocked_ns.drain(..), seen.drain(..));
            if is_complete {
                let bare_ns = function.bare_ns;
                function.samples.inside.add(shape, seen);
                function.samples.whole.add(shape, clocked_ns.map(|ns| ns.saturating_sub(bare_ns)));
            }
        }
    }

    /// Batches that were made.
    pub(super) const fn made(&self) -> usize {
        self.made
    }

    /// Batches with every call seen: the others have no samples.
    pub(super) const fn seen_whole(&self) -> usize {
        self.seen_whole
    }

    /// Forgets all but the last batches.
    pub(super) fn keep(&mut self, last: usize) {
        for Function { samples, .. } in &mut self.functions {
            samples.inside.keep(last);
            samples.whole.keep(last);
        }
    }

    /// What calls of each function took.
    pub(super) fn samples(&self) -> Vec<Samples> {
        self.functions.iter().map(|function| function.samples.clone()).collect()
    }
}

pub(super) fn unknown(what: &str) -> BpfError {
    BpfError::Other { doing: "cannot measure what a probe costs", what: what.to_owned() }
}

fn timed_ns(function: &Idle) -> u64 {
    let started = Instant::now();
    function.call();
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Where the function is in our own file.
pub(super) fn own_function(function: &Idle, ends: Ends) -> Option<ProbedFunction> {
    let address = function.address();
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let offset = maps.lines().find_map(|line| offset_in_file(line, address))?;
    let part = CodePart { start: Svma(address), file_offset: FileOffset(offset), bytes: function.code() };
    let points = ProbePoints::new(&FunctionCode { entry: Svma(address), parts: vec![part] }, ends).ok()?;
    let place = ProbedPlace { pid: Pid(process::id() as i32), file: PathBuf::from("/proc/self/exe") };
    Some(ProbedFunction { points, is_child: false, places: vec![place] })
}

fn offset_in_file(line: &str, address: u64) -> Option<u64> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let offset = number(words.nth(1)?)?;
    (start..end).contains(&address).then(|| address - start + offset)
}

/// Time on the CPU of calls, by function.
struct Latencies(Rc<RefCell<Vec<Vec<u64>>>>);

impl ProbeSink for Latencies {
    fn slice_begins(&mut self, _: Ns, _: bool) {}

    fn slice_ends(&mut self, _: Ns) {}

    fn call(&mut self, call: &ProbedCall) {
        if let Some(latencies) = self.0.borrow_mut().get_mut(call.function) {
            latencies.push(call.end.since(call.start).saturating_sub(call.off_cpu.total_ns()));
        }
    }

    fn off_cpu(&mut self, _: &OffCpuInterval) {}

    fn lost(&mut self, _: &LostCalls) {}

    fn thread(&mut self, _: &ProbedThread) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_address_in_its_file() {
        let line = "55d0-55f0 r-xp 00002000 08:01 77 /usr/bin/true";
        assert_eq!(offset_in_file(line, 0x55e1), Some(0x2011));
        assert_eq!(offset_in_file(line, 0x55f0), None);
    }

    const SHAPE: Shape = [40; Load::KINDS];

    /// Batches of calls that take 100, 100 and 150 ns, and some more.
    fn times(batches: [u64; 3], factor: impl Fn(usize, u64) -> u64) -> Times {
        let mut times = Times::default();
        for (batch, more_ns) in batches.into_iter().enumerate() {
            let calls = [100, 100, 150].into_iter().enumerate();
            let calls = calls.flat_map(|(load, ns)| (0..40).map(move |call| (load, ns + call % 10)));
            times.add(SHAPE, calls.map(|(load, ns)| factor(batch * 10 + load, ns) + more_ns));
        }
        times
    }

    #[test]
    fn a_cost_is_a_range_that_a_burst_of_interruptions_does_not_move() {
        let calm = times([0; 3], |_, ns| ns);
        assert_eq!(calm.range(), ProbeTime { least_ns: 100, most_ns: 157, rare_ns: 159 }.widened());
        // The first batch of the third load is interrupted throughout.
        let burst = times([0; 3], |at, ns| if at == 2 { ns + 10_000 } else { ns });
        assert_eq!(burst.range(), ProbeTime { least_ns: 100, most_ns: 157, rare_ns: 10_159 }.widened());
        assert_eq!(burst.coldest_median(), 157);
    }

    #[test]
    fn the_last_batches_tell_the_speed_of_now() {
        let mut slow_once = times([50, 0, 0], |_, ns| ns);
        assert_eq!(slow_once.range(), ProbeTime { least_ns: 100, most_ns: 157, rare_ns: 209 }.widened());
        slow_once.keep(2);
        assert_eq!(slow_once.range(), ProbeTime { least_ns: 100, most_ns: 157, rare_ns: 159 }.widened());
    }
}
