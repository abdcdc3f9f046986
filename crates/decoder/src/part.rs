//! Decoding a part of a recording: what one thread did in a time.
//!
//! ```text
//!   segments of a buffer   |-------------|-------------|-------------|
//!   PSBs                   |  |  |  |  |  |  |  |  |  |  |  |  |  |  |
//!   the time asked for                 <--->
//!   decoded, Psbs                   |-----|--|
//!            Segments(0)   |-------------|-------------|
//! ```
//! A segment that is decoded otherwise, too, gives the same here, to the last digit of a time. One that
//! begins at a later PSB does not know how fast the core's clock was before, which the first interval between
//! two anchors then measures: so it begins one PSB earlier than it must.

use std::collections::BTreeMap;
use std::ops::Range;

use model::{AuxOffset, AuxOwner, AuxPiece, Cpu, Ns, Tid};

use crate::pieces::start_time;
use crate::segment::Timed;
use crate::{Context, search};

/// A time of one thread, and some of the trace around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The thread.
    pub tid: Tid,
    /// First instant.
    pub from: Ns,
    /// Last instant.
    pub to: Ns,
    /// How much is decoded around it.
    pub around: Around,
}

/// What is decoded around a time: what happened before may tell what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// From the PSB before the last one before it, to the first one after it.
    Psbs,
    /// The segments that have it, and this many more on either side.
    Segments(usize),
}

/// A PSB may stand this much later than its TSC says: 64 cycles (`clock::anchor`) of a core at 100 MHz, which
/// is slower than any.
const LAG_NS: u64 = 640;

impl Part {
    /// Where in a buffer's pieces it may be, from a PSB to another: all else need not be read.
    /// `segment_bytes`: of segments.
    pub(crate) fn stretch(
        &self,
        context: &Context<'_>,
        owner: AuxOwner,
        pieces: &[AuxPiece<'_>],
        segment_bytes: u64,
    ) -> Range<AuxOffset> {
        let is_its = match owner {
            AuxOwner::Thread(tid) => tid == self.tid,
            AuxOwner::Cpu(cpu) => {
                let cpus = self.cpus(context);
                cpus.is_empty() || cpus.contains(&cpu)
            }
        };
        if !is_its {
            return Range::default();
        }
        // The one that has it, and another one: it is cut elsewhere than when all is decoded.
        let margin = segment_bytes.saturating_mul(self.more() as u64 + 2);
        search::stretch(context, pieces, (self.from, self.to), margin)
    }

    /// The number of segments more on either side.
    fn more(&self) -> usize {
        match self.around {
            Around::Psbs => 0,
            Around::Segments(more) => more,
        }
    }

    /// The segments of `group` that have it.
    pub(crate) fn of<'s>(&self, context: &Context<'_>, group: Vec<Timed<'s>>) -> Vec<Timed<'s>> {
        let more = self.more();
        let mut starts: BTreeMap<usize, Vec<Ns>> = BTreeMap::new();
        for timed in &group {
            starts.entry(timed.segment.buffer).or_default().push(timed.start);
        }
        let wanted: BTreeMap<usize, _> =
            starts.into_iter().map(|(buffer, starts)| (buffer, self.range(&starts, more, more))).collect();
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        let has = |mut timed: Timed<'s>| {
            let wanted = wanted.get(&timed.segment.buffer)?;
            let number = seen.entry(timed.segment.buffer).or_default();
            // No segment before it is there to say what runs where it begins.
            let is_first = *number == wanted.start;
            let is_wanted = wanted.contains(number);
            *number += 1;
            if is_wanted && self.around == Around::Psbs {
                timed = self.trimmed(context, timed);
            }
            timed.segment.first |= is_first;
            is_wanted.then_some(timed)
        };
        let mut part: Vec<Timed<'s>> = group.into_iter().filter_map(has).collect();
        part.sort_by_key(|timed| (timed.start, timed.segment.buffer));
        part
    }

    /// Which of the stretches that start at `starts` have the time, with `before` and `after` more.
    fn range(&self, starts: &[Ns], before: usize, after: usize) -> Range<usize> {
        let is_before = |start: &Ns| start.0.saturating_add(LAG_NS) < self.from.0;
        let first = starts.partition_point(is_before).saturating_sub(1 + before);
        first..starts.partition_point(|start| *start <= self.to).saturating_add(after)
    }

    /// Cuts the segment, from PSB to PSB, to the part that has the time, and one PSB before.
    fn trimmed<'s>(&self, context: &Context<'_>, timed: Timed<'s>) -> Timed<'s> {
        let psbs = timed.segment.psbs();
        let mut latest = timed.start;
        let starts: Vec<Ns> = psbs
            .iter()
            .map(|at| {
                latest = latest.max(start_time(context, &timed.segment.pieces_from(*at)));
                latest
            })
            .collect();
        let range = self.range(&starts, 1, 0);
        // Where the segment starts it may begin with a loss before its PSB.
        let start = if range.start == 0 { Some(timed.start) } else { starts.get(range.start).copied() };
        let from = psbs.get(range.start).copied().unwrap_or(timed.segment.start());
        let to = psbs.get(range.end).copied().unwrap_or(timed.segment.end);
        Timed { start: start.unwrap_or(timed.start), segment: timed.segment.between(from, to) }
    }

    /// The CPUs that the thread ran on; none: it is not known.
    fn cpus(&self, context: &Context<'_>) -> Vec<Cpu> {
        let runs = context.schedule.thread(self.tid).map_or(&[][..], |life| &life.on_cpu);
        let first = runs.partition_point(|(from, _)| *from <= self.from).saturating_sub(1);
        let during = runs.get(first..).unwrap_or_default().iter().take_while(|(from, _)| *from <= self.to);
        during.map(|(_, cpu)| *cpu).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_psb_whose_tsc_is_right_before_a_time_may_stand_after_it() {
        let part = Part { tid: Tid(1), from: Ns(10_000), to: Ns(10_100), around: Around::Psbs };
        let range = |last| part.range(&[Ns(0), Ns(4_000), Ns(8_000), Ns(last), Ns(20_000)], 1, 0);
        assert_eq!(range(10_000 - LAG_NS), 1..4);
        assert_eq!(range(10_000 - LAG_NS - 1), 2..4);
    }
}
