//! Whether a call's return address may be rewritten: for each function, and each process in which it is
//! probed.
//!
//! An unwinder that comes to a rewritten return address finds no caller: an exception that would have been
//! caught above ends the program.  It is safe where nothing above can catch one, and nothing else leaves a
//! call by another way than its return:
//!
//! ```text
//!                all stacks known to their start        one not, or none seen
//! handlers       own object, objects above              all objects that the process has mapped
//! (C library)    own code, frames of it above           own code
//! imports        the program, and those                 all objects
//! ```
//! The C library stands below every stack, and its handlers stop no exception.

use std::collections::BTreeSet;

use bpf::StackSeen;
use image::{StackEnd, StackWalk, UnwindRegisters, Unwinding};
use model::{CodeSource, FunctionId, FunctionLookup, Ns, ObjectId, Pid};
use recorder::Proc;

use super::functions::Candidate;
use crate::live_code::LiveCode;

/// These change the stack of a thread within a call.
const SWITCHES: [&str; 4] = ["swapcontext", "makecontext", "setcontext", "sigaltstack"];
/// These unwind all calls of a thread.
const THREAD_ENDS: [&str; 3] = ["pthread_exit", "pthread_cancel", "thrd_exit"];
/// The kernel rewrites the return addresses of 64 nested calls in a thread, and leaves deeper ones alone.
const NESTED_MAX: usize = 32;
/// Code of the kernel, which every process has mapped.
const KERNELS: [&str; 3] = ["[vdso]", "[vsyscall]", "[uprobes]"];

/// Whether return addresses of a function are rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// They are: on each of these stacks nothing handles exceptions above it; 0: nothing that is mapped does.
    Rewritten {
        /// Stacks that were seen.
        stacks: usize,
    },
    /// They are not.
    Probed(Danger),
}

/// Why return addresses may not be rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Danger {
    /// The object of the function has handlers for exceptions, or is the C library and the function has one.
    OwnHandlers(String),
    /// So has this object, which stands above its calls.
    HandlersAbove(String),
    /// So has this one, and where calls come from is not known, for this reason.
    HandlersSomewhere(String, String),
    /// This object can switch stacks within a call, by this function.
    SwitchesStacks(String, &'static str),
    /// This object can end threads within a call, by this function.
    EndsThreads(String, &'static str),
    /// The program is started, and what it loads later may have handlers.
    LoadsLater(String),
    /// The processor compares return addresses with those of a stack of its own.
    ShadowStack,
    /// More calls are nested than the kernel follows.
    Nested,
}

impl Danger {
    /// Why it is not known that nothing goes wrong.
    pub(super) fn why(&self) -> String {
        match self {
            Self::OwnHandlers(object) => format!("{object} has exception handlers"),
            Self::HandlersAbove(object) => {
                format!("{object}, which stands above its calls, has exception handlers")
            }
            Self::HandlersSomewhere(object, why) => format!("{object} has exception handlers, and {why}"),
            Self::SwitchesStacks(object, by) => format!("{object} can switch stacks ({by})"),
            Self::EndsThreads(object, by) => format!("{object} can end threads within calls ({by})"),
            Self::LoadsLater(object) => {
                format!("{object} can load libraries later (dlopen), which may have exception handlers")
            }
            Self::ShadowStack => "the process has a shadow stack".to_owned(),
            Self::Nested => {
                format!("more than {NESTED_MAX} of its calls are nested, and the kernel follows 64")
            }
        }
    }

    /// What happens if return addresses are rewritten nevertheless.
    pub(super) const fn outcome(&self) -> &'static str {
        match self {
            Self::OwnHandlers(_)
            | Self::HandlersAbove(_)
            | Self::HandlersSomewhere(..)
            | Self::LoadsLater(_) => "an exception that is thrown through it ends the program",
            Self::SwitchesStacks(..) => "a stack that is switched within it may end the program",
            Self::EndsThreads(..) => "a thread that ends within it skips what is to be done before",
            Self::ShadowStack => "a return that the processor finds wrong ends the program",
            Self::Nested => "deeper calls are not timed",
        }
    }
}

/// What is known of the target before it is probed.
pub(super) struct Calls<'c> {
    code: &'c LiveCode,
    proc: &'c Proc,
    unwinding: Unwinding<'c>,
    /// Of each function, in the order of the candidates: processes, and stacks from its calls up.
    walks: Vec<Vec<(Pid, StackWalk)>>,
    /// Nothing of the program has run yet.
    is_started: bool,
}

impl<'c> Calls<'c> {
    /// Follows the stacks that were seen of `functions` candidates.
    pub(super) fn new(
        code: &'c LiveCode,
        proc: &'c Proc,
        functions: usize,
        stacks: &[StackSeen],
        is_started: bool,
    ) -> Self {
        let unwinding = Unwinding::new(&code.image);
        let mut walks = vec![Vec::new(); functions];
        for stack in stacks {
            let space = code.image.space(stack.pid, Ns(0));
            let walk = unwinding.walk(space, UnwindRegisters(stack.registers), &|at| stack.word(at));
            if let Some(of_function) = walks.get_mut(stack.function) {
                of_function.push((stack.pid, walk));
            }
        }
        Self { code, proc, unwinding, walks, is_started }
    }

