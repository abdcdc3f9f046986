//! A recording that is there, watched as if it was made now.
//!
//! A part ends with each interval of the recording's time. It has all records up to then, and of each buffer
//! the trace before the first PSB after it.

use anyhow::Result;
use model::{AuxBuffer, AuxOffset, AuxPiece, Ns, Recording, Schedule, Sideband, SidebandRecord};
use perfdata::Source;
use recorder::Interrupts;

use super::growing::Part;
use super::trace_capture::CaptureTrace;
use super::{RecordedInterval, Watch};
use crate::config::CallsConfig;
use crate::exit::{Exit, failure};
use crate::recording;

/// Watches the recording that `config` names. `interrupts`: what ends a view; `None`: there is none.
pub(super) fn run(
    config: &CallsConfig,
    interrupts: Option<&Interrupts>,
    watch: impl FnOnce(&Recording<'_>) -> Result<Watch>,
) -> Result<Exit> {
    let file = recording::open(&config.input)?;
    let whole = recording::read_decodable(&file)?;
    recording::check_times(&whole, "watch")?;
    check(&whole)?;
    recording::warn_of_damage(&whole);
    let schedule = Schedule::new(&whole.sideband);
    let of_switch =
        |body: &Sideband| matches!(body, Sideband::Switch { .. } | Sideband::SwitchCpuWide { .. });
    let has_records = whole.sideband.iter().any(|record| of_switch(&record.body));
    let is_over = || interrupts.is_some_and(Interrupts::take);
    let mut watch = watch(&whole)?.with_switches(schedule.has_switches(), has_records);
    let (first, last) = whole.time_span.unwrap_or_default();
    let interval_ns = watch.interval_ns();
    check_intervals(last.since(first) / interval_ns.max(1))?;
    let mut taken = 0;
    let mut seen_bytes = 0;
    let mut from = first;
    loop {
        let to = Ns(from.0.saturating_add(interval_ns));
        // `None`: everything is there.
        let until = Some(to).filter(|to| *to <= last && *to > from);
        let to = to.min(last);
        let is_new = |record: &SidebandRecord| until.is_none() || record.time <= until;
        let new = whole.sideband.get(taken..).unwrap_or_default();
        let new = new.get(..new.partition_point(is_new)).unwrap_or_default();
        taken += new.len();
        let ends = ends(&whole, until);
        let buffers = || whole.buffers.iter().zip(&ends);
        let needed_from = |buffer: &AuxBuffer<'_>| watch.growing.needed_from(buffer.index);
        let needed = buffers().map(|(buffer, end)| needed_part(buffer, needed_from(buffer), *end));
        let part = Part { buffers: needed.collect(), sideband: new.to_vec(), until, span: Some((first, to)) };
        let bytes: u64 = buffers().map(|(buffer, end)| bytes_until(buffer, *end)).sum();
        let interval = RecordedInterval {
            end: to,
            length_ns: to.since(from).max(1),
            trace_bytes: bytes - seen_bytes,
            not_decoded_bytes: 0,
            now: to,
        };
        watch.add(part, interval)?;
        let files = vec![Source { file: &file, new_from: 0 }];
        let trace = CaptureTrace { files, recordings: vec![&whole], begins: None, copies: None };
        watch.capture(&trace, until);
        seen_bytes = bytes;
        if until.is_none() {
            watch.stay(&trace, is_over);
            break;
        }
        if watch.console.is_left() || is_over() {
            break;
        }
        from = to;
    }
    watch.finish()
}

/// More lines are of no use: one damaged time would make them without end.
const INTERVALS_MAX: u64 = 1 << 24;

fn check_intervals(intervals: u64) -> Result<()> {
    if intervals <= INTERVALS_MAX {
        return Ok(());
    }
    let message =
        format!("watch --replay: {intervals} intervals from the first record to the last; take a larger -n");
    Err(failure(Exit::Usage, message))
}

/// Where each buffer ends at a time: before the first PSB after it; `None`: all is there.
fn ends(whole: &Recording<'_>, to: Option<Ns>) -> Vec<AuxOffset> {
    let end = |buffer: &AuxBuffer<'_>| {
        to.map_or(AuxOffset(u64::MAX), |to| decoder::first_psb_after(whole, &buffer.pieces, to))
    };
    whole.buffers.iter().map(end).collect()
}

/// Refuses what can be reported only as a whole.
fn check(whole: &Recording<'_>) -> Result<()> {
    let refused = |why: &str| {
        Err(failure(Exit::BadInput, format!("watch --replay: {why}; `func_latency report` takes it")))
    };
    if whole.pt.snapshot {
        return refused("the recording is of snapshots");
    }
    if whole.coverage.watched.iter().any(|cpu| whole.coverage.is_untraced(*cpu)) {
        return refused("the recording is of some CPUs only");
    }
    Ok(())
}

/// The pieces of a buffer from the first that is `needed` up to `end`.
fn needed_part<'a>(buffer: &AuxBuffer<'a>, needed: Option<AuxOffset>, end: AuxOffset) -> AuxBuffer<'a> {
    let needed = needed.unwrap_or_default();
    let piece = |piece: &AuxPiece<'a>| {
        let is_needed = piece.offset.plus(piece.bytes.len() as u64) >= needed;
        let len = usize::try_from(end.0.saturating_sub(piece.offset.0))
            .unwrap_or(usize::MAX)
            .min(piece.bytes.len());
        let bytes = piece.bytes.get(..len).filter(|bytes| is_needed && !bytes.is_empty())?;
        Some(AuxPiece { bytes, ..*piece })
    };
    AuxBuffer {
        index: buffer.index,
        owner: buffer.owner,
        pieces: buffer.pieces.iter().filter_map(piece).collect(),
        records: buffer.records.iter().copied().filter(|record| record.offset < end).collect(),
    }
}

fn bytes_until(buffer: &AuxBuffer<'_>, end: AuxOffset) -> u64 {
    let len = |piece: &AuxPiece<'_>| (piece.bytes.len() as u64).min(end.0.saturating_sub(piece.offset.0));
    buffer.pieces.iter().map(len).sum()
}
