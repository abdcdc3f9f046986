//! One recording, from opened events to a whole file.
//!
//! ```text
//! open     events of all threads, buffers                    nothing runs yet
//! record   enable the sideband; snapshot; header of the file
//!          drains begin; enable the trace                    |
//!          time, Ctrl-C, the target's end, a full disk       | the window
//!          disable all events: the first thing at its end    |
//!          drains read what is left; features; whole file
//! ```

use std::ffi::CString;
use std::io::{Cursor, ErrorKind};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use model::TscClock;
use perfdata::write::{Features, time_conv};
use rustix::event::{EventfdFlags, eventfd};

use crate::attach::{OpenBuffer, Opener, Places};
use crate::build_ids::BuildIds;
use crate::clocks;
use crate::cpu_list::CpuList;
use crate::descriptors;
use crate::drain::{Drain, Shared};
use crate::error::RecordError;
use crate::events::{Attrs, Heirs, KernelCan, Purpose};
use crate::file_head::{self, Head};
use crate::ip_filter::{self, IpRange};
use crate::kernel_clock;
use crate::losses::Losses;
use crate::means::Means;
use crate::new_cpus::NewCpus;
use crate::new_file::NewFile;
use crate::newborns::Newborns;
use crate::output::{Output, complete_until};
use crate::pieces::{Cutting, Pieces};
use crate::plan::{Asked, Layout, Plan};
use crate::pmu::Pmu;
use crate::procfs::Proc;
use crate::pt_config::PtSettings;
use crate::rounds::Rounds;
use crate::sched_side::{self, Sched, SchedSource};
use crate::snapshot::{BuildIdOf, Snapshot};
use crate::sys::{HeldChild, Interrupts, ProgramStreams};
use crate::target::Target;
use crate::window::{Ended, Passed, Window};
use crate::workers::Workers;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is recorded.
    pub target: Target,
    /// On which CPUs; `None`: on all.
    pub cpus: Option<CpuList>,
    /// One buffer for each thread.
    pub per_thread: bool,
    /// Child processes that are born meanwhile, too.
    pub follow: bool,
    /// Settings of the trace unit: `cyc=1,mtc_period=3`.
    pub pt_config: Option<String>,
    /// What to trace; empty: everything.
    pub filter: Vec<IpRange>,
    /// Bytes of each buffer of trace.
    pub trace_bytes: Option<u64>,
    /// Input and output of a program that is started.
    pub streams: ProgramStreams,
}

/// What became of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Why the window ended.
    pub ended: Ended,
    /// How long the window was.
    pub window: Duration,
    /// From the beginning to the window.
    pub start_up: Duration,
    /// How a program that was started has ended, if not well.
    pub failed: Option<ExitStatus>,
    /// Size of the file.
    pub file_bytes: u64,
    /// By buffer.
    pub losses: Vec<Losses>,
    /// Newborn threads that the kernel did not let us trace: no descriptors or no memory were left.
    pub refused_threads: u64,
    /// Threads that were born and had ended before they could be traced, each with a buffer of its own.
    pub missed_threads: u64,
    /// CPUs that were switched on meanwhile: what ran there has no trace, and the file says so.
    pub untraced_cpus: CpuList,
    /// The scheduler's events.
    pub sched: Sched,
}

/// Records are read at least this often.
const TICK: Duration = Duration::from_millis(10);
/// Newborn threads are noticed in this time.
const NEWBORN_TICK: Duration = Duration::from_millis(5);
/// More drains do not write faster: there is one file.
const DRAINS_MAX: usize = 4;

/// Where to, and for how long.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The file.
    pub path: &'a Path,
    /// What it says of machine and command.
    pub features: &'a Features,
    /// How long; `None`: until the target ends.
    pub window: Option<Duration>,
    /// Reads build ids, where the kernel does not tell them: of what is mapped before the window.
    pub build_id: BuildIdOf<'a>,
    /// Ends the window early.
    pub interrupts: &'a Interrupts,
    /// Cuts the recording into pieces, of which the file is the first; `None`: it is whole.
    pub pieces: Option<&'a Pieces>,
}

impl Job<'_> {
    fn not_written(&self, error: std::io::Error) -> RecordError {
        RecordError::Output { path: self.path.to_path_buf(), error }
    }
}

/// Opened events that do nothing yet.
#[derive(Debug)]
pub struct Session {
    request: Request,
    pmu: Pmu,
    settings: PtSettings,
    /// What was to be; the opener has what is.
    planned: Plan,
    /// The CPUs that run when the events are opened.
    online: CpuList,
    opener: Opener,
    buffers: Vec<OpenBuffer>,
    program: Option<HeldChild>,
    began: Instant,
}

