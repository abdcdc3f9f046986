//! One recording, from opened events to a whole file.
//!
//! ```text
//! Session  open: events of all threads, buffers              nothing runs yet
//! Armed    the sideband is on; snapshot; header of the file
//! (run)    drains begin; enable the trace                    |
//!          time, Ctrl-C, the target's end, a full disk       | the window
//!          disable all events: the first thing at its end    |
//! Ran      drains have read what was left
//! Summary  features; whole file
//! ```

use std::ffi::CString;
use std::io::{Cursor, ErrorKind};
use std::path::Path;
use std::time::Instant;

use model::TscClock;

use crate::armed::{Armed, StartedSched};
use crate::attach::{OpenBuffer, Opener, Places};
use crate::build_ids::BuildIds;
use crate::cpu_list::CpuList;
use crate::descriptors;
use crate::error::RecordError;
use crate::events::{Attrs, Heirs, KernelCan, Purpose};
use crate::file_head::{self, Head};
use crate::ip_filter;
use crate::job::{Job, READ_EVERY, Request, Summary};
use crate::kernel_clock;
use crate::means::Means;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::pieces::Cutting;
use crate::plan::{Asked, Layout, Plan};
use crate::pmu::Pmu;
use crate::procfs::Proc;
use crate::pt_config::PtSettings;
use crate::sched_side::{self, SchedSource};
use crate::snapshot::Snapshot;
use crate::sys::HeldChild;
use crate::target::Target;
use crate::workers::Workers;

/// Opened events that do nothing yet.
#[derive(Debug)]
pub struct Session {
    request: Request,
    pmu: Pmu,
    settings: PtSettings,
    /// The plan as decided; the opener has the one in use.
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
            let (filter, proc, overwrites) = (filter.clone(), proc.clone(), request.overwrites);
            let opener = Opener { attrs, can, plan, overwrites, filter, proc, workers };
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
    /// The file cannot be written: the part written before can be read. Or the trace's times mean nothing
    /// here, or the program cannot be executed: then there is no file.
    pub fn record(self, job: &Job<'_>, sched: Option<&mut dyn SchedSource>) -> Result<Summary, RecordError> {
        let (armed, sched) = self.arm(job, sched)?;
        armed.run(job, &sched)?.finish(job, sched)
    }

    /// Enables the sideband, takes the snapshots, and writes the head of the file.
    fn arm<'s>(
        mut self,
        job: &Job<'_>,
        mut sched: Option<&'s mut dyn SchedSource>,
    ) -> Result<(Armed, StartedSched<'s>), RecordError> {
        let clock = self.clock()?;
        self.opener.workers.all(&mut self.buffers, |buffer| buffer.events.enable_sideband());
        let refused = sched.as_mut().and_then(|source| source.start(&|| self.sched_ids()).err());
        let source = sched.filter(|_| refused.is_none());
        let snapshots = self.snapshots(job);
        let (new_file, output) = self.write_head(job, clock, &snapshots, source.is_some())?;
        let Self { request, online, opener, buffers, program, began, .. } = self;
        let armed =
            Armed { request, online, opener, buffers, program, began, clock, snapshots, new_file, output };
        Ok((armed, StartedSched { source, refused }))
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
            if read.elapsed() > READ_EVERY {
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
            overwrites: self.request.overwrites,
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

/// Refuses a process with a memory map that may not be read: the kernel may let us trace what it does not let
/// us look at.
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
