//! What a recording is asked for, and what became of it.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use perfdata::write::Features;

use crate::cpu_list::CpuList;
use crate::error::RecordError;
use crate::ip_filter::IpRange;
use crate::losses::Losses;
use crate::pieces::Pieces;
use crate::sched_side::Sched;
use crate::snapshot::BuildIdOf;
use crate::sys::{Interrupts, ProgramStreams};
use crate::target::Target;
use crate::window::Ended;

/// Records are read at least this often.
pub(crate) const READ_EVERY: Duration = Duration::from_millis(10);

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
    /// The trace unit writes over the buffers for ever; what is in them is recorded when that is asked for
    /// ([`Pieces::copies`]).
    pub overwrites: bool,
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

/// Where to, and for how long.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The file.
    pub path: &'a Path,
    /// What it says of machine and command.
    pub features: &'a Features,
    /// How long; `None`: until the target ends.
    pub window: Option<Duration>,
    /// Reads build ids of files mapped before the window, where the kernel does not tell them.
    pub build_id: BuildIdOf<'a>,
    /// Ends the window early.
    pub interrupts: &'a Interrupts,
    /// Cuts the recording into pieces, of which the file is the first; `None`: it is whole.
    pub pieces: Option<&'a Pieces>,
}

impl Job<'_> {
    pub(crate) fn not_written(&self, error: std::io::Error) -> RecordError {
        RecordError::Output { path: self.path.to_path_buf(), error }
    }
}
