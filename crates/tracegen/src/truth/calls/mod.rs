//! The oracle: every call of the functions that are asked for, from the ground truth alone.
//!
//! It shares no code with the decoder, the analyzer or the symbol table that they use, because they are
//! held against it.  A shadow stack per thread follows the truth's branches, also those that happened while
//! packets were lost, so that a call cut by a loss is known for what it was.  Rules that are not obvious:
//!
//! * A jump is a tail call when it goes to the first address of another function.  `f.cold` is `f`; a jump
//!   from a function to its own entry is a loop.
//! * A direct jump back into the middle of the function that tail-called ends what it called.
//! * A call to a place inside the calling function is part of it; a return to a first address is a jump.
//! * The functions of a stripped object are those of its unwind tables.
//! * PLT stubs, and the lazy binder that they lead to, are not callers: the call site in front is.
//! * A child runs from its first instruction (or the kernel entry) to its return.
//! * A return or indirect jump to where no frame returns to lands in an outer frame: all frames above it are
//!   unwound.  Where that function is active more than once, it is the activation that the returns after the
//!   landing fit; the innermost when several do.
//! * An exception goes on in the innermost frame with that landing pad for its last call, which the tables of
//!   the object have.
//! * A kernel entry with its exit at a handler's first instruction is a signal; rt_sigreturn ends it.
//! * With an IP filter, code outside is a hidden frame, and a call if it is entered at a first address; the
//!   caller is known from the return address.

mod code;
mod flow;
mod instruction;
mod kernel;
mod landing;
mod report;
mod rows;
mod stack;
mod symbols;
#[cfg(test)]
mod tests;
mod unwind;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use model::{Avma, Ns};

pub use report::{Caller, Child, Report};
pub use rows::{Entered, Ran, Row, Status, Sum};

use super::{File, Kind};
use code::{Code, FunctionIndex};
use kernel::KernelStack;
use rows::Tally;
use stack::Stack;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The recording is no whole perf.data file.
    #[error("{}: not a perf.data file, or damaged", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
    },
    /// The function is not in any mapped file.
    #[error("{0}: no such function")]
    NoFunction(String),
    /// More than one function has that name.
    #[error("{name}: one of {}", candidates.join(" "))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The mangled names.
        candidates: Vec<String>,
    },
    /// The function is in a part of the file that is not mapped executable.
    #[error("{0}: not in an executable mapping")]
    NotMapped(String),
}

/// All calls of one function.
#[derive(Clone, Debug)]
pub struct Calls {
    /// Its symbol.
    pub function: String,
    /// Path of the file that it is in.
    pub object: String,
    /// Its first instruction, if it has one.
    pub entry: Option<Avma>,
    /// By thread and entry.
    pub rows: Vec<Row>,
    /// Calls that lie in one loss entirely: they have no row.
    pub hidden: u64,
    /// Landings in frames that are older than the recording; 0 in a full recording.
    pub odd_flow: u64,
    /// Of complete and unwound calls; the last is `*self`, and they add up to the total latency.
    pub children: Vec<Child>,
    /// Of complete and unwound calls.
    pub callers: Vec<Caller>,
    /// Of the other calls, without those inside of another call of the function; the last is `*self`.
    pub open_children: Vec<Child>,
}

impl Calls {
    /// The number of rows with this status.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|r| r.status == status).count()
    }
}

/// Answers about the functions of one recording.
#[derive(Debug)]
pub struct Oracle<'a> {
    truth: &'a File,
    code: Code,
    scheduler: Option<Avma>,
}

