//! libipt's times as times of events.

use decoder::{Context, Running};
use model::{EventTime, Ns, Tsc, TscClock};

/// TSC packets have 7 bytes (SDM, "TSC Packet").
const TSC_MASK: u64 = (1 << 56) - 1;

/// Converts libipt's TSC to perf's clock.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    conversion: TscClock,
    /// The bits that TSC packets leave out.
    high: u64,
}

impl Clock {
    pub(crate) fn new(context: &Context<'_>) -> Self {
        let conversion = context.recording.clock.unwrap_or(TscClock { shift: 0, mult: 1, zero: 0 });
        let first = context.recording.time_span.map_or(Ns(0), |(first, _)| first);
        Self { conversion, high: conversion.to_tsc(first).0 & !TSC_MASK }
    }

    pub(crate) fn ns(self, tsc: u64) -> Ns {
        self.conversion.to_ns(Tsc(tsc | self.high))
    }
}

/// While a thread stays on its CPU: all its events lie in there, which is all that is sure of their times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnCpu {
    from: Ns,
    to: Ns,
}

impl OnCpu {
    /// The stretch in which `running` is on its CPU at `at`, or comes to it next: libipt's time is that of
    /// the last packet before, which may lie before the switch.
    pub(crate) fn around(context: &Context<'_>, running: Running, at: Ns) -> Self {
        let (first, last) = context.recording.time_span.unwrap_or((Ns(0), Ns::MAX));
        let away = context.schedule.thread(running.tid).map_or(&[][..], |life| &life.off_cpu);
        let next = away.partition_point(|off| off.from <= at);
        let back = next.checked_sub(1).and_then(|i| away.get(i)).map(|off| off.to.unwrap_or(off.from));
        let leaves = away.get(next).map_or(last, |off| off.from);
        let from = back.unwrap_or(first).max(running.from);
        Self { from, to: leaves.min(running.to).max(from) }
    }

    /// An event's time.
    pub(crate) fn time(self, at: Ns) -> EventTime {
        EventTime { lo: self.from, point: at.clamp(self.from, self.to), hi: self.to }
    }
}
