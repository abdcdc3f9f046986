//! Which events are given out of a segment that is decoded more than once: it may still grow.

use model::{AuxOffset, Ns, TraceEvent};

use crate::stretch::Stretch;

/// The events that are given out this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Again {
    /// The last AUX offset of which events were given out.
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
            let mut has_ended = false;
            for stretch in &mut *stretches {
                let events = &mut stretch.events;
                let is_late = |event: &TraceEvent| event.at() >= until.at || event.time().point > until.time;
                let end = if has_ended { Some(0) } else { events.iter().position(is_late) };
                has_ended |= end.is_some();
                events.truncate(end.unwrap_or(events.len()));
            }
            drop_open_gaps(stretches);
            if has_ended {
                drop_last_packet(stretches);
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

/// The events of one packet are given out together: drops those of the last packet, as some of them may have
/// been cut.
fn drop_last_packet(stretches: &mut [Stretch]) {
    let kept = stretches.iter_mut().rev().find(|stretch| !stretch.events.is_empty());
    let Some(events) = kept.map(|stretch| &mut stretch.events) else { return };
    let Some(at) = events.last().map(TraceEvent::at) else { return };
    while events.last().is_some_and(|event| event.at() == at) {
        events.pop();
    }
}
