//! Ending intervals at anchors, and settling them: the length of their cycles and their anchors' ranges
//! follow from measurements before and after them.

use super::Clock;
use super::anchor::{Anchor, Kind};
use super::core::{self, Measured, Multiples};
use super::interval::Interval;
use super::range::Range;
use super::span::Span;
use super::timeline::Rule;

impl Clock {
    /// Ends the interval since the last anchor at the anchor `right`.
    pub(super) fn end_interval(&mut self, right: Anchor) {
        self.settle_slow(Some(right));
        let cbr = self.ratio.next_interval();
        let all = self.timeline.restart();
        let Some(left) = self.anchor else {
            self.anchor = Some(right);
            self.timeline.close(Rule::Before(right));
            return self.timeline.settle();
        };
        let measured = if self.has_cyc { self.measure(left, right, all, cbr) } else { None };
        self.slow =
            measured.filter(|measured| self.may_have_slept(right, measured, cbr)).map(|own| (own, cbr));
        if self.slow.is_none() {
            self.count_refuted(measured, cbr);
            if measured.is_some() || !self.has_cyc {
                self.settle_waiting(measured, cbr);
            }
        }
        let left = self.anchor.replace(right).unwrap_or(left);
        self.timeline.close(Rule::Between(Interval::new(left, right, all, cbr, measured)));
        if !self.has_cyc {
            self.settle_waiting(None, None);
        }
    }

    /// A measurement that CBR contradicts is an error.
    fn count_refuted(&mut self, measured: Option<Measured>, cbr: Option<Multiples>) {
        if measured.is_some_and(|measured| !measured.agrees) && self.ratio.length(cbr).is_some() {
            self.errors += 1;
        }
    }

    /// An MTC packet ends an interval with a longer cycle than is known of the core: the next packet tells
    /// whether the core has slept.
    fn may_have_slept(&self, right: Anchor, own: &Measured, cbr: Option<Multiples>) -> bool {
        let known = self.ratio.length(cbr).or(self.measured.map(|measured| measured.range()));
        !right.is_tsc() && known.is_some_and(|known| own.is_longer(known))
    }

    /// Settles what waits for the measurement of the last interval, if that had a long cycle; `right`: what
    /// ends the next one.
    ///
    /// A core that wakes up sends MTC if the counter has changed, and then TSC (SDM, "TSC Packet"). Between
    /// such an MTC and the one before it, cycles stood still somewhere, and measure nothing: all that was
    /// traced there was before the sleep.
    ///
    /// ```text
    ///   MTC --- cycles --- sleep --- MTC TSC
    ///      slots: after the left MTC  ^ says nothing of a cycle
    /// ```
    pub(super) fn settle_slow(&mut self, right: Option<Anchor>) {
        let Some((own, cbr)) = self.slow.take() else { return };
        if right.is_some_and(|right| right.kind == Kind::Tsc)
            && let Some(interval) = self.timeline.interval_that_ends_here()
        {
            interval.measured = None;
            interval.all.doubt.breaks += 1;
            return;
        }
        self.count_refuted(Some(own), cbr);
        // Its own length follows from what comes after it, too.
        let Some(left) = self.timeline.hold_last().map(|interval| interval.left) else { return };
        let right = self.anchor.replace(left);
        self.settle_waiting(Some(own), cbr);
        let left = std::mem::replace(&mut self.anchor, right).unwrap_or(left);
        if let Some(interval) = self.timeline.release_last() {
            interval.left = left;
        }
    }

    /// Measures the length of a cycle between two anchors. A TSC packet's lag is unknown, and twice as long
    /// as CBR says where that is late: an interval that begins or ends with one measures only if it is so
    /// long that the lag does not matter.
    fn measure(
        &mut self,
        left: Anchor,
        right: Anchor,
        all: Span,
        cbr: Option<Multiples>,
    ) -> Option<Measured> {
        let slow = self.cycle.map(Range::or_twice_as_long);
        self.ratio.measure(all.cycle(left.bounded(slow), right.bounded(slow), self.unseen_cycles), cbr)
    }

    /// The length of a cycle that bounds the lag of a TSC packet where no interval around it has one of its
    /// own. Without a measurement nothing bears CBR out, which may be late.
    pub(super) fn lag_cycle(&self) -> Option<Range> {
        if self.measured.is_some() { self.cycle } else { self.cycle.map(Range::or_twice_as_long) }
    }

    /// Settles the intervals that wait; `after`: the frequency measured after them, `cbr`: what CBR packets
    /// say there. It may have been so before, as far back as nothing was measured: the packets come late.
    pub(super) fn settle_waiting(&mut self, after: Option<Measured>, mut cbr: Option<Multiples>) {
        for interval in self.timeline.waiting().rev() {
            interval.cbr = interval.cbr.map(|before| cbr.map_or(before, |late| before.hull(late)));
            cbr = interval.cbr.or(cbr);
        }
        let mut all_narrow = true;
        for interval in self.timeline.waiting() {
            let cbr = self.ratio.length(interval.cbr);
            let around = || core::length(cbr, [self.measured.as_ref(), None, after.as_ref()]);
            // Longer than its cycles take by all that is known around it: the core stood still somewhere, and
            // did not say so. Only measurements on both sides bear witness of that: CBR may be late, the core
            // slower than it says, and as fast again where it was measured.
            interval.stalls =
                interval.measured.is_some_and(|own| around().is_some_and(|around| own.is_longer(around)));
            let is_witnessed = self.measured.is_some() && after.is_some();
            let own = interval.measured.filter(|_| !(interval.stalls && is_witnessed));
            let measured = [self.measured.as_ref(), own.as_ref(), after.as_ref()];
            let cycle = core::length(cbr, measured);
            let cycle = cycle.filter(|_| self.has_cyc && !core::is_unknown(measured));
            let is_faster = core::may_be_faster(cbr, measured);
            interval.settle(if is_faster { cycle.map(Range::or_half_as_long) } else { cycle });
            if interval.is_narrow() {
                self.errors += u64::from(interval.contradicts(self.unseen_cycles));
            } else {
                all_narrow = false;
            }
            self.measured = own.or(self.measured);
        }
        if !all_narrow {
            self.narrow_waiting();
        }
        self.timeline.settle();
    }

    /// Narrows the anchors of the intervals that wait, now that the length of their cycles is known, and
    /// counts what contradicts itself among those. First from the last to the first, by what follows each: so
    /// what one anchor leaves open is what all after it do, and an end that fits its own interval and the
    /// next one fits all.
    fn narrow_waiting(&mut self) {
        let (unseen, cycle) = (self.unseen_cycles, self.lag_cycle());
        let mut errors = 0;
        let mut next: Option<&Interval> = None;
        for interval in self.timeline.waiting().rev() {
            let is_narrow = interval.is_narrow();
            let fits = interval.narrow_start(next, cycle, unseen);
            interval.narrowing = (!is_narrow).then_some(fits);
            next = Some(interval);
        }
        let mut waiting = self.timeline.waiting();
        let Some(mut interval) = waiting.next() else { return };
        loop {
            let mut next = waiting.next();
            let is_final = interval.right.kind == Kind::Final;
            let fits = is_final || interval.narrow_end(next.as_deref_mut(), unseen);
            let is_error = |starts: bool| !starts || !fits || interval.contradicts(unseen);
            errors += u64::from(interval.narrowing.is_some_and(is_error));
            let Some(next) = next else { break };
            interval = next;
        }
        if self.anchor.is_some_and(|last| last.kind != Kind::PsbTsc) {
            self.anchor = Some(interval.right);
        }
        self.errors += errors;
    }
}
