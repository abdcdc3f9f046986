//! A measurement again and again, and what of it counts.

use std::time::{Duration, Instant};

use crate::process::Result;

/// Runs of each measurement.
const RUNS: usize = 5;

/// No further run begins after this: `perf script` needs minutes for a big recording, and its noise is far
/// below the ratio.
const BUDGET: Duration = Duration::from_secs(60);

/// Times of the same thing.
#[derive(Debug)]
pub(super) struct Runs<T> {
    seconds: Vec<f64>,
    /// What the last run gave beside the time.
    pub(super) last: T,
}

impl<T> Runs<T> {
    /// Runs `once`, which gives seconds and what else there is.
    pub(super) fn of(mut once: impl FnMut() -> Result<(f64, T)>) -> Result<Self> {
        let start = Instant::now();
        let (first, mut last) = once()?;
        let mut seconds = vec![first];
        while seconds.len() < RUNS && start.elapsed() < BUDGET {
            let (next, result) = once()?;
            seconds.push(next);
            last = result;
        }
        seconds.sort_by(f64::total_cmp);
        Ok(Self { seconds, last })
    }

    /// The median, in seconds.
    pub(super) fn median(&self) -> f64 {
        self.seconds.get(self.seconds.len() / 2).copied().unwrap_or_default()
    }

    /// `1.234`, or `1.234 (2)` where there were fewer runs than there should be.
    pub(super) fn cell(&self) -> String {
        let median = self.median();
        let digits = if median < 1.0 { 4 } else { 2 };
        match self.seconds.len() {
            RUNS => format!("{median:.digits$}"),
            fewer => format!("{median:.digits$} ({fewer})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        let mut times = [3.0, 1.0, 5.0, 0.5, 2.0].into_iter();
        let runs = Runs::of(|| Ok((times.next().unwrap_or(9.0), "x"))).unwrap();
        assert_eq!((runs.median(), runs.cell().as_str(), runs.last), (2.0, "2.00", "x"));
    }

    #[test]
    fn fewer_runs_are_said() {
        let runs = Runs { seconds: vec![0.25], last: () };
        assert_eq!(runs.cell(), "0.2500 (1)");
    }
}
