//! A follower that shows on a terminal what passes, while it passes.

use std::time::Duration;

use analyzer::ProbedAnalysis;
use anyhow::Result;
use model::{ProbedCall, ProbedEnd};

use super::follower::{Follower, Passed};
use crate::render::units::{duration, grouped};

/// Buckets of each power of two: a figure is right to 3 %.
const PARTS: u32 = 32;

/// Remembers latencies as they were measured.
pub(super) struct Watched {
    buckets: Vec<u64>,
    calls: u64,
}

impl Watched {
    pub(super) fn new() -> Self {
        Self { buckets: vec![0; (64 * PARTS) as usize], calls: 0 }
    }

    /// Calls that have ended so far.
    const fn calls(&self) -> u64 {
        self.calls
    }

    /// The latency that a share of the calls do not exceed; `None`: there were none.
    fn percentile(&self, share: f64) -> Option<Duration> {
        let rank = (share * self.calls as f64).ceil() as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank.max(1)
        })?;
        Some(Duration::from_nanos(middle_ns(bucket as u32)))
    }
}

fn bucket(ns: u64) -> u32 {
    let octave = ns.max(1).ilog2();
    let part = match octave.checked_sub(PARTS.ilog2()) {
        Some(shift) => (ns >> shift) as u32 - PARTS,
        None => ((ns.max(1) << (PARTS.ilog2() - octave)) as u32) - PARTS,
    };
    octave * PARTS + part
}

fn middle_ns(bucket: u32) -> u64 {
    let (octave, part) = (bucket / PARTS, bucket % PARTS);
    let share = (f64::from(part) + 0.5) / f64::from(PARTS);
    (2f64.powi(octave as i32) * (1.0 + share)) as u64
}

impl Follower for Watched {
    fn call(&mut self, analysis: &mut ProbedAnalysis<'_>, call: &ProbedCall) {
        if matches!(call.end_kind, ProbedEnd::Return | ProbedEnd::Jump) {
            self.calls += 1;
            let of = self.buckets.get_mut(bucket(call.end.since(call.start)) as usize);
            of.into_iter().for_each(|count| *count += 1);
        }
        analysis.call_giving(call, None);
    }

    fn passed(&mut self, _: &mut ProbedAnalysis<'_>, passed: &Passed<'_>) -> Result<bool> {
        passed.status.show(|| figures(passed.elapsed(), passed.length, self));
        Ok(false)
    }
}

/// `2.3 s left: 1,234 calls, p50 7.10 us, p99 35.0 us`
fn figures(elapsed: Duration, window: Option<Duration>, seen: &Watched) -> String {
    let when = match window {
        Some(window) => format!("{:.1} s left", window.saturating_sub(elapsed).as_secs_f64()),
        None => format!("{:.1} s", elapsed.as_secs_f64()),
    };
    let calls = if seen.calls() == 1 { "call" } else { "calls" };
    let so_far = format!("{when}: {} {calls}", grouped(seen.calls()));
    let figure = |share| seen.percentile(share).map(|time| duration(time.as_nanos() as u64));
    match (figure(0.5), figure(0.99)) {
        (Some(p50), Some(p99)) => format!("{so_far}, p50 {p50}, p99 {p99} as measured"),
        _ => so_far,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_right_to_three_percent() {
        for ns in (0..40).flat_map(|octave| [3u64 << octave, 5 << octave, (1 << octave) + 1]) {
            let shown = middle_ns(bucket(ns));
            assert!(shown.abs_diff(ns) as f64 <= 0.032 * ns as f64 + 1.0, "{ns}: {shown}");
        }
        assert!(bucket(0) < 64 * PARTS && bucket(u64::MAX) < 64 * PARTS);
    }
}
