//! Where the recordings are.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use image::KernelOptions;
use tracegen::truth::verify::KernelText;

/// A recording of the matrix and what is known of it.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// Its name.
    pub name: String,
    /// The run that it was made from.
    pub log: String,
    /// How it was encoded.
    pub options: String,
    /// Only the full run has the time for it.
    pub full_only: bool,
    /// The recording.
    pub data: PathBuf,
    /// Its ground truth.
    pub truth: PathBuf,
    /// What the program printed.
    pub output: PathBuf,
}

impl Fixture {
    /// Packets were lost in it, on purpose.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.options.contains("--ovf-ms") || self.options.contains("--trunc")
    }

    /// All of the run is in it: everything that the program counted.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let partial = ["--filter", "--skip-ms", "--dur-ms", "--max-aux-mb"];
        !self.is_lossy() && !partial.iter().any(|option| self.options.contains(option))
    }

    /// The kernel's code in every way that the recording is to be decoded with; without a traced kernel,
    /// none.
    #[must_use]
    pub fn kernels(&self) -> Vec<Kernel> {
        let mut kernels = vec![Kernel::default()];
        if let Some(dir) = self.kernel_dir() {
            let (kcore, vmlinux) = (dir.clone(), dir.join("vmlinux"));
            let patched = self.options.contains("--kernel-patched");
            let of_vmlinux = if patched { KernelText::Inexact } else { KernelText::There };
            let kcore = KernelOptions { kcore: Some(kcore), vmlinux: None };
            let vmlinux = KernelOptions { kcore: None, vmlinux: Some(vmlinux) };
            kernels.push(Kernel { text: KernelText::There, files: kcore });
            kernels.push(Kernel { text: of_vmlinux, files: vmlinux });
        }
        kernels
    }

    /// Where kernel code is skipped some returns cannot be resolved: their calls were on the trace unit's
    /// stack, which it kept while tracing was off and other threads ran on the CPU, or while the kernel's
    /// scheduler ran, of which an IP filter hides the callers: a thread may be preempted between a call out
    /// of the filter and its return.
    #[must_use]
    pub fn has_holes(&self, kernel: KernelText) -> bool {
        let has = |option| self.options.contains(option);
        let keeps_returns = !has("--drop-ret-stack=1") && !has("--noretcomp");
        let hides_kernel = has("--per-cpu") && has("--kernel") || has("--kernel-filter");
        kernel != KernelText::There && hides_kernel && keeps_returns
    }

    /// The kernels with which every call of the recording can be resolved ([`Self::has_holes`]).
    #[must_use]
    pub fn kernels_without_holes(&self) -> Vec<Kernel> {
        self.kernels().into_iter().filter(|kernel| !self.has_holes(kernel.text)).collect()
    }

    /// Where `vmlinux`, `kcore` and `kallsyms` are, if the kernel was traced.
    #[must_use]
    pub fn kernel_dir(&self) -> Option<PathBuf> {
        let name = if self.options.contains("--kernel-patched") { "kernel-patched" } else { "kernel" };
        self.options.contains("--kernel").then(|| self.data.with_file_name(name))
    }

    /// Its trace has times. One without is for tests of its own: nothing else can be held against the
    /// truth's.
    #[must_use]
    pub fn has_times(&self) -> bool {
        !self.options.contains("--no-tsc-packets")
    }

    /// Its CBR packets come after the core has changed its frequency. Until something else tells the new
    /// frequency, times may be out of their bounds (`docs/accuracy.md`, "What the bounds rely on").
    #[must_use]
    pub fn has_late_cbr(&self) -> bool {
        self.options.contains("--late-cbr-us")
    }

    fn exists(&self) -> bool {
        self.data.is_file() && self.truth.is_file()
    }
}

/// The kernel's code for decoding a recording.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// How good it is.
    pub text: KernelText,
    /// Where it is.
    pub files: KernelOptions,
}

impl Default for Kernel {
    fn default() -> Self {
        Self { text: KernelText::Missing, files: KernelOptions::default() }
    }
}

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The directory that the recordings are in.
fn directory() -> PathBuf {
    match env::var_os("FUNC_LATENCY_FIXTURES") {
        Some(directory) => PathBuf::from(directory),
        None => root().join("target").join("fixtures"),
    }
}

