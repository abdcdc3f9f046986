//! Where one CPU of two is traced: a thread's stays on the other one are gaps as long as the scheduler has
//! traced them, and what is complete in the report lies between two of them, and took as long as the log
//! says.
//!
//! The log has nothing of those stays, and the oracle would take it for one piece. So each piece is a thread
//! of its own there.

use std::path::Path;

use anyhow::{Result, ensure};
use decoder::DecodeOptions;
use model::{Cpu, EventSink, Gap, GapCause, Ns, Pid, SpaceId, Tid, TraceEvent};
use serde_json::Value;
use tracegen::truth::File;
use tracegen::truth::calls::Oracle;
use truth_tests::Opened;

use crate::log;
use crate::switches::{Stay, Trace};

/// More than any thread's number: those of the pieces are that much apart.
const PIECE: i32 = 1 << 22;
/// ftrace prints microseconds.
const ROUNDING_NS: u64 = 1_000;

/// A recording of one CPU of two.
pub(crate) struct OneCpu<'a> {
    /// The one that is traced.
    pub(crate) cpu: Cpu,
    /// The scheduler's own trace.
    pub(crate) switches: &'a Trace,
    /// The recording.
    pub(crate) opened: &'a Opened<'a>,
    /// Its log.
    pub(crate) truth: &'a File,
}

impl OneCpu<'_> {
    /// Each stay of a recorded thread on the other CPU is a gap, and their time is lost by the report.
    pub(crate) fn same_stays(&self, report: &Value) -> Result<()> {
        let mut gaps = Gaps::default();
        self.opened.decode(&DecodeOptions { workers: 2, ..DecodeOptions::default() }, &mut gaps);
        ensure!(!gaps.0.is_empty(), "no thread was ever on the other CPU");
        for tid in self.truth.threads().iter().map(|thread| thread.tid) {
            let stays = self.switches.stays_off(tid, self.cpu);
            let gaps: Vec<&Gap> = gaps.0.iter().filter(|(of, _)| *of == tid).map(|(_, gap)| gap).collect();
            // The scheduler's trace begins before the recording, and ends after it.
            let end = gaps.last().map_or(Ns::MAX, |gap| gap.to.point);
            let is_of = |gap: &Gap, stay: &Stay| is_of(gap, Stay { to: stay.to.min(end), ..*stay });
            let during = stays.iter().filter(|stay| gaps.iter().any(|gap| is_of(gap, stay))).count();
            ensure!(during == gaps.len(), "thread {}: {gaps:?}\nby the scheduler {stays:?}", tid.0);
            let first = stays.iter().position(|stay| gaps.first().is_some_and(|gap| is_of(gap, stay)));
            let last = stays.iter().rposition(|stay| gaps.last().is_some_and(|gap| is_of(gap, stay)));
            let all = last.zip(first).map_or(0, |(last, first)| last - first + 1);
            ensure!(all == gaps.len(), "thread {}: {} of {all} stays are gaps", tid.0, gaps.len());
        }
        // A thread's window begins where it is traced first.
        let begin = |tid| {
            let life = self.opened.schedule.thread(tid);
            life.and_then(|life| life.born.into_iter().chain(life.trace_start).min()).unwrap_or_default()
        };
        let in_window = |(tid, gap): &(Tid, Gap)| gap.to.point.since(gap.from.point.max(begin(*tid)));
        let lost: u64 = gaps.0.iter().map(in_window).sum();
        let causes = report["loss"]["by_cause"].as_array().map_or(&[][..], Vec::as_slice);
        let cause = causes.iter().find(|cause| cause["cause"] == GapCause::UntracedCpu.name());
        let reported = cause.and_then(|cause| cause["lost_ns"].as_u64());
        ensure!(reported == Some(lost), "{lost} ns on the other CPU, reported: {causes:?}");
        Ok(())
    }

    /// The complete calls are those that lie between two stays, each with the latency of the log.
    pub(crate) fn same_calls(&self, functions: &[&str], from: &Path, data: &Path) -> Result<()> {
        let piece = |tid: Tid, at: Ns| {
            let before = self.switches.stays_off(tid, self.cpu).partition_point(|stay| stay.from <= at);
            self.truth.thread(tid).map(|_| Tid(tid.0 + PIECE * before as i32))
        };
        let pieces = log::convert_parts(from, self.truth.clock(), &from.with_extension("pieces"), &piece)?;
        let mut oracle = Oracle::new(&pieces, data)?;
        let ids =
            functions.iter().map(|function| self.opened.function(function)).collect::<Result<Vec<_>, _>>()?;
        let report = self.opened.analyse(&ids, &DecodeOptions::default());
        for (function, found) in functions.iter().zip(&report.functions) {
            let rows = oracle.calls(function)?.rows;
            let whole = rows.iter().filter(|row| row.status.is_whole());
            let mut logged: Vec<_> =
                whole.map(|row| (row.tid.0 % PIECE, row.start, row.latency_ns)).collect();
            logged.sort_unstable();
            let mut rows: Vec<_> = found.rows.iter().filter(|row| row.end.status.counted()).collect();
            rows.sort_unstable_by_key(|row| (row.id.tid.0, row.start_ns));
            ensure!(!logged.is_empty(), "{function}: no call lies between two stays");
            ensure!(rows.len() == logged.len(), "{function}: {logged:?}\nreported: {rows:?}");
            for (row, (tid, start, latency_ns)) in rows.into_iter().zip(logged) {
                let is_it = row.id.tid.0 == tid && row.latency_ns.abs_diff(latency_ns) <= row.error_ns;
                ensure!(
                    is_it,
                    "{function}: thread {tid} at {start:?} for {latency_ns} ns, reported: {row:?}"
                );
            }
        }
        Ok(())
    }
}

/// Gaps of threads on untraced CPUs.
#[derive(Default)]
struct Gaps(Vec<(Tid, Gap)>);

impl EventSink for Gaps {
    fn events(&mut self, _pid: Pid, tid: Tid, _space: SpaceId, events: &[TraceEvent]) {
        self.0.extend(events.iter().filter_map(|event| match event {
            TraceEvent::Gap(gap) if gap.cause == GapCause::UntracedCpu => Some((tid, *gap)),
            _ => None,
        }));
    }
}

/// Records are written after the scheduler's events: the gap begins in the stay, and ends after it. The
/// last one ends with the thread, or the recording, and the stay a little later.
fn is_of(gap: &Gap, stay: Stay) -> bool {
    let begins = stay.from.0.saturating_sub(ROUNDING_NS)..=stay.to.0.saturating_add(ROUNDING_NS);
    begins.contains(&gap.from.point.0) && gap.to.point.0.saturating_add(ROUNDING_NS) >= stay.to.0
}
