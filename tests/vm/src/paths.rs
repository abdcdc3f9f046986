//! Where things are below `target/vm`, the same in the virtual machine and outside.

use std::path::{Path, PathBuf};

/// `target/vm`.
#[derive(Clone, Debug)]
pub struct Vm(PathBuf);

impl Vm {
    /// That directory.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// The PMU.
    #[must_use]
    pub fn module(&self) -> PathBuf {
        self.0.join("soft_pt.ko")
    }

    /// The traced programs.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.0.join("programs")
    }

    /// The command.
    #[must_use]
    pub fn func_latency(&self) -> PathBuf {
        self.0.join("func_latency")
    }

    /// The names of the cases and trials to run, a line each.
    #[must_use]
    pub fn selection(&self) -> PathBuf {
        self.0.join("selection")
    }

    /// A file of a case: `log`, the module's; `switches`, the scheduler's; `out`, what the target has
    /// printed; `report` and `err`, what the recorder has; `end`, how that ended.
    #[must_use]
    pub fn of_case(&self, name: &str, kind: &str) -> PathBuf {
        self.0.join("out").join(format!("{name}.{kind}"))
    }

    /// A file about the whole run: `ratio`, TSC ticks per tick of the crystal clock.
    #[must_use]
    pub fn of_run(&self, name: &str) -> PathBuf {
        self.0.join("out").join(name)
    }

    /// A file of one of the machines, which are numbered from 0 on: `end`, how it ended; `counters`, the
    /// module's.
    #[must_use]
    pub fn of_machine(&self, number: &str, kind: &str) -> PathBuf {
        self.of_run(&format!("machine-{number}.{kind}"))
    }
}
