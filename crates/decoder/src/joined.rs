//! Stored outputs of a thread's buffer as one more, which does in their place.
//!
//! ```text
//!   outputs     ev digest ev  | ev digest  | ev digest ev
//!   joined       ev  digest                          ev
//! ```
//! What calls leave open at the end of an output, and return from at the begin of the next, is joined to
//! longer runs ([`Digester::join`]). So what is left of any number of outputs are some calls that had begun
//! before them or end after them, and what is called in between.

use std::ops::Range;

use model::{Digester, Ns, Pid, RunPart, SpaceId, Tid, TraceEvent};

use crate::laid::LaidPiece;
use crate::owner::Running;
use crate::packed::Packer;
use crate::segment_output::SegmentOutput;
use crate::stored_run::{Level, OutputPlace};
use crate::stored_segment::StoredSegment;
use crate::stretch::Stretch;

/// With so many parts they are joined before more are added.
const PARTS_MAX: usize = 1 << 12;

/// Of outputs with more bytes no more are joined: what is joined has no more than these.
const BYTES_MAX: usize = 1 << 22;

/// Outputs of consecutive segments, joined.
pub(crate) struct Joined<D> {
    /// All of them as one.
    segment: StoredSegment,
    /// How many outputs there are.
    outputs: usize,
    /// The bytes of all.
    bytes: usize,
    /// Of all outputs, without stretches.
    counts: SegmentOutput,
    stretches: Vec<JoinedStretch<D>>,
}

/// What the thread did in one address space.
struct JoinedStretch<D> {
    pid: Pid,
    tid: Tid,
    space: SpaceId,
    start: Ns,
    left_out: u64,
    parts: Vec<RunPart<D>>,
    /// What each part is in the outputs.
    places: Vec<Range<OutputPlace>>,
}

impl<D> Joined<D> {
    /// Of outputs from this segment on.
    pub(crate) fn new(segment: StoredSegment) -> Self {
        Self {
            segment: StoredSegment { bytes: 0, level: Level::Joined, ..segment },
            outputs: 0,
            bytes: 0,
            counts: SegmentOutput::default(),
            stretches: Vec::new(),
        }
    }

    /// The next output can be added.
    pub(crate) fn is_followed_by(&self, next: &StoredSegment) -> bool {
        self.segment.is_followed_by(next) && self.parts() < PARTS_MAX && self.bytes < BYTES_MAX
    }

    fn parts(&self) -> usize {
        self.stretches.iter().map(|stretch| stretch.parts.len()).sum()
    }

    /// Adds the output of the next segment.
    pub(crate) fn add<G: Digester<Digest = D>>(
        &mut self,
        segment: &StoredSegment,
        output: &SegmentOutput,
        pieces: Vec<LaidPiece<D>>,
        digester: &G,
    ) {
        self.segment.extend(segment);
        self.outputs += 1;
        self.counts.add_counts(output);
        for (number, piece) in pieces.into_iter().enumerate() {
            let Some(stretch) = output.stretches.get(piece.stretch) else { continue };
            self.bytes += piece.bytes();
            let at = OutputPlace { segment: segment.at, stretch: number, event: 0 };
            self.of(stretch).add(stretch, piece, at);
        }
        if self.parts() >= PARTS_MAX {
            self.join(digester);
        }
    }

    /// The stretch that this one goes on.
    fn of(&mut self, &Stretch { pid, tid, space, start, .. }: &Stretch) -> &mut JoinedStretch<D> {
        let known =
            self.stretches.last().is_some_and(|last| (last.pid, last.tid, last.space) == (pid, tid, space));
        if !known {
            let (parts, places) = (Vec::new(), Vec::new());
            self.stretches.push(JoinedStretch { pid, tid, space, start, left_out: 0, parts, places });
        }
        let last = self.stretches.len() - 1;
        &mut self.stretches[last]
    }

    fn join<G: Digester<Digest = D>>(&mut self, digester: &G) {
        self.stretches.iter_mut().for_each(|stretch| stretch.join(digester));
    }

    /// The bytes of all as one output; `None`: it is as good as what there is.
    pub(crate) fn finish<G: Digester<Digest = D>>(
        mut self,
        digester: &G,
    ) -> Option<(StoredSegment, Vec<u8>)> {
        if self.outputs < 2 {
            return None;
        }
        self.join(digester);
        let mut packer = Packer::default();
        for stretch in self.stretches {
            stretch.pack(&mut packer, digester)?;
        }
        Some((self.segment, packer.finish(&self.counts).ok()?))
    }
}

impl<D> JoinedStretch<D> {
    /// Adds a piece of a stretch, which is `at` that place.
    fn add(
        &mut self,
        stretch: &Stretch,
        LaidPiece { places, left_out, run, .. }: LaidPiece<D>,
        at: OutputPlace,
    ) {
        self.left_out += left_out;
        if let Some((run, _)) = run {
            return self.push(RunPart::Run(run), at..at.next_stretch());
        }
        let events = stretch.events.get(places).unwrap_or_default();
        for (number, event) in events.iter().enumerate() {
            let place = |event| OutputPlace { event, ..at };
            self.push(RunPart::Event(*event), place(number)..place(number + 1));
        }
    }

    fn push(&mut self, part: RunPart<D>, place: Range<OutputPlace>) {
        self.parts.push(part);
        self.places.push(place);
    }

    /// Each run of parts becomes one.
    fn join<G: Digester<Digest = D>>(&mut self, digester: &G) {
        let runs = digester.join(self.tid, self.space, &self.parts);
        let len = self.parts.len();
        let (parts, places) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.places));
        let (mut parts, mut next) = (parts.into_iter().zip(places), 0);
        for run in runs {
            let Range { start, end } = run.places;
            parts.by_ref().take(start - next).for_each(|(part, place)| self.push(part, place));
            let mut of_run = parts.by_ref().take(end - start).map(|(_, place)| place);
            let Some(first) = of_run.next() else { continue };
            let last = of_run.last().map_or(first.end, |last| last.end);
            self.push(RunPart::Run(run), first.start..last);
            next = end;
        }
        parts.take(len - next).for_each(|(part, place)| self.push(part, place));
    }

    /// Packs it; `None`: a digest cannot be.
    fn pack<G: Digester<Digest = D>>(self, packer: &mut Packer, digester: &G) -> Option<()> {
        let running = Running { pid: self.pid, tid: self.tid, from: self.start, to: Ns::MAX };
        let whole = Stretch::new(running, self.space, self.start);
        let (mut left_out, mut events) = (self.left_out, Vec::<TraceEvent>::new());
        for (part, place) in self.parts.into_iter().zip(self.places) {
            match part {
                RunPart::Event(event) => events.push(event),
                RunPart::Run(run) => {
                    if !events.is_empty() || left_out > 0 {
                        packer.stretch(&whole, std::mem::take(&mut left_out), &events);
                        events.clear();
                    }
                    packer.run(&whole, place, &run, digester.pack(&run.digest)?);
                }
            }
        }
        if !events.is_empty() || left_out > 0 {
            packer.stretch(&whole, left_out, &events);
        }
        Some(())
    }
}
