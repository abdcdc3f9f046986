//! What a live case is.

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
    /// What records it; see [`Word`] for what is filled in.  If a word is [`Word::PID`] the target runs before, and ends behind.
    pub command: &'static [&'static str],
    /// Functions that the target counts the calls of, all of which are recorded: the report must have these counts.
    pub counted: &'static [&'static str],
    /// What the knobs do.
    pub losses: Losses,
}

/// How a case loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// Not at all.
    None,
    /// Overflows of the trace unit.
    Overflows,
    /// The AUX area is full.
    Full,
    /// Bytes are overwritten.
    Damage,
}

/// Words of a command that stand for something else.
#[derive(Debug)]
pub struct Word;

impl Word {
    /// The target, with its arguments.
    pub const TARGET: &str = "{target}";
    /// The running target's process.
    pub const PID: &str = "{pid}";
    /// The file to record to.
    pub const DATA: &str = "{data}";
    /// Where the programs are; may stand inside a word.
    pub const PROGRAMS: &str = "{programs}";
}

impl Case {
    /// The target runs when recording begins.
    #[must_use]
    pub fn attaches(&self) -> bool {
        self.command.contains(&Word::PID)
    }
}
