//! The file up to the first record of the window: all that a reader must know, even if nothing follows.

use std::io::{self, Seek, Write};

use model::{Ns, TscClock};
use perfdata::write::{
    Event, Features, IntelPtInfo, Writer, id_index, sched_descriptions, sched_events, time_conv,
};

use crate::attach::OpenBuffer;
use crate::clocks;
use crate::events::{Attrs, SIDEBAND, TRACE};
use crate::newborns::event_ids;
use crate::plan::Layout;
use crate::pmu::Pmu;
use crate::pt_config::PtSettings;
use crate::snapshot::Snapshot;

/// What the file says of the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) pmu: &'a Pmu,
    pub(crate) settings: &'a PtSettings,
    pub(crate) attrs: Attrs,
    pub(crate) layout: Layout,
    pub(crate) clock: TscClock,
    /// IP filter; empty: none.
    pub(crate) filter: &'a str,
    /// The scheduler's events are in the file, too.
    pub(crate) has_sched: bool,
    /// The trace is that of rings which are overwritten.
    pub(crate) overwrites: bool,
}

/// Writes what stands in front.
pub(crate) fn write<W: Write + Seek>(
    file: W,
    head: &Head<'_>,
    buffers: &[OpenBuffer],
    features: &Features,
    snapshots: &[Snapshot],
) -> io::Result<Writer<W>> {
    let mut events = head.events(buffers);
    // Of rings only: readers of the index take from it which CPUs and threads are recorded.
    let ids = id_index(&events);
    if head.has_sched {
        events.extend(sched_events());
    }
    let mut writer = Writer::new(file, events)?;
    let info = head.info();
    writer.record(&info.auxtrace_info())?;
    writer.record(&time_conv(head.clock, Some(&clocks::sample(head.clock))))?;
    ids.iter().try_for_each(|record| writer.record(record))?;
    writer.feature_records(features)?;
    if head.has_sched {
        // Which symbols of the kernel the stacks need is known at the end.
        writer.record(&sched_descriptions())?;
    }
    snapshots.iter().try_for_each(|snapshot| writer.record(&snapshot.records(Ns(0))))?;
    Ok(writer)
}

impl Head<'_> {
    fn events(&self, buffers: &[OpenBuffer]) -> Vec<Event> {
        let mut events = [
            Event { name: self.settings.event.clone(), attr: self.attrs.trace, ids: Vec::new() },
            Event { name: "dummy:u".to_owned(), attr: self.attrs.sideband, ids: Vec::new() },
        ];
        const { assert!(TRACE == 0 && SIDEBAND == 1) };
        for (number, id) in buffers.iter().flat_map(|buffer| event_ids(&buffer.events)) {
            if let Some(event) = events.get_mut(number) {
                event.ids.push(id);
            }
        }
        events.into()
    }

    fn info(&self) -> IntelPtInfo {
        IntelPtInfo {
            pmu_type: self.pmu.number,
            clock: self.clock,
            have_sched_switch: match self.layout {
                Layout::TasksByCpu => 2,
                Layout::WholeCpus => 3,
                Layout::Threads => 0,
            },
            snapshots: self.overwrites,
            per_cpu_buffers: self.layout != Layout::Threads,
            tsc_ctc_ratio: self.pmu.tsc_ctc_ratio,
            max_nonturbo_ratio: self.pmu.max_nonturbo_ratio,
            filter: self.filter.to_owned(),
        }
    }
}