impl Session {
    /// Opens the events of everything that is asked for.
    ///
    /// # Errors
    /// It cannot be; nothing is left over.
    pub fn open(request: Request, pmu: Pmu) -> Result<Self, RecordError> {
        let began = Instant::now();
        let proc = Proc::host();
        let settings = PtSettings::new(&pmu, request.pt_config.as_deref())?;
        request.target.check(&proc)?;
        let program = match &request.target {
            Target::Program(words) => {
                Some(HeldChild::spawn(words, request.streams).map_err(|e| RecordError::program(words, e))?)
            }
            _ => None,
        };
        let mut list = || request.target.threads(program.as_ref(), &proc);
        let online = CpuList::online(Path::new("/sys"));
        let traced = request.cpus.clone().unwrap_or_else(|| online.clone());
        if let Some(cpu) = traced.0.iter().find(|cpu| !online.0.contains(cpu)) {
            return Err(RecordError::NoCpu { cpu: *cpu, online: online.clone() });
        }
        let places = Places { watched: online.without(&traced), traced };
        let asked = Asked {
            threads: list().len(),
            cpus: places.traced.0.len(),
            watched_cpus: places.watched.0.len(),
            per_thread: request.per_thread,
            only_these_cpus: request.cpus.is_some(),
            trace_bytes: request.trace_bytes,
        };
        let plan = Plan::new(asked, Means::here(&proc, online.0.len(), descriptors::raise_limit()))?;
        let purpose = Purpose {
            pmu: pmu.number,
            config: settings.config,
            heirs: heirs(&request),
            on_exec: program.is_some(),
        };
        let filter = filter_text(&request)?;
        descriptors::make_room(plan.events);
        let (can, workers) = (KernelCan::probe(), Workers::here());
        let open = |plan: Plan| {
            let attrs = Attrs::new(purpose, &plan, can);
            let opener = Opener { attrs, can, plan, filter: filter.clone(), proc: proc.clone(), workers };
            let buffers = match plan.layout {
                Layout::TasksByCpu => opener.tasks_by_cpu(&places, &mut list),
                Layout::WholeCpus => opener.whole_cpus(&places),
                Layout::Threads => opener.threads(&mut list),
            };
            Ok((opener, buffers?))
        };
        let (opener, buffers) = largest(plan, open)?;
        check_readable(&request.target, &proc)?;
        Ok(Self { request, pmu, settings, planned: plan, online, opener, buffers, program, began })
    }

    /// The size of the buffers of trace that could not be had, where they are smaller now.
    #[must_use]
    pub fn refused_bytes(&self) -> Option<u64> {
        let planned = self.planned.trace_bytes;
        (planned > self.opener.plan.trace_bytes).then_some(planned)
    }

