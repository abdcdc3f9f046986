//! Finding a time in a stream without reading it: each PSB+ has its time, and times go forward.
//!
//! ```text
//!   stream   |---------------------------------------------------|
//!   looked at              3   4 5  2            1                   the first PSB after each place
//!   the time                     ^
//! ```
//! Where damage makes times go back the place may be a wrong one; the decoder finds out.

use std::ops::Range;

use model::{AuxOffset, AuxPiece, Ns, Recording};

use crate::Context;
use crate::pieces::{clip, extent, first_time, first_time_by};

/// Nearer than this nothing is looked for.
const NEAR_BYTES: u64 = 1 << 16;

/// A time in a stream.
pub(crate) struct Sought<T> {
    /// The instant.
    pub(crate) time: Ns,
    /// The first PSB with a time at or after a place, and before another one.
    pub(crate) first_psb: T,
}

impl<T: FnMut(AuxOffset, AuxOffset) -> Option<Ns>> Sought<T> {
    /// A part of `stream` in which the instant is: the first PSB after its begin is before it, that after
    /// its end is not, as far as the stream has such.
    pub(crate) fn within(mut self, stream: Range<AuxOffset>) -> Range<AuxOffset> {
        let Range { start: mut low, end: mut high } = stream;
        while high.minus(low) > NEAR_BYTES {
            let middle = low.plus(high.minus(low) / 2);
            match (self.first_psb)(middle, high) {
                Some(at) if at < self.time => low = middle,
                _ => high = middle,
            }
        }
        low..high
    }
}

/// Where in `pieces` the time from `from` to `to` is: from a PSB to another, with `margin` bytes and more on
/// either side.
pub(crate) fn stretch(
    context: &Context<'_>,
    pieces: &[AuxPiece<'_>],
    (from, to): (Ns, Ns),
    margin: u64,
) -> Range<AuxOffset> {
    let Some(stream) = extent(pieces) else { return AuxOffset(0)..AuxOffset(0) };
    let time = |from, until| {
        let at = first_psb(pieces, from, until)?;
        first_time(context, &clip(pieces, at, stream.end))
    };
    let begin = Sought { time: from, first_psb: time }.within(stream.clone()).start;
    let end = Sought { time: to, first_psb: time }.within(begin..stream.end).end;
    let begin = AuxOffset(begin.0.saturating_sub(margin)).max(stream.start);
    let end = end.plus(margin).min(stream.end);
    let cut = |at| first_psb(pieces, at, stream.end);
    let start = if begin == stream.start { begin } else { cut(begin).unwrap_or(stream.start) };
    start..cut(end).unwrap_or(stream.end)
}

/// The first PSB with a time after `time`; the end of `pieces` if there is none.
#[must_use]
pub fn first_psb_after(recording: &Recording<'_>, pieces: &[AuxPiece<'_>], time: Ns) -> AuxOffset {
    let Some(stream) = extent(pieces) else { return AuxOffset(0) };
    let clock = recording.conversion();
    let near = recording.tsc_near(clock);
    let time_at = |at| first_time_by((clock, near), &clip(pieces, at, stream.end));
    let first_time = |from, until| time_at(first_psb(pieces, from, until)?);
    let begin = Sought { time, first_psb: first_time }.within(stream.clone()).start;
    let mut from = begin;
    while let Some(at) = first_psb(pieces, from, stream.end) {
        if time_at(at).is_some_and(|found| found > time) {
            return at;
        }
        from = at.plus(packet::PSB.len() as u64);
    }
    stream.end
}

/// The first PSB at or after `from`, and before `until`.
fn first_psb(pieces: &[AuxPiece<'_>], from: AuxOffset, until: AuxOffset) -> Option<AuxOffset> {
    let found = |piece: AuxPiece<'_>| Some(piece.offset.plus(packet::find_psb(piece.bytes, 0)? as u64));
    clip(pieces, from, until).into_iter().find_map(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of `bytes` with a PSB every 4 KB, one each microsecond: where a time is found, and how many
    /// places were looked at.
    fn find(bytes: u64, time: u64) -> (Range<u64>, u64) {
        let mut looks = 0;
        let first_psb = |from: AuxOffset, until: AuxOffset| {
            looks += 1;
            let at = from.0.next_multiple_of(4096);
            (at < until.0).then_some(Ns(at / 4096 * 1000))
        };
        let found = Sought { time: Ns(time), first_psb }.within(AuxOffset(0)..AuxOffset(bytes));
        (found.start.0..found.end.0, looks)
    }

    #[test]
    fn a_time_in_gigabytes_is_found_by_looking_at_few_places() {
        let bytes = 3 << 30;
        let last = bytes / 4096 * 1000;
        for time in [1, 1000, last / 3, last / 2 + 17, last - 1] {
            let (found, looks) = find(bytes, time);
            let at = time.div_ceil(1000) * 4096;
            assert!(found.start <= at && at <= found.end + 4096, "{time}: {found:?}");
            assert!(found.end - found.start <= NEAR_BYTES, "{time}: {found:?}");
            assert!(looks <= 17, "{looks}");
        }
    }

    #[test]
    fn what_is_before_or_behind_the_stream_is_at_its_ends() {
        assert_eq!(find(1 << 20, 0).0.start, 0);
        assert_eq!(find(1 << 20, u64::MAX).0.end, 1 << 20);
        assert_eq!(find(0, 7), (0..0, 0));
    }
}
