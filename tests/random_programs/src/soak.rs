//! Programs by the number.

use std::fmt;
use std::fs;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Mutex;

use truth_tests::dice::Dice;

use crate::assembly::symbols;
use crate::check::{self, Checked};
use crate::mode::Mode;
use crate::program::Program;
use crate::run::{kept, run};

/// Recordings of each program.
const MODES: usize = 4;

/// Programs at a time.
const PARALLEL: usize = 2;

/// One of so many programs is decoded by several numbers of workers.
const WORKERS_EVERY: u64 = 8;

/// What was compared, and what was wrong.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Programs.
    pub programs: u64,
    /// Their recordings.
    pub recordings: u64,
    /// What was compared in them.
    pub checked: Checked,
    /// What is wrong, by seed.
    pub wrong: Vec<(u64, String)>,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.recordings += other.recordings;
        self.checked += other.checked;
        self.wrong.extend(other.wrong);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { rows, undecided, unsure, hidden, seen_twice, .. } = self.checked;
        write!(f, "{} programs, {} recordings: {rows} rows, ", self.programs, self.recordings)?;
        write!(f, "of which the reports call {undecided} undecided, the oracle {unsure}; ")?;
        write!(f, "not compared besides: {hidden} rows, ")?;
        write!(
            f,
            "filtered, of programs with handlers that throw, timers or jumps into the filter's functions; "
        )?;
        write!(f, "{seen_twice} rows agree with and without IP filter; {} seeds are wrong", self.wrong.len())
    }
}

/// How the programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Interrupted by timers, in real time: no run is like the one before.
    Timers,
    /// A signal comes only where the program raises it, the same in every run.
    NoTimers,
    /// They have run before, and their files stay.
    Kept,
}

/// Runs the programs of some seeds.  Files of those that are wrong stay in `dir`.
#[must_use]
pub fn soak(seeds: &[u64], runs: Runs, plugin: &Path, dir: &Path) -> Totals {
    let queue = Mutex::new((seeds.iter(), Totals::default()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().ok().and_then(|mut queue| queue.0.next().copied());
                    let Some(seed) = next else { return };
                    let totals = check_seed(seed, runs, plugin, &dir.join(seed.to_string()));
                    if let Ok(mut queue) = queue.lock() {
                        queue.1 += totals;
                    }
                }
            });
        }
    });
    let mut totals = queue.into_inner().map(|queue| queue.1).unwrap_or_default();
    totals.wrong.sort();
    totals
}

/// Runs the program of a seed and checks its recordings, all in `dir`.
fn check_seed(seed: u64, runs: Runs, plugin: &Path, dir: &Path) -> Totals {
    let mut dice = Dice::new(seed);
    let mut program = Program::new(&mut dice);
    program.timer_us = program.timer_us.filter(|_| runs != Runs::NoTimers);
    let symbols = symbols(&program);
    let mut totals = Totals { programs: 1, ..Totals::default() };
    let mut wrong = String::new();
    let done = if runs == Runs::Kept { kept(&program, dir) } else { run(&program, plugin, dir) };
    match done {
        Err(error) => wrong = format!("{error}\n"),
        Ok(run) => {
            for number in 0..MODES {
                let mode = Mode::new(&mut dice, &program);
                let workers = seed.is_multiple_of(WORKERS_EVERY);
                let checked = check::recording(&run, &mode, dir, &format!("mode{number}"), &symbols, workers);
                let checked = checked.unwrap_or_else(|error| Checked::failed(&error));
                if !checked.wrong.is_empty() {
                    wrong += &format!("mode{number}: {}\n{}", mode.0.join(" "), checked.wrong);
                }
                totals.recordings += 1;
                totals.checked += checked;
            }
        }
    }
    if wrong.is_empty() && runs != Runs::Kept {
        let _ = fs::remove_dir_all(dir);
    }
    if !wrong.is_empty() {
        totals.wrong.push((seed, wrong));
    }
    totals
}
