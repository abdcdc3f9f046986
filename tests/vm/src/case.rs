//! What a live case is.

use std::path::{Path, PathBuf};

use model::Cpu;

use crate::paths::Vm;

/// Something that is recorded in the virtual machine, and what must hold of it.
#[derive(Debug)]
pub struct Case {
    /// Its name, and that of its files.
    pub name: &'static str,
    /// Parameters of the module while it is recorded (`module/module.c`).
    pub knobs: &'static [(&'static str, u64)],
    /// How many CPUs there are: 1, or 2 where threads are to migrate.
    pub cpus: u32,
    /// The traced program of `programs`, and its arguments.
    pub target: &'static [&'static str],
    /// When that runs.
    pub start: Start,
    /// The recorder.
    pub recorder: Recorder,
    /// With what arguments; for [`Word`]s of them something else is filled in.
    pub arguments: &'static [&'static str],
    /// Functions whose calls the report must have, all of them: as many as the target says, or if it is not
    /// recorded from begin to end, as the log says.
    pub counted: &'static [&'static str],
    /// Functions outside of the IP filter: the report has no call of them.
    pub untraced: &'static [&'static str],
    /// What is lost.
    pub losses: Losses,
    /// The scheduler's events are recorded, too, by `func_latency`.
    pub sched: bool,
}

/// When the target runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The recorder starts it.
    ByRecorder,
    /// Before, and it waits with its work until it is traced.
    Waits,
    /// Before and after: it is told to end.
    Runs,
}

/// The recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder {
    /// `perf record`.
    Perf,
    /// `func_latency`, which reports, too.
    FuncLatency,
}

/// How a case loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// Not at all.
    None,
    /// Overflows of the trace unit.
    Overflows,
    /// The AUX area is full, says a knob.
    Full,
    /// The AUX area is full, because the recorder is stopped for a while.
    Stalled,
    /// Bytes are overwritten.
    Damage,
    /// Newborn threads run before they are attached to.
    Births,
}

/// Words of a command that stand for something else.
#[derive(Debug)]
pub struct Word;

impl Word {
    /// The target, with its arguments.
    pub const TARGET: &str = "{target}";
    /// The running target's process.
    pub const PID: &str = "{pid}";
    /// Where the programs are; may stand inside a word.
    pub const PROGRAMS: &str = "{programs}";
}

impl Case {
    /// What it has recorded.
    #[must_use]
    pub fn data(&self, vm: &Vm) -> PathBuf {
        match self.recorder {
            Recorder::Perf => vm.of_case(self.name, "data"),
            Recorder::FuncLatency => vm.of_case(self.name, "recording").join("perf.data"),
        }
    }

    /// Where perf writes in the machine: in memory. To wait for a write to a shared directory would be two
    /// more context switches, which it records, and writes: where writing takes long enough, without end.
    #[must_use]
    pub fn perf_output(&self) -> PathBuf {
        Path::new("/tmp").join(format!("{}.data", self.name))
    }

    /// The only CPU that is traced, where there are more.
    #[must_use]
    pub fn traced_cpu(&self) -> Option<Cpu> {
        let at = self.arguments.iter().position(|word| *word == "-C").filter(|_| self.cpus > 1)?;
        self.arguments.get(at + 1)?.parse().ok().map(Cpu)
    }

    /// All that runs on its CPUs is recorded, the recorder, too.
    #[must_use]
    pub fn is_of_cpus(&self) -> bool {
        let of_tasks = ["-p", "-T", Word::TARGET];
        !self.arguments.iter().any(|word| of_tasks.contains(word))
    }

    /// A thread of this name is the target's.
    #[must_use]
    pub fn runs(&self, name: &str) -> bool {
        self.target.first().is_some_and(|program| *program == name)
    }

    /// The words of its command; `pid` is the target's, if it runs already.
    #[must_use]
    pub fn command(&self, vm: &Vm, pid: Option<u32>) -> Vec<String> {
        let place = |path: &Path| path.display().to_string();
        let mut words = match self.recorder {
            Recorder::Perf => {
                let data = place(&self.perf_output());
                ["perf", "record", "-B", "-N", "-o", &data].map(str::to_owned).to_vec()
            }
            Recorder::FuncLatency => {
                let directory = place(&vm.of_case(self.name, "recording"));
                let mut words =
                    vec![place(&vm.func_latency()), "--format".into(), "json".into(), "-D".into(), directory];
                words.extend((!self.sched).then(|| "--no-sched".to_owned()));
                words
            }
        };
        let programs = place(&vm.programs());
        for word in self.arguments {
            match *word {
                Word::TARGET => words.extend(self.target_words(&programs)),
                Word::PID => words.extend(pid.map(|pid| pid.to_string())),
                word => words.push(word.replace(Word::PROGRAMS, &programs)),
            }
        }
        words
    }

    /// The target's command.
    #[must_use]
    pub fn target_words(&self, programs: &str) -> Vec<String> {
        let path = |(at, word): (usize, &&str)| match at {
            0 => format!("{programs}/{word}"),
            _ => (*word).to_owned(),
        };
        self.target.iter().enumerate().map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cases::CASES;

    #[test]
    fn words_are_filled_in() {
        let case = Case {
            name: "x",
            knobs: &[],
            cpus: 1,
            target: &["nest", "3"],
            start: Start::Waits,
            recorder: Recorder::Perf,
            arguments: &["-p", Word::PID, "--filter", "filter f @ {programs}/nest", Word::TARGET],
            counted: &[],
            untraced: &[],
            losses: Losses::None,
            sched: false,
        };
        assert_eq!(
            case.command(&Vm::new(Path::new("/vm")), Some(7))[4..],
            [
                "-o",
                "/tmp/x.data",
                "-p",
                "7",
                "--filter",
                "filter f @ /vm/programs/nest",
                "/vm/programs/nest",
                "3"
            ]
        );
    }

    #[test]
    fn names_are_unique_and_a_target_is_started_once() {
        for (at, case) in CASES.iter().enumerate() {
            assert!(CASES[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            let starts = case.arguments.contains(&Word::TARGET);
            assert_eq!(starts, case.start == Start::ByRecorder, "{}", case.name);
        }
    }
}
