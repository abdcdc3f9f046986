//! A segment of which the output is stored, or missing.

use model::{AuxOffset, AuxPiece, EventTime, Gap, GapCause, Ns, TraceEvent};
use serde::{Deserialize, Serialize};

use crate::Context;
use crate::owner::{Owner, Running};
use crate::pieces::{clip, first_time, start_time};
use crate::segment::Segment;
use crate::segment_output::SegmentOutput;
use crate::stored_run::Level;
use crate::stretch::{LastTime, Stretch};

/// A segment, or consecutive ones laid together, with stored output; or a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSegment {
    /// Index in `Recording::buffers`.
    pub buffer: usize,
    /// Where it starts.
    pub at: AuxOffset,
    /// Where the next one starts, or the buffer ends.
    pub end: AuxOffset,
    /// The time of its first packets; 0 of a buffer's first segment, which may begin with a loss.
    pub start: Ns,
    /// The time of the next one's first packets; `None`: there is none.
    pub until: Option<Ns>,
    /// The last time before it that is stored with it: its events are not earlier. Of a CPU's buffer none.
    pub after: LastTime,
    /// Its bytes of trace.
    pub bytes: u64,
    /// Its output is stored.
    pub is_there: bool,
    /// What it was made of.
    pub level: Level,
}

/// Buffer, start and level.
pub type SegmentKey = (usize, AuxOffset, Level);

impl StoredSegment {
    /// Of a segment that is decoded.
    pub(crate) fn of(context: &Context<'_>, segment: &Segment<'_>) -> Self {
        let start = if segment.first { Ns(0) } else { start_time(context, &segment.pieces) };
        let ahead = clip(&segment.pieces, segment.end, AuxOffset(u64::MAX));
        Self {
            buffer: segment.buffer,
            at: segment.start(),
            end: segment.end,
            start,
            until: first_time(context, &ahead),
            after: LastTime::default(),
            bytes: segment.len(),
            is_there: true,
            level: Level::Decoded,
        }
    }

    /// No other one has this key, and segments are stored in its order.
    #[must_use]
    pub fn key(&self) -> SegmentKey {
        (self.buffer, self.at, self.level)
    }

    /// The next one starts where this one ends.
    pub(crate) fn is_followed_by(&self, next: &Self) -> bool {
        (self.buffer, self.end) == (next.buffer, next.at)
    }

    /// Adds the one that starts where it ends.
    pub(crate) fn extend(&mut self, next: &Self) {
        (self.end, self.until) = (next.end, next.until);
        self.bytes += next.bytes;
    }

    /// The segment without its bytes.
    pub(crate) fn whole<'a>(&self) -> Segment<'a> {
        Segment {
            buffer: self.buffer,
            pieces: vec![AuxPiece { offset: self.at, bytes: &[], file_offset: 0 }],
            end: self.end,
            first: false,
            last: false,
            truncations: vec![],
            lost_after: None,
            missing: 0,
        }
    }

    /// Its trace as a gap of each thread that ran.
    pub(crate) fn lost(&self, context: &Context<'_>) -> SegmentOutput {
        let Some(buffer) = context.recording.buffers.get(self.buffer) else {
            return SegmentOutput::default();
        };
        let owner = Owner::new(context, buffer);
        let (first, last) = context.recording.time_span.unwrap_or((Ns(0), Ns::MAX));
        let from = self.start.max(first);
        let to = self.until.unwrap_or(last).max(from);
        let now = if self.until.is_some() { owner.at(to) } else { Running::UNKNOWN };
        let mut bytes = self.bytes;
        let stretches = owner.lost(owner.at(from), now, to).into_iter().map(|part| {
            let from = part.from.unwrap_or(from).max(from);
            let until =
                part.not_after.unwrap_or(to).min(to).min(owner.last_of(context, part.running)).max(from);
            let (from, to) = (EventTime::exact(from), EventTime::exact(until));
            let cause = GapCause::NotDecoded;
            let gap = Gap { from, to, bytes: std::mem::take(&mut bytes), at: self.at, cause };
            let space = context.code.space(part.running.pid, from.point);
            let mut stretch = Stretch::new(part.running, space, from.point);
            stretch.push(TraceEvent::Gap(gap));
            stretch
        });
        SegmentOutput { stretches: stretches.collect(), ..SegmentOutput::default() }
    }
}
