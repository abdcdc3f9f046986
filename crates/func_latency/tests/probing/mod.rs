//! `func_latency --backend uprobe`, run as its users do.
#![allow(dead_code, reason = "not every test that includes this needs all of it")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The program `name`, made once of a source that is named from the directory of this crate on.
pub(crate) fn compiled(
    once: &'static OnceLock<PathBuf>,
    name: &str,
    compiler: &[&str],
    source: &str,
) -> &'static Path {
    once.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let (compiler, flags) = compiler.split_first().unwrap();
        let mut command = Command::new(compiler);
        command.arg(&source).args(flags).arg("-o").arg(&program);
        assert!(command.status().unwrap().success(), "{command:?}");
        program
    })
}

/// It runs, and its probes are there.
pub(crate) struct Probing {
    child: Child,
    messages: BufReader<ChildStderr>,
    said: String,
}

/// What came of it.
pub(crate) struct Ended {
    /// Exit code.
    pub(crate) code: Option<i32>,
    /// The report, as it was asked for.
    pub(crate) stdout: String,
    /// Its messages.
    pub(crate) said: String,
}

impl Probing {
    /// Starts it for longer than any test takes, and waits until the probes are placed. `None`: that is not
    /// permitted here, which is said.
    pub(crate) fn start(words: &[&str]) -> Option<Self> {
        Self::start_as(&[], words)
    }

    /// Starts it as [`Self::start`] does, with these words first.
    pub(crate) fn start_as(subcommand: &[&str], words: &[&str]) -> Option<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        command.args(subcommand).args(["--backend", "uprobe", "-d", "600", "--verbose"]).args(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains(" placed\n") {
            if messages.read_line(&mut said).unwrap() == 0 {
                assert_eq!(child.wait().unwrap().code(), Some(3), "{said}");
                assert!(not_permitted(&said), "{said}");
                return None;
            }
        }
        Some(Self { child, messages, said })
    }

    /// Ctrl-C: the window ends.
    pub(crate) fn interrupt(&self) {
        signal(self.child.id(), "INT");
    }

    /// Its number as a process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It dies at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.messages.read_to_string(&mut self.said).unwrap();
        Ended { code: self.child.wait().unwrap().code(), stdout, said: self.said }
    }
}

impl Ended {
    /// The report of `--format json`; it must have ended well.
    pub(crate) fn report(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.said);
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -s {name} {pid}");
}

/// Whether this is why there were no probes; says so.
pub(crate) fn not_permitted(said: &str) -> bool {
    let is_it = said.contains("does not permit") || said.contains("/sys/kernel/btf");
    if is_it {
        println!("skipped: {said}");
    }
    is_it
}

/// A unit of `/proc/stat`.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// Time since the start that interrupts and other virtual machines took of all CPUs: threads have it on their
/// clocks, and not in the kernel's sums of what they ran. Each of its numbers was rounded down to ticks.
pub(crate) fn stolen_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    // cpu user nice system idle iowait irq softirq steal
    let ticks = text.lines().next().unwrap().split_whitespace().skip(6).take(3);
    ticks.map(|ticks| ticks.parse::<u64>().unwrap() * TICK_NS).sum()
}
