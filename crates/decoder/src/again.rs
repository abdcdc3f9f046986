//! Which events are given out of a segment that is decoded more than once: it may still grow.

use model::{AuxOffset, Ns, TraceEvent};

use crate::stretch::Stretch;

/// The events that are given out this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Again {
    /// The last AUX offset with events that were given out.
    pub(crate) after: Option<AuxOffset>,
    /// Where the events end that are given out; `None`: the segment is complete.
    pub(crate) until: Option<Until>,
}

/// The first events of a segment that are not given out yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// Their first AUX offset.
    pub(crate) at: AuxOffset,
    /// None of an event after this time is given out.
    pub(crate) time: Ns,
    /// The thread is still running: more events of this time may come.
    pub(crate) is_growing: bool,
}

impl Again {
    /// More events may come that are not later than the last one that is given out.
    pub(crate) fn is_growing(&self) -> bool {
        self.until.is_some_and(|until| until.is_growing)
    }

    /// Leaves the events that are given out, and the stretches that have some. Returns place and time of the
    /// last of them; `None`: there is none.
    pub(crate) fn cut(&self, stretches: &mut Vec<Stretch>) -> Option<(AuxOffset, Ns)> {
        if let Some(after) = self.after {
            for stretch in &mut *stretches {
                stretch.events.retain(|event| event.at() > after);
            }
        }
        if let Some(until) = self.until {
            // The packet of the first event that waits.
            let mut waiting = None;
            for stretch in &mut *stretches {
                let events = &mut stretch.events;
                let is_late = |event: &TraceEvent| event.at() >= until.at || event.time().point > until.time;
                let end = if waiting.is_some() { Some(0) } else { events.iter().position(is_late) };
                let Some(end) = end else { continue };
                waiting = waiting.or(events.get(end).map(TraceEvent::at));
                events.truncate(end);
            }
            drop_open_gaps(stretches);
            if let Some(at) = waiting {
                drop_packet(stretches, at);
            }
        }
        stretches.retain(|stretch| !stretch.events.is_empty());
        stretches.last()?.events.last().map(|event| (event.at(), event.time().point))
    }
}

/// A gap at the end may end otherwise than it seems to.
fn drop_open_gaps(stretches: &mut Vec<Stretch>) {
    while let Some(stretch) = stretches.last_mut() {
        while matches!(stretch.events.last(), Some(TraceEvent::Gap(_))) {
            stretch.events.pop();
        }
        if !stretch.events.is_empty() {
            return;
        }
        stretches.pop();
    }
}

/// The events of one packet are given out together: drops those of the packet at `at`, which are the last.
fn drop_packet(stretches: &mut [Stretch], at: AuxOffset) {
    let kept = stretches.iter_mut().rev().find(|stretch| !stretch.events.is_empty());
    let Some(events) = kept.map(|stretch| &mut stretch.events) else { return };
    while events.last().is_some_and(|event| event.at() == at) {
        events.pop();
    }
}

#[cfg(test)]
mod tests {
    use model::{Avma, BranchEvent, EventTime, FunctionId, Pid, SpaceId, Target, Tid, Transfer};

    use super::*;
    use crate::owner::Running;

    /// A thread's stretch with an event at each of these offsets and times.
    fn stretch(tid: i32, events: &[(u64, u64)]) -> Stretch {
        let running = Running { pid: Pid(1), tid: Tid(tid), from: Ns(0), to: Ns::MAX };
        let mut stretch = Stretch::new(running, SpaceId(0), Ns(0));
        for &(at, time) in events {
            let to = Target { ip: Avma(0), function: FunctionId::UNKNOWN, at_entry: false };
            let transfer = Transfer::Start { to, after_gap: false };
            let time = EventTime { lo: Ns(time), point: Ns(time), hi: Ns(time) };
            stretch.push(TraceEvent::Branch(BranchEvent { time, at: AuxOffset(at), transfer }));
        }
        stretch
    }

    /// The offsets that are given out of two stretches by `again`.
    fn given(again: Again) -> Vec<u64> {
        let mut stretches = vec![stretch(1, &[(1, 10), (2, 20), (2, 21)]), stretch(2, &[(4, 90), (5, 95)])];
        again.cut(&mut stretches);
        stretches.iter().flat_map(|stretch| &stretch.events).map(|event| event.at().0).collect()
    }

    #[test]
    fn what_is_not_later_is_given_out_and_packets_are_given_out_whole() {
        let until = |at, time| {
            let until = Until { at: AuxOffset(at), time: Ns(time), is_growing: false };
            given(Again { after: None, until: Some(until) })
        };
        assert_eq!(until(9, 99), [1, 2, 2, 4, 5]);
        // The next thread came late: nothing of the one before waits.
        assert_eq!(until(9, 50), [1, 2, 2]);
        assert_eq!(until(5, 99), [1, 2, 2, 4]);
        // One of the two events of a packet is late.
        assert_eq!(until(9, 20), [1]);
        assert_eq!(given(Again { after: Some(AuxOffset(2)), until: None }), [4, 5]);
    }
}
