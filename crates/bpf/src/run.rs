//! One run of a session, step by step; what comes next its caller decides.
//!
//! ```text
//!   place entries   calls are counted   place ends   calls are timed, with children or not   finish
//!   ------|---------------------------------|---------------------------------------------|----> removal
//! ```
//! A probe that is there is hit in every mode; the mode says what the hit does.  So probes are placed once,
//! and a window begins and ends in an instant, in which nothing is placed or removed.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags};
use model::{Ns, ProbeSink, ProbedSlice};
use rustix::time::{ClockId, clock_gettime};

use crate::attach::{Part, ProbedFunction, attach_group};
use crate::error::BpfError;
use crate::programs::{MODE, Programs};
use crate::records::{Records, Taken, read_threads};
use crate::removal::Removal;
use crate::stacks::{StackSeen, Stacks};
use crate::wire::Mode;

/// How long a program that was hit before the window's end may take to end.
const QUIET: Duration = Duration::from_millis(50);

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
    /// Times off the CPU without room for their records: reasons and wakers lack them.
    pub lost_intervals: u64,
    /// Switches that the kernel did not tell of: the threads' times off the CPU lack them.
    pub missed_switches: u64,
    /// Returns from where no call was known to be: the thread has switched its stack.
    pub odd_returns: u64,
}

/// Functions, by number, with probes that share links and so are removed together.
pub type Group = Vec<(usize, ProbedFunction)>;

/// Hits of a function's probes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// At its first instruction: calls.
    pub entries: u64,
    /// At the others.
    pub others: u64,
}

/// Probes that are there.
#[derive(Debug)]
struct Placed {
    functions: Vec<usize>,
    links: Vec<Link>,
}

/// Probes that are being placed, in a thread of their own: the kernel may wait meanwhile.
#[derive(Debug)]
pub struct Placing(JoinHandle<Result<(Vec<Placed>, Duration), BpfError>>);

impl Placing {
    /// They are there, or cannot be placed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_finished()
    }
}

/// One run.
pub struct Run {
    programs: Arc<Programs>,
    functions: usize,
    placed: Vec<Placed>,
    scheduler: Vec<Link>,
    follows_scheduler: bool,
    records: Records,
    stacks: Stacks,
    /// When calls were timed first.
    from: Option<Ns>,
    slices: Vec<ProbedSlice>,
    /// Of these, those that the sink knows.
    told: usize,
    /// Begin of a slice that has not ended, and whether it has children.
    slice: Option<(Ns, bool)>,
}

impl Run {
    pub(crate) fn new(
        programs: &Arc<Programs>,
        functions: usize,
        follows_scheduler: bool,
    ) -> Result<Self, BpfError> {
        let records = Records::of(programs)?;
        let run = Self {
            programs: Arc::clone(programs),
            functions,
            placed: Vec::new(),
            scheduler: Vec::new(),
            follows_scheduler,
            records,
            stacks: Stacks::of(programs)?,
            from: None,
            slices: Vec::new(),
            told: 0,
            slice: None,
        };
        run.set(Mode::Count)?;
        Ok(run)
    }