    /// What was decided.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.opener.plan
    }

    /// The trace unit.
    #[must_use]
    pub fn pmu(&self) -> &Pmu {
        &self.pmu
    }

    /// How the trace unit is programmed, as perf writes it.
    #[must_use]
    pub fn event(&self) -> &str {
        &self.settings.event
    }

    /// Records into a new file, for the window or until the target ends. A file that is there already gets
    /// the name `FILE.old`.
    ///
    /// # Errors
    /// The file cannot be written: what was written before can be read. Or the trace's times mean nothing
    /// here, or the program cannot be executed: then there is no file.
    pub fn record(
        mut self,
        job: &Job<'_>,
        mut sched: Option<&mut dyn SchedSource>,
    ) -> Result<Summary, RecordError> {
        let clock = self.clock()?;
        self.opener.workers.all(&mut self.buffers, |buffer| buffer.events.enable_sideband());
        let refused = sched.as_mut().and_then(|source| source.start(&|| self.sched_ids()).err());
        let mut sched = sched.filter(|_| refused.is_none());
        let snapshots = self.snapshots(job);
        let (new_file, output) = self.write_head(job, clock, &snapshots, sched.is_some())?;
        let Self { request, online, opener, mut buffers, program, began, .. } = self;
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
            tick: if attends_newborns { NEWBORN_TICK } else { TICK },
            rounds: Rounds::new(start),
            ended_at: AtomicU64::new(u64::MAX),
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
        let Drained { passed, losses, mut events } = drained(&shared, buffers, sched.as_deref(), pass);
        drop(shared);
        output.records(&time_conv(clock, Some(&clocks::sample(clock))));
        let tracing_data = sched.as_mut().map(|source| sched_side::end(&mut **source, &mut events));
        let file = output.finish(&Features { tracing_data, ..job.features.clone() });
        // Whatever ended the window, what was recorded is in the file.
        let Passed { ended, window, start_up, failed } = passed?;
        Ok(Summary {
            ended,
            window,
            start_up,
            failed,
            losses: losses?,
            file_bytes: file.map_err(|error| job.not_written(error))?,
            refused_threads: newborns.refused(),
            missed_threads: newborns.missed(),
            untraced_cpus: new_cpus.map_or_else(CpuList::default, NewCpus::found),
            sched: sched_side::summary(refused, sched.as_deref(), events),
        })
    }

    fn clock(&self) -> Result<TscClock, RecordError> {
        let clock = self.buffers.iter().find_map(|buffer| buffer.ring.clock());
        clock.ok_or_else(|| RecordError::NoClock { remedy: kernel_clock::remedy(&self.opener.proc) })
    }

    fn sched_ids(&self) -> Vec<u32> {
        let traced = self.request.cpus.clone().unwrap_or_default();
        let started = self.program.as_ref().map(HeldChild::pid);
        sched_side::ids(&self.request.target, started, &traced, &self.opener.proc)
    }

    /// What is there before the window. To look at all processes of a large machine takes a while, in which
    /// the buffers are read.
    fn snapshots(&mut self, job: &Job<'_>) -> Vec<Snapshot> {
        if let Some(child) = &self.program {
            // What it has mapped is ours, and is gone when it is executed.
            return vec![Snapshot { pid: child.pid(), ..Snapshot::default() }];
        }
        let proc = &self.opener.proc;
        let pids = match &self.request.target {
            Target::WholeCpus => proc.processes().unwrap_or_default(),
            target => target.processes(proc),
        };
        let build_ids = BuildIds::new(job.build_id);
        let mut read = Instant::now();
        let mut snapshots = Vec::with_capacity(pids.len());
        for pid in pids {
            snapshots.push(Snapshot::of(proc, pid, &|path| build_ids.of(path)));
            if read.elapsed() > TICK {
                self.buffers.iter_mut().for_each(OpenBuffer::read_early);
                read = Instant::now();
            }
        }
        snapshots
    }

    /// A new file with its head, and of a recording that is cut into pieces the head of each.
    fn write_head(
        &self,
        job: &Job<'_>,
        clock: TscClock,
        snapshots: &[Snapshot],
        has_sched: bool,
    ) -> Result<(NewFile, Output), RecordError> {
        let filter = &ip_filter::for_recording(&self.request.filter);
        let head = Head {
            pmu: &self.pmu,
            settings: &self.settings,
            attrs: self.opener.attrs,
            layout: self.opener.plan.layout,
            clock,
            filter,
            has_sched,
        };
        // For its owner only, as perf's are.
        let (new_file, file) = NewFile::create(job.path, 0o600)?;
        let failed = |error| job.not_written(error);
        let writer = file_head::write(file, &head, &self.buffers, job.features, snapshots).map_err(failed)?;
        let cutting = job.pieces.map(|pieces| {
            let bytes = Cursor::new(Vec::new());
            let bytes = file_head::write(bytes, &head, &self.buffers, job.features, snapshots)?;
            Ok(Cutting::new(pieces, bytes, job.features.clone()))
        });
        Ok((new_file, Output::new(writer, cutting.transpose().map_err(failed)?)))
    }
}

/// Which threads that are created meanwhile are traced.
fn heirs(request: &Request) -> Heirs {
    match request.target {
        // A user who names threads one by one wants no others.
        Target::Threads(_) => Heirs::Nobody,
        _ if request.follow => Heirs::Processes,
        _ => Heirs::Threads,
    }
}

/// The IP filter as the kernel takes it.
fn filter_text(request: &Request) -> Result<Option<CString>, RecordError> {
    let text = ip_filter::for_kernel(&request.filter);
    (!text.is_empty()).then(|| CString::new(text)).transpose().map_err(|error| RecordError::System {
        what: "a file of the IP filter has a zero in its name",
        error: error.into(),
    })
}

/// Refuses a process whose memory map may not be read: the kernel may let us trace what it does not let us
/// look at.
fn check_readable(target: &Target, proc: &Proc) -> Result<(), RecordError> {
    for pid in target.processes(proc) {
        match proc.may_read_maps(pid) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(RecordError::NotReadable(pid));
            }
            // A child of the target may have ended meanwhile.
            Err(_) if !target.lives(proc) => return Err(RecordError::NoProcess(pid)),
            Ok(()) | Err(_) => (),
        }
    }
    Ok(())
}

/// What is there when the window has passed and all buffers have been read.
struct Drained<P> {
    passed: P,
    losses: Result<Vec<Losses>, RecordError>,
    events: sched_side::Written,
}

/// Reads the buffers, and the scheduler's events, while the window passes, and then what is left in them.
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

/// Opens by this plan, or by the next smaller one that the kernel lets us have.
fn largest<T>(
    mut plan: Plan,
    mut open: impl FnMut(Plan) -> Result<T, RecordError>,
) -> Result<T, RecordError> {
    loop {
        match open(plan) {
            Err(error) if error.is_too_large() => plan = plan.smaller().ok_or(error)?,
            opened => return opened,
        }
    }
}

/// The buffers, for as many drains as there shall be.
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
