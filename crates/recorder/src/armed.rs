//! A recording from the moment at which its sideband is on to its whole file.

use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use model::TscClock;
use perfdata::write::{Features, time_conv};
use rustix::event::{EventfdFlags, eventfd};

use crate::attach::{OpenBuffer, Opener};
use crate::clocks;
use crate::cpu_list::CpuList;
use crate::drain::{Drain, Shared};
use crate::error::RecordError;
use crate::job::{Job, READ_EVERY, Request, Summary};
use crate::losses::Losses;
use crate::new_cpus::NewCpus;
use crate::new_file::NewFile;
use crate::newborns::Newborns;
use crate::output::{Output, complete_until};
use crate::plan::Layout;
use crate::rounds::Rounds;
use crate::sched_side::{self, SchedSource};
use crate::snapshot::Snapshot;
use crate::sys::HeldChild;
use crate::target::Target;
use crate::window::{Passed, Window};
use crate::workers::Workers;

/// Newborn threads are noticed in this time.
const NEWBORN_TICK: Duration = Duration::from_millis(5);
/// More drains do not write faster: there is one file.
const DRAINS_MAX: usize = 4;

/// The scheduler's events, if their source could be started.
pub(crate) struct StartedSched<'s> {
    pub(crate) source: Option<&'s mut dyn SchedSource>,
    /// Why it could not.
    pub(crate) refused: Option<String>,
}

/// A recording with its sideband on and the head of its file written; the trace is not on yet.
pub(crate) struct Armed {
    pub(crate) request: Request,
    pub(crate) online: CpuList,
    pub(crate) opener: Opener,
    pub(crate) buffers: Vec<OpenBuffer>,
    pub(crate) program: Option<HeldChild>,
    pub(crate) began: Instant,
    pub(crate) clock: TscClock,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) new_file: NewFile,
    pub(crate) output: Output,
}

impl Armed {
    /// Passes the window while the buffers are read, and then reads their rest.
    pub(crate) fn run(self, job: &Job<'_>, sched: &StartedSched<'_>) -> Result<Ran, RecordError> {
        let Self { request, online, opener, mut buffers, program, began, clock, snapshots, new_file, output } =
            self;
        let start = clocks::now(clock);
        output.records(&complete_until(start));
        let newborns = Newborns::new(&opener, job.build_id, request.follow, &snapshots, &buffers);
        let attends_newborns =
            opener.plan.layout == Layout::Threads && !matches!(request.target, Target::Threads(_));
        let shared = Shared {
            output: &output,
            newborns: attends_newborns.then_some(&newborns),
            stop: eventfd(0, EventfdFlags::CLOEXEC)
                .map_err(|error| RecordError::System { what: "eventfd", error: error.into() })?,
            events: Mutex::new(Vec::new()),
            clock,
            tick: if attends_newborns { NEWBORN_TICK } else { READ_EVERY },
            rounds: Rounds::new(start),
            ended_at: AtomicU64::new(u64::MAX),
            copies: job.pieces.and_then(|pieces| pieces.copies.as_deref()),
        };
        if let Some(newborns) = shared.newborns {
            // A thread that was born before the sideband was on has no FORK record.
            let attend = |pid| newborns.attend(pid, &output, &|| clocks::now(clock));
            buffers.extend(snapshots.iter().flat_map(|snapshot| attend(snapshot.pid)));
        }
        let window = Window {
            target: &request.target,
            length: job.window,
            shared: &shared,
            proc: &opener.proc,
            interrupts: job.interrupts,
            workers: opener.workers,
        };
        // An event of a thread is there wherever the thread is.
        let by_cpu = opener.plan.layout != Layout::Threads;
        let mut new_cpus = by_cpu.then(|| NewCpus::new("/sys".into(), online, clocks::now(clock)));
        let buffers = dealt(buffers, opener.workers);
        let pass = || window.pass(program, new_file, began, new_cpus.as_mut());
        let drained = drained(&shared, buffers, sched.source.as_deref(), pass);
        drop(shared);
        Ok(Ran {
            drained,
            refused_threads: newborns.refused(),
            missed_threads: newborns.missed(),
            untraced_cpus: new_cpus.map_or_else(CpuList::default, NewCpus::found),
            clock,
            output,
        })
    }
}

/// A recording after its window; the file has all records, and not its end.
pub(crate) struct Ran {
    drained: Drained<Result<Passed, RecordError>>,
    refused_threads: u64,
    missed_threads: u64,
    untraced_cpus: CpuList,
    clock: TscClock,
    output: Output,
}

impl Ran {
    /// Writes what a file ends with.
    pub(crate) fn finish(self, job: &Job<'_>, sched: StartedSched<'_>) -> Result<Summary, RecordError> {
        let Self { drained, refused_threads, missed_threads, untraced_cpus, clock, output } = self;
        let Drained { passed, losses, mut events } = drained;
        let StartedSched { mut source, refused } = sched;
        output.records(&time_conv(clock, Some(&clocks::sample(clock))));
        let tracing_data = source.as_mut().map(|source| sched_side::end(&mut **source, &mut events));
        let file = output.finish(&Features { tracing_data, ..job.features.clone() });
        // Whatever ended the window, the recorded trace is in the file.
        let Passed { ended, window, start_up, failed } = passed?;
        Ok(Summary {
            ended,
            window,
            start_up,
            failed,
            losses: losses?,
            file_bytes: file.map_err(|error| job.not_written(error))?,
            refused_threads,
            missed_threads,
            untraced_cpus,
            sched: sched_side::summary(refused, source.as_deref(), events),
        })
    }
}

/// What is there when the window has passed and all buffers have been read.
struct Drained<P> {
    passed: P,
    losses: Result<Vec<Losses>, RecordError>,
    events: sched_side::Written,
}

/// Reads the buffers, and the scheduler's events, while the window passes, and then their rest.
fn drained<P>(
    shared: &Shared<'_>,
    buffers: Vec<Vec<OpenBuffer>>,
    source: Option<&dyn SchedSource>,
    pass: impl FnOnce() -> P,
) -> Drained<P> {
    let drains: Vec<Drain<'_>> = buffers.into_iter().map(|buffers| Drain::new(shared, buffers)).collect();
    std::thread::scope(|scope| {
        let events = source.map(|source| scope.spawn(|| sched_side::write(source, shared)));
        let running: Vec<_> = drains.into_iter().map(|drain| scope.spawn(|| drain.run())).collect();
        let passed = pass();
        // The count is what makes it readable; it cannot be full.
        let _ = rustix::io::write(&shared.stop, &1u64.to_ne_bytes());
        let losses: Result<Vec<Vec<Losses>>, _> = running.into_iter().map(|drain| drain.join()).collect();
        let losses = losses.map(|losses| losses.into_iter().flatten().collect());
        Drained {
            passed,
            losses: losses.map_err(|_| RecordError::System {
                what: "a thread that reads buffers failed",
                error: ErrorKind::Other.into(),
            }),
            events: events.and_then(|events| events.join().ok()).unwrap_or_default(),
        }
    })
}

/// Deals the buffers out to the drains, [`DRAINS_MAX`] at most.
fn dealt(buffers: Vec<OpenBuffer>, workers: Workers) -> Vec<Vec<OpenBuffer>> {
    let mut hands: Vec<Vec<OpenBuffer>> = Vec::new();
    hands.resize_with(workers.at_most(DRAINS_MAX.min(buffers.len())), Vec::new);
    let count = hands.len();
    for (number, buffer) in buffers.into_iter().enumerate() {
        if let Some(hand) = hands.get_mut(number % count) {
            hand.push(buffer);
        }
    }
    hands
}