    /// Begins to place probes of functions.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn place(&self, groups: Vec<Group>, part: Part) -> Result<Placing, BpfError> {
        let programs = Arc::clone(&self.programs);
        let place = move || {
            let begun = Instant::now();
            let mut placed = Vec::new();
            for group in groups {
                let mut links = Vec::new();
                for which in part.kinds() {
                    let functions = group.iter().map(|(index, function)| (*index, function));
                    links.extend(attach_group(&programs, "on_probe", functions, *which)?);
                }
                placed.push(Placed { functions: group.into_iter().map(|(index, _)| index).collect(), links });
            }
            Ok((placed, begun.elapsed()))
        };
        let placing = thread::Builder::new().spawn(place);
        let failed =
            |error: std::io::Error| BpfError::Other { doing: "cannot place probes", what: error.to_string() };
        Ok(Placing(placing.map_err(failed)?))
    }

    /// Waits until probes are placed; returns how long that took.
    ///
    /// # Errors
    /// One cannot be placed.
    pub fn keep(&mut self, placing: Placing) -> Result<Duration, BpfError> {
        let gone = |_| BpfError::Other { doing: "cannot place probes", what: "it was given up".to_owned() };
        let (placed, time) = placing.0.join().map_err(gone)??;
        self.placed.extend(placed);
        Ok(time)
    }

    /// When calls were timed first; `None`: none are yet.
    #[must_use]
    pub const fn from(&self) -> Option<Ns> {
        self.from
    }

    /// Hits of each function's probes so far.
    #[must_use]
    pub fn hits(&self) -> Vec<Hits> {
        let of = |function| {
            let cpus = self.programs.of_cpus("hits", function);
            let sum = |place: usize| cpus.iter().filter_map(|numbers| numbers.get(place)).sum();
            Hits { entries: sum(0), others: sum(1) }
        };
        (0u32..).take(self.functions).map(of).collect()
    }

    /// Stacks of calls that were counted, since the last time.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn stacks(&self) -> Result<Vec<StackSeen>, BpfError> {
        self.stacks.read()
    }

    /// From now on calls are timed, those of children, too, or not.
    ///
    /// # Errors
    /// The programs cannot be told, or the scheduler cannot be followed.
    pub fn time(&mut self, children: bool) -> Result<(), BpfError> {
        if self.scheduler.is_empty() {
            self.scheduler = self.attach_scheduler()?;
        }
        self.end_slice(now());
        self.set(if children { Mode::All } else { Mode::Asked })?;
        let now = now();
        self.from.get_or_insert(now);
        self.slice = Some((now, children));
        Ok(())
    }

    /// What is placed or removed from now on makes times other ones.
    pub fn disturb(&mut self) {
        self.end_slice(now());
    }

    /// Gives the sink the slices and records so far.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn read(&mut self, sink: &mut dyn ProbeSink) -> Result<(), BpfError> {
        self.tell_slices(sink);
        self.records.read(&mut Taken { sink, window: (self.from.unwrap_or(Ns::MAX), Ns::MAX) })
    }

    /// Begins to remove the probes of groups that have none but these functions, those that were hit most
    /// first.
    pub fn remove(&mut self, functions: &[usize]) -> Removal {
        let is_one = |placed: &Placed| placed.functions.iter().all(|function| functions.contains(function));
        let (removed, kept) = std::mem::take(&mut self.placed).into_iter().partition(is_one);
        self.placed = kept;
        self.begin_removal(removed)
    }

    /// Ends the window, tells the sink the rest, and begins to remove the probes.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn finish(mut self, sink: &mut dyn ProbeSink) -> Result<(Summary, Removal), BpfError> {
        let to = now();
        self.set(Mode::Off)?;
        let placed = std::mem::take(&mut self.placed);
        let removal = self.begin_removal(placed);
        self.wait_until_quiet();
        self.end_slice(to);
        let window = (self.from.unwrap_or(to), to);
        self.tell_slices(sink);
        let mut taken = Taken { sink, window };
        self.records.read(&mut taken)?;
        read_threads(&self.programs, &mut taken)?;
        let counter = |index| self.programs.sum("counters", index);
        let summary = Summary {
            window,
            slices: std::mem::take(&mut self.slices),
            realtime_offset_ns: realtime_offset_ns(),
            too_deep: counter(0),
            no_room: counter(1),
            odd_returns: counter(2),
            lost_intervals: counter(3),
            missed_switches: counter(4),
        };
        Ok((summary, removal))
    }

    fn set(&self, mode: Mode) -> Result<(), BpfError> {
        let written =
            self.programs.map(MODE)?.update(&0u32.to_ne_bytes(), &(mode as u32).to_ne_bytes(), MapFlags::ANY);
        written.map_err(BpfError::other("cannot tell the programs what to do"))
    }

    fn attach_scheduler(&self) -> Result<Vec<Link>, BpfError> {
        let attach = |name| {
            self.programs
                .program(name)?
                .attach_trace()
                .map_err(BpfError::other("cannot attach to the scheduler"))
        };
        let followed = if self.follows_scheduler { &["on_switch", "on_waking"][..] } else { &[] };
        // Threads that end, and programs that are executed, end calls.
        followed.iter().copied().chain(["on_exit", "on_exec"]).map(attach).collect()
    }

    fn begin_removal(&mut self, mut placed: Vec<Placed>) -> Removal {
        let hits = self.hits();
        let of = |function: &usize| hits.get(*function).map_or(0, |hits| hits.entries + hits.others);
        placed.sort_by_key(|placed| std::cmp::Reverse(placed.functions.iter().map(of).sum::<u64>()));
        let mut links: Vec<Link> = placed.into_iter().flat_map(|placed| placed.links).collect();
        if self.placed.is_empty() {
            links.append(&mut self.scheduler);
        }
        Removal::begin(links)
    }

    /// Before the records of calls that began in them.
    fn tell_slices(&mut self, sink: &mut dyn ProbeSink) {
        for slice in self.slices.iter().skip(self.told) {
            sink.slice_begins(slice.start, slice.children);
            sink.slice_ends(slice.end);
        }
        self.told = self.slices.len();
        if let Some((start, children)) = self.slice {
            sink.slice_begins(self.undisturbed(start, children), children);
        }
    }

    fn end_slice(&mut self, end: Ns) {
        let Some((start, children)) = self.slice.take() else { return };
        let start = self.undisturbed(start, children);
        if start < end {
            self.slices.push(ProbedSlice { start, end, children });
        }
    }

    /// Without children a slice begins when the last probe of one was hit: it may take a while until they are
    /// gone.
    fn undisturbed(&self, start: Ns, children: bool) -> Ns {
        let hit = || self.programs.of_cpus("cpus", 0).iter().filter_map(|cpu| cpu.get(1).copied()).max();
        if children { start } else { start.max(Ns(hit().unwrap_or_default())) }
    }

    /// Waits for programs that were hit before the mode changed.
    fn wait_until_quiet(&self) {
        let begun = Instant::now();
        // What a CPU has written a millisecond ago all others see.
        thread::sleep(Duration::from_millis(1));
        while self.programs.sum("cpus", 0) != 0 && begun.elapsed() < QUIET {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Run {
    /// One by one, links would take as long as all of them together.
    fn drop(&mut self) {
        let placed = std::mem::take(&mut self.placed);
        self.begin_removal(placed).wait();
    }
}

/// The clock of all times.
#[must_use]
pub fn now() -> Ns {
    Ns(clock(ClockId::Monotonic))
}

/// What is to be added to its times to get real time.
#[must_use]
pub fn realtime_offset_ns() -> i64 {
    clock(ClockId::Realtime) as i64 - clock(ClockId::Monotonic) as i64
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
