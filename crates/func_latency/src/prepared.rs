//! A recording up to the moment before its window: functions found, events open, nothing traced.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use image::build_id_of;
use perfdata::write::Features;
use recorder::{CpuList, Interrupts, Job, Pmu, Proc, Request, Session, Summary, machine};

use crate::aim::Aim;
use crate::exit::{Exit, failure};
use crate::host;
use crate::record_config::RecordConfig;

/// Everything that can go wrong before a window has not.
pub(crate) struct Prepared {
    pub(crate) aim: Aim,
    pub(crate) session: Session,
    /// What the file says of machine and command.
    features: Features,
}

impl Prepared {
    /// Finds the functions, opens the events.
    ///
    /// # Errors
    /// It cannot be recorded; nothing is left behind.
    pub(crate) fn new(config: &RecordConfig, interrupts: &Interrupts) -> Result<Self> {
        let proc = Proc::host();
        let pmu = Pmu::discover("/sys".as_ref()).map_err(recorder::RecordError::from)?;
        let pmu = pmu.with_processors_ratio();
        config.request.target.check(&proc)?;
        let aim = Aim::of(config, &pmu, &proc)?;
        give_up_if_interrupted(interrupts)?;
        let command_line = std::env::args().collect();
        let mut features = machine::features(&proc, &CpuList::online("/sys".as_ref()), &pmu, command_line);
        features.build_ids.extend(host::vdso_build_id().map(|id| ("[vdso]".to_owned(), id)));
        let request = Request { filter: aim.ranges.clone(), ..config.request.clone() };
        let session = Session::open(request, pmu)?;
        give_up_if_interrupted(interrupts)?;
        Ok(Self { aim, session, features })
    }

    /// Records to a file.
    ///
    /// # Errors
    /// As [`Session::record`].
    pub(crate) fn record(
        self,
        path: &Path,
        window: Option<Duration>,
        interrupts: &Interrupts,
    ) -> Result<Summary> {
        if let Some(directory) = path.parent().filter(|path| !path.as_os_str().is_empty()) {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        let job = Job { path, features: &self.features, window, build_id: &build_id_of, interrupts };
        Ok(self.session.record(&job)?)
    }
}

/// Ctrl-C before there is a window.
fn give_up_if_interrupted(interrupts: &Interrupts) -> Result<()> {
    match interrupts.take() {
        true => Err(failure(Exit::NotPossible, "interrupted before the window began: nothing was recorded")),
        false => Ok(()),
    }
}