/// All of `fixtures/matrix.txt`, there or not.
fn matrix() -> Vec<Fixture> {
    let text = include_str!("../../fixtures/matrix.txt");
    let directory = directory();
    let line = |line: &str| {
        let mut columns = line.split('|').map(str::trim);
        let (name, log, options) = (columns.next()?, columns.next()?, columns.next()?);
        Some(Fixture {
            name: name.to_owned(),
            log: log.to_owned(),
            options: options.to_owned(),
            full_only: columns.next() == Some("full"),
            data: directory.join(format!("{name}.data")),
            truth: directory.join(format!("{name}.truth")),
            output: directory.join("logs").join(format!("{log}.out")),
        })
    };
    text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect()
}

/// The test does nothing, because something is missing here.
///
/// # Panics
/// If `FUNC_LATENCY_REQUIRE_FIXTURES` is set: then nothing may be missing.
pub fn skip(reason: &str) {
    let required = env::var_os("FUNC_LATENCY_REQUIRE_FIXTURES").is_some_and(|v| v != "0" && !v.is_empty());
    assert!(!required, "{reason}");
    println!("skipped: {reason}");
}

fn missing(name: &str) {
    skip(&format!("no recording {name}; run cargo xtask fixtures"));
}

/// A recording, if it was made.
///
/// # Panics
/// If it was not made but must have been, see [`skip`].
#[must_use]
pub fn fixture(name: &str) -> Option<Fixture> {
    let found = matrix().into_iter().find(|f| f.name == name && f.exists());
    if found.is_none() {
        missing(name);
    }
    found
}

/// The recordings of one run that were made, without those that are left to the full run and those without
/// times. `FUNC_LATENCY_ONLY=NAME` leaves out all others.
///
/// # Panics
/// If one was not made but must have been, see [`skip`]; if the matrix has none of that run.
#[must_use]
pub fn fixtures_of(log: &str) -> Vec<Fixture> {
    assert!(matrix().iter().any(|f| f.log == log), "no recordings of {log} in fixtures/matrix.txt");
    let only = env::var("FUNC_LATENCY_ONLY").ok();
    let is_in_lane = |f: &Fixture| f.has_times() && (!f.full_only || is_full_run());
    let wanted =
        |f: &Fixture| f.log == log && only.as_ref().map_or_else(|| is_in_lane(f), |only| *only == f.name);
    let (there, not): (Vec<_>, Vec<_>) = matrix().into_iter().filter(wanted).partition(Fixture::exists);
    not.iter().for_each(|f| missing(&f.name));
    there
}

/// Checks the recordings of one run ([`fixtures_of`]), and names all that do not pass.
///
/// # Panics
/// If one does not.
pub fn check_all(log: &str, check: impl Fn(&Fixture) -> bool) {
    check_each(&fixtures_of(log), check);
}

/// Checks one of so many recordings of one run, or in a full run all, as [`check_all`] does.
///
/// # Panics
/// If one does not pass.
pub fn check_one_in(many: usize, log: &str, check: impl Fn(&Fixture) -> bool) {
    let recordings = fixtures_of(log);
    let step = if is_full_run() { 1 } else { many };
    let chosen: Vec<Fixture> = recordings.iter().step_by(step).cloned().collect();
    println!("{} of {} recordings of {log}", chosen.len(), recordings.len());
    check_each(&chosen, check);
}

/// Checks the recordings of one run as [`check_all`] does, in a full run only: they are large, and smaller
/// ones have the same in them.
///
/// # Panics
/// If one does not pass.
pub fn check_in_full_run(log: &str, check: impl Fn(&Fixture) -> bool) {
    if is_full_run() {
        check_all(log, check);
    } else {
        println!("{log}: left to the full run");
    }
}

fn check_each(recordings: &[Fixture], check: impl Fn(&Fixture) -> bool) {
    let bad: Vec<&str> = recordings.iter().filter(|f| !check(f)).map(|f| &*f.name).collect();
    assert!(bad.is_empty(), "these recordings do not pass: {}", bad.join(", "));
}

/// The runs of the corpus of hard cases.
#[must_use]
pub fn hard_cases() -> BTreeSet<String> {
    matrix().into_iter().map(|f| f.log).filter(|log| log.starts_with("case-")).collect()
}

/// `cargo xtask ci --full` asks for more of everything that can be had in any number.
#[must_use]
pub fn is_full_run() -> bool {
    env::var_os("FUNC_LATENCY_FULL").is_some_and(|v| v != "0" && !v.is_empty())
}