impl<'a> Oracle<'a> {
    /// `recording` is the perf.data file: it says what was mapped where.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn new(truth: &'a File, recording: &Path) -> Result<Self, Error> {
        Ok(Self { truth, code: Code::load(recording)?, scheduler: None })
    }

    /// A thread is off its CPU from when it enters the kernel's scheduler, which is in the IP filter, until
    /// it has left it for good: there are no switch records.
    #[must_use]
    pub fn with_scheduler(self, scheduler: Option<Avma>) -> Self {
        Self { scheduler, ..self }
    }

    /// Every call of a function: `symbol`, `FILE:symbol`, `0xADDRESS`, or a C++ identifier that only one
    /// mangled symbol contains.
    ///
    /// # Errors
    /// There is no such function, or more than one.
    pub fn calls(&mut self, function: &str) -> Result<Calls, Error> {
        let mut calls = self.calls_of_each(&[function])?;
        calls.pop().ok_or_else(|| Error::NoFunction(function.to_owned()))
    }

    /// Every call of each of these functions, as [`Self::calls`] has them, in one pass over the truth.
    ///
    /// # Errors
    /// There is no such function, or more than one.
    pub fn calls_of_each(&mut self, functions: &[&str]) -> Result<Vec<Calls>, Error> {
        let wanted: Vec<FunctionIndex> =
            functions.iter().map(|function| self.code.find(function)).collect::<Result<_, _>>()?;
        let (in_kernel, in_user_code): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|function| self.code.is_of_kernel(**function));
        let end = self.truth.threads().iter().filter(|t| t.events > 0).map(|t| t.last).max();
        let end = end.map_or(Ns(0), |tsc| self.truth.ns(tsc));
        let mut tallies: HashMap<FunctionIndex, Tally> = HashMap::new();
        for index in 0..self.truth.threads().len() {
            if !in_user_code.is_empty() {
                add(&mut tallies, self.thread(index, &in_user_code, end));
            }
            if !in_kernel.is_empty() {
                add(&mut tallies, self.thread_in_kernel(index, &in_kernel, end));
            }
        }
        let tally = |function| tallies.get(function).cloned().unwrap_or_default();
        Ok(wanted.iter().map(|function| report::calls(&mut self.code, *function, tally(function))).collect())
    }

    fn thread(&mut self, index: usize, wanted: &[FunctionIndex], end: Ns) -> Stack<'_> {
        let thread = &self.truth.threads()[index];
        let mut stack = Stack::new(&mut self.code, wanted, thread.tid);
        let mut events = self.truth.events(thread);
        // When the thread entered the scheduler, and when it left it last.
        let mut scheduled = None;
        while let Some(event) = events.next() {
            let now = self.truth.ns(event.tsc);
            if event.is_in_kernel() {
                let enters = event.kind == Kind::FilterIn && Some(event.to) == self.scheduler;
                scheduled = if enters { Some((now, now)) } else { scheduled.map(|(since, _)| (since, now)) };
                continue;
            }
            if matches!(event.kind, Kind::SwitchOut | Kind::SwitchIn) && self.scheduler.is_some() {
                continue;
            }
            let (since, until) = scheduled.take().unwrap_or_default();
            stack.off_cpu_ns += until.since(since);
            stack.event(now, &event, &events.clone().user_only());
        }
        if let Some(since) = stack.off_since {
            // Off its CPU until the recording ends.
            stack.now = end;
            stack.off_cpu_ns += end.since(since);
        }
        stack.close_to(0, Status::OpenEnd);
        stack
    }
}

impl<'a> Oracle<'a> {
    /// The kernel was traced, too: its symbols are in `vmlinux`, and it was mapped at `start`.
    ///
    /// # Errors
    /// The file is no kernel.
    pub fn with_kernel(mut self, vmlinux: &Path, start: Avma) -> Result<Self, Error> {
        self.code.add_kernel(vmlinux, start)?;
        Ok(self)
    }

    fn thread_in_kernel(&mut self, index: usize, wanted: &[FunctionIndex], end: Ns) -> Stack<'_> {
        let thread = &self.truth.threads()[index];
        let mut kernel = KernelStack::new(&mut self.code, wanted, thread.tid);
        let mut events = self.truth.events(thread);
        while let Some(event) = events.next() {
            kernel.event(self.truth.ns(event.tsc), &event, &events);
        }
        kernel.finish(end);
        kernel.stack
    }
}

/// Adds what the wanted functions did in one thread.
fn add(tallies: &mut HashMap<FunctionIndex, Tally>, thread: Stack<'_>) {
    let odd_flow = thread.odd_flow;
    for (function, mut wanted) in thread.wanted {
        wanted.tally.rows.sort_by_key(|r| r.number);
        let tally = tallies.entry(function).or_default();
        tally.add(wanted.tally);
        tally.odd_flow += odd_flow;
    }
}

/// [`Oracle::calls`] for one function only.
///
/// # Errors
/// See [`Error`].
pub fn calls(truth: &File, recording: &Path, function: &str) -> Result<Calls, Error> {
    Oracle::new(truth, recording)?.calls(function)
}
