//! Programs and functions, ready for a run; and the run in which all functions are timed from the first to
//! the last.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use model::ProbeSink;

use crate::attach::{Part, ProbedFunction};
use crate::error::BpfError;
use crate::probe_points::{Ends, ProbePoints};
use crate::programs::{Programs, Sizes};
use crate::removal::Removal;
use crate::run::{Run, Summary};
use crate::waker_stack::WakerStack;
use crate::wire;

/// How often the ring is emptied.
pub const INTERVAL: Duration = Duration::from_millis(5);

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
    pub(crate) programs: Arc<Programs>,
    pub(crate) functions: Vec<ProbedFunction>,
    follows_scheduler: bool,
}

impl Session {
    /// Loads the programs. Without `waker_stack` the scheduler is not followed: calls have no time off the
    /// CPU.
    ///
    /// # Errors
    /// The kernel does not let us, or there is nothing to probe.
    pub fn open(
        functions: Vec<ProbedFunction>,
        room: Room,
        waker_stack: Option<WakerStack>,
    ) -> Result<Self, BpfError> {
        if functions.iter().all(|function| function.places.is_empty()) {
            return Err(BpfError::NothingToProbe);
        }
        let Room { threads, ring_bytes } = room;
        let follows_scheduler = waker_stack.is_some();
        let waker_stack = waker_stack.unwrap_or(WakerStack::Kernel);
        let sizes = Sizes { functions: functions.len(), threads, ring_bytes, waker_stack };
        let session = Self { programs: Arc::new(Programs::load(sizes)?), functions, follows_scheduler };
        for (index, function) in session.functions.iter().enumerate() {
            session.describe(index, &function.points, !function.is_child)?;
        }
        Ok(session)
    }

    /// Tells the programs of a function's points, and whether its calls are timed, for which all its probes
    /// must be there.  Of functions that were asked for they are; what else is decided when calls have been
    /// counted is told again.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub fn describe(&self, index: usize, points: &ProbePoints, is_timed: bool) -> Result<(), BpfError> {
        let key = u32::try_from(index).unwrap_or(u32::MAX).to_ne_bytes();
        let value = wire::function(points.first_part_len, points.ends == Ends::ByReturnAddress, is_timed);
        let written = self.programs.map("functions")?.update(&key, &value, MapFlags::ANY);
        written.map_err(BpfError::other("cannot tell the programs of a function"))
    }

    /// Whether a link holds many probes, and all threads of a process.
    #[must_use]
    pub fn has_multi(&self) -> bool {
        self.programs.has_multi
    }

    /// A run: nothing is placed yet.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run(&self) -> Result<Run, BpfError> {
        Run::new(&self.programs, self.functions.len(), self.follows_scheduler)
    }

    /// Takes calls of all functions for `window`, or until `is_over`; its probes are being removed after it.
    ///
    /// # Errors
    /// A probe cannot be placed, or the ring cannot be read.
    pub fn record(
        &mut self,
        window: Duration,
        is_over: &mut dyn FnMut() -> bool,
        sink: &mut dyn ProbeSink,
    ) -> Result<(Summary, Removal), BpfError> {
        let mut run = self.run()?;
        for (index, function) in self.functions.iter().enumerate() {
            self.describe(index, &function.points, true)?;
        }
        let groups = self.functions.iter().cloned().enumerate().map(|function| vec![function]);
        run.keep(run.place(groups.collect(), Part::Both)?)?;
        run.time(self.functions.iter().any(|function| function.is_child))?;
        let started = Instant::now();
        while started.elapsed() < window && !is_over() {
            run.read(sink)?;
            thread::sleep(INTERVAL.min(window.saturating_sub(started.elapsed())));
        }
        run.finish(sink)
    }
}
