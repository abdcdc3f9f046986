//! A recording up to the moment before its window: functions found, events open, nothing traced.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use image::build_id_of;
use perfdata::write::Features;
use recorder::{
    CpuList, Interrupts, Job, Pieces, Pmu, PmuError, Proc, Request, Sched, SchedSource, Session, Summary,
    machine,
};

use crate::aim::Aim;
use crate::exit::{Exit, failure};
use crate::record_config::RecordConfig;
use crate::{host, output, sched};

/// Everything that can go wrong before a window has not.
pub(crate) struct Prepared {
    pub(crate) aim: Aim,
    pub(crate) session: Session,
    /// What the file says of machine and command.
    features: Features,
    /// Takes the scheduler's events, or says why not; `None`: they were not asked for.
    sched: Option<Result<Box<dyn SchedSource>, String>>,
}

impl Prepared {
    /// Finds the functions, opens the events.  That may take a while; a signal ends this process at once.
    ///
    /// # Errors
    /// It cannot be recorded; nothing is left behind.
    pub(crate) fn new(config: &RecordConfig, interrupts: &Interrupts) -> Result<Self> {
        // There is no file yet, and a program that is held ends with us.
        interrupts.let_kill_during(|| Self::of(config))
    }

    fn of(config: &RecordConfig) -> Result<Self> {
        let proc = Proc::host();
        let pmu = Pmu::discover("/sys".as_ref()).map_err(|error| without_trace_unit(&error))?;
        let pmu = pmu.with_processors_ratio();
        config.request.target.check(&proc)?;
        let aim = Aim::of(config, &pmu, &proc)?;
        let command_line = std::env::args().collect();
        let mut features = machine::features(&proc, &CpuList::online("/sys".as_ref()), &pmu, command_line);
        features.build_ids.extend(host::vdso_build_id().map(|id| ("[vdso]".to_owned(), id)));
        let request = Request { filter: aim.ranges().to_vec(), ..config.request.clone() };
        // Before the events are open: to load programs takes a while.
        let sched = config.sched.then(|| sched::source(config));
        let session = Session::open(request, pmu)?;
        Ok(Self { aim, session, features, sched })
    }

    /// Records to a file in a directory that is there.
    ///
    /// # Errors
    /// Those of [`Session::record`].
    pub(crate) fn record(
        self,
        path: &Path,
        window: Option<Duration>,
        interrupts: &Interrupts,
    ) -> Result<Summary> {
        self.record_in_pieces(path, window, interrupts, None)
    }

    /// [`Self::record`] into pieces, of which `path` is the first, if `pieces` says how.
    ///
    /// # Errors
    /// Those of [`Session::record`].
    pub(crate) fn record_in_pieces(
        self,
        path: &Path,
        window: Option<Duration>,
        interrupts: &Interrupts,
        pieces: Option<&Pieces>,
    ) -> Result<Summary> {
        let job = Job { path, features: &self.features, window, build_id: &build_id_of, interrupts, pieces };
        match self.sched {
            None => Ok(self.session.record(&job, None)?),
            Some(Ok(mut source)) => Ok(self.session.record(&job, Some(&mut *source))?),
            Some(Err(why)) => Ok(Summary { sched: Sched::Refused(why), ..self.session.record(&job, None)? }),
        }
    }
}

/// There is another way, without a recording, if this command was built with it.
fn without_trace_unit(error: &PmuError) -> anyhow::Error {
    let probes = match cfg!(feature = "bpf") {
        true => "; without one, `func_latency -f FUNC -p PID` times calls by uprobes, and makes no recording",
        false => "",
    };
    failure(Exit::NotPossible, format!("{error}{probes}; `func_latency doctor` says more"))
}

/// Creates the directory of a recording that is yet to be made.
///
/// # Errors
/// It cannot be created.
pub(crate) fn create_directory_of(recording: &Path) -> Result<()> {
    let directory = output::directory(recording);
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}
