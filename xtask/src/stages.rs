//! A chore in stages, each with its name, its time and how it ended.

use std::time::{Duration, Instant};

use crate::process::Result;

/// How a stage ended when it did not fail.
pub(crate) enum Outcome {
    /// It ran.
    Done,
    /// It could not run here, and why.
    Skipped(String),
}

/// The stages so far.
pub(crate) struct Stages {
    started: Instant,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    time: Duration,
    end: std::result::Result<Outcome, String>,
}

impl Stages {
    /// The clock starts.
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), rows: Vec::new() }
    }

    /// Runs a stage; a failure is kept for [`Self::finish`], so that one run shows all that is wrong.
    /// True if it did not fail.
    pub(crate) fn run(&mut self, name: &str, stage: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("== {name}");
        let start = Instant::now();
        let end = stage();
        let time = start.elapsed();
        match &end {
            Ok(Outcome::Done) => println!("== {name}: ok, {}", seconds(time)),
            Ok(Outcome::Skipped(why)) => println!("== {name}: skipped: {why}"),
            Err(message) => println!("{message}\n== {name}: FAILED, {}", seconds(time)),
        }
        let good = end.is_ok();
        self.rows.push(Row { name: name.to_owned(), time, end });
        good
    }

    /// Prints the table; an error if any stage failed.
    pub(crate) fn finish(self) -> Result {
        println!("\n{:<16} {:>8}", "stage", "time");
        for row in &self.rows {
            let end = match &row.end {
                Ok(Outcome::Done) => "ok".to_owned(),
                Ok(Outcome::Skipped(why)) => format!("skipped: {why}"),
                Err(_) => "FAILED".to_owned(),
            };
            println!("{:<16} {:>8}  {end}", row.name, seconds(row.time));
        }
        println!("{:<16} {:>8}", "total", seconds(self.started.elapsed()));
        let failed: Vec<(&str, &str)> =
            self.rows.iter().filter_map(|row| Some((&*row.name, &**row.end.as_ref().err()?))).collect();
        if failed.is_empty() {
            return Ok(());
        }
        // The messages once more: a reader of the last lines alone is to know what failed.
        for (name, message) in &failed {
            println!("{name}: {message}");
        }
        Err(format!("failed: {}", failed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")))
    }
}

/// A time for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_stop_the_next_stage_but_fails_the_whole() {
        let mut stages = Stages::new();
        assert!(!stages.run("first", || Err("broken".to_owned())));
        assert!(stages.run("second", || Ok(Outcome::Done)));
        assert!(stages.run("third", || Ok(Outcome::Skipped("not here".to_owned()))));
        assert_eq!(stages.finish(), Err("failed: first".to_owned()));
    }
}