    /// Decides for the candidate of this index.
    pub(super) fn decide(&self, index: usize, candidate: &Candidate) -> Decision {
        let pids: BTreeSet<Pid> = candidate.probed.places.iter().map(|place| place.pid).collect();
        let walks = self.walks.get(index).map_or(&[][..], Vec::as_slice);
        let of_process = |pid: Pid| -> Vec<&StackWalk> {
            walks.iter().filter(|(of, _)| *of == pid).map(|(_, walk)| walk).collect()
        };
        let danger = pids.iter().find_map(|pid| self.danger(*pid, candidate.id, &of_process(*pid)));
        match danger {
            Some(danger) => Decision::Probed(danger),
            None => Decision::Rewritten { stacks: walks.len() },
        }
    }

    fn danger(&self, pid: Pid, function: FunctionId, walks: &[&StackWalk]) -> Option<Danger> {
        let own = self.code.image.object(function)?;
        if has_shadow_stack(self.proc, pid) {
            return Some(Danger::ShadowStack);
        }
        if self.handles(own, || self.unwinding.is_handler(function)) {
            return Some(Danger::OwnHandlers(self.name(own)));
        }
        let above = match self.not_whole(walks) {
            None => self.above(function, walks),
            Some(why) => self.mapped(pid, &why),
        };
        let above = match above {
            Ok(above) => above,
            Err(danger) => return Some(danger),
        };
        // Without the program's file nothing is known of what it imports.
        let Some(program) = self.code.program(pid, self.proc) else {
            return Some(Danger::HandlersSomewhere("the program".to_owned(), "its file is gone".to_owned()));
        };
        above.into_iter().chain([own, program]).find_map(|object| self.leaves_otherwise(object))
    }

    /// The objects above, where none has handlers.
    fn above(&self, function: FunctionId, walks: &[&StackWalk]) -> Result<BTreeSet<ObjectId>, Danger> {
        let mut above = BTreeSet::new();
        for walk in walks {
            if walk.frames.iter().filter(|frame| frame.function == function).count() > NESTED_MAX {
                return Err(Danger::Nested);
            }
            for frame in walk.frames.iter().skip(1) {
                if self.handles(frame.object, || frame.has_handler) {
                    return Err(Danger::HandlersAbove(self.name(frame.object)));
                }
                above.insert(frame.object);
            }
        }
        Ok(above)
    }

    /// All objects that a process has mapped, where none has handlers.
    fn mapped(&self, pid: Pid, why: &str) -> Result<BTreeSet<ObjectId>, Danger> {
        let mapped = self.code.mapped(pid);
        for object in &mapped {
            let name = self.name(*object);
            if !KERNELS.contains(&name.as_str()) && self.handles(*object, || false) {
                return Err(Danger::HandlersSomewhere(name, why.to_owned()));
            }
            if self.is_started && self.imports(*object, &["dlopen"]).is_some() {
                return Err(Danger::LoadsLater(name));
            }
        }
        Ok(mapped)
    }

    /// Why these are not all frames of all stacks that calls come from.
    fn not_whole(&self, walks: &[&StackWalk]) -> Option<String> {
        if walks.is_empty() {
            return Some("no call was seen from which to know where calls come from".to_owned());
        }
        walks.iter().find_map(|walk| {
            let at = match walk.end {
                StackEnd::Start => return None,
                StackEnd::NoTable(at) | StackEnd::Unknown(at) => at,
            };
            let last = walk.frames.last().map(|frame| self.code.image.function_name(frame.function));
            let last = last.map_or_else(String::new, |name| format!(", above {name}"));
            Some(format!("a stack could not be followed to its start (at {at}{last})"))
        })
    }

    /// Of the C library only what has handlers itself counts.
    fn handles(&self, object: ObjectId, itself: impl Fn() -> bool) -> bool {
        match self.unwinding.is_c_library(object) {
            true => itself(),
            false => self.unwinding.has_handlers(object),
        }
    }

    fn leaves_otherwise(&self, object: ObjectId) -> Option<Danger> {
        if self.code.image.is_go(object) {
            return Some(Danger::SwitchesStacks(self.name(object), "Go"));
        }
        let switches = self.imports(object, &SWITCHES);
        switches.map(|by| Danger::SwitchesStacks(self.name(object), by)).or_else(|| {
            self.imports(object, &THREAD_ENDS).map(|by| Danger::EndsThreads(self.name(object), by))
        })
    }

    fn imports(&self, object: ObjectId, names: &[&'static str]) -> Option<&'static str> {
        // Its parts use each other.
        if self.unwinding.is_c_library(object) { None } else { self.unwinding.imported(object, names) }
    }

    fn name(&self, object: ObjectId) -> String {
        self.code.image.object_basename(object).to_owned()
    }
}

/// arch/x86/kernel/cpu/proc.c, `arch_proc_pid_thread_features`.
fn has_shadow_stack(proc: &Proc, pid: Pid) -> bool {
    let status = proc.text(&format!("{}/status", pid.0)).unwrap_or_default();
    let features = status.lines().find_map(|line| line.strip_prefix("x86_Thread_features:"));
    features.is_some_and(|features| features.split_whitespace().any(|feature| feature == "shstk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_stack_is_known_by_the_features_of_a_thread() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        std::fs::create_dir(root.path().join("7")).unwrap();
        for (features, expect) in
            [("x86_Thread_features:\tshstk wrss \n", true), ("x86_Thread_features:\t\n", false), ("", false)]
        {
            std::fs::write(root.path().join("7/status"), format!("Name:\tx\n{features}Threads:\t1\n"))
                .unwrap();
            assert_eq!(has_shadow_stack(&proc, Pid(7)), expect, "{features}");
        }
        assert!(!has_shadow_stack(&proc, Pid(8)));
    }
}
