//! What a recording is of.

use std::ffi::OsString;

use model::{Pid, Tid};

use crate::error::RecordError;
use crate::procfs::Proc;
use crate::sys::HeldChild;

/// What to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Processes, all threads of each.
    Processes(Vec<Pid>),
    /// Processes, and all that descend from them.
    Families(Vec<Pid>),
    /// Threads.
    Threads(Vec<Tid>),
    /// A program that is started for it, and its arguments.
    Program(Vec<OsString>),
    /// All that runs on the CPUs of [`Request::cpus`].
    WholeCpus,
}

impl Target {
    /// All that is named is there, and lives.
    ///
    /// # Errors
    /// The first process or thread that does not.
    pub fn check(&self, proc: &Proc) -> Result<(), RecordError> {
        match self {
            Self::Processes(pids) | Self::Families(pids) => {
                for pid in pids {
                    let tid = Tid(pid.0);
                    match proc.process_of(tid) {
                        Ok(process) if process != *pid => {
                            return Err(RecordError::NoLeader { tid, process });
                        }
                        Ok(_) if proc.process_lives(*pid) => (),
                        _ => return Err(RecordError::NoProcess(*pid)),
                    }
                }
                Ok(())
            }
            Self::Threads(tids) => {
                let dead = tids.iter().find(|tid| !proc.lives(**tid));
                dead.map_or(Ok(()), |tid| Err(RecordError::NoThread(*tid)))
            }
            Self::Program(_) | Self::WholeCpus => Ok(()),
        }
    }

    /// The processes that are named, or have named threads; of families those that there are now.
    #[must_use]
    pub fn processes(&self, proc: &Proc) -> Vec<Pid> {
        let mut pids = match self {
            Self::Processes(pids) => pids.clone(),
            Self::Families(pids) => proc.families(pids),
            Self::Threads(tids) => tids.iter().filter_map(|tid| proc.process_of(*tid).ok()).collect(),
            Self::Program(_) | Self::WholeCpus => Vec::new(),
        };
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Some of it still lives.
    pub(crate) fn lives(&self, proc: &Proc) -> bool {
        match self {
            Self::Processes(pids) | Self::Families(pids) => pids.iter().any(|pid| proc.process_lives(*pid)),
            Self::Threads(tids) => tids.iter().any(|tid| proc.lives(*tid)),
            Self::Program(_) | Self::WholeCpus => true,
        }
    }

    /// The threads that there are now.
    pub(crate) fn threads(&self, program: Option<&HeldChild>, proc: &Proc) -> Vec<Tid> {
        match self {
            Self::Processes(_) | Self::Families(_) => {
                self.processes(proc).into_iter().flat_map(|pid| proc.tasks(pid).unwrap_or_default()).collect()
            }
            Self::Threads(tids) => tids.clone(),
            Self::Program(_) => program.map(|child| Tid(child.pid().0)).into_iter().collect(),
            Self::WholeCpus => Vec::new(),
        }
    }
}
