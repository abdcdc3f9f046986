//! perf's own records about the trace: AUXTRACE_INFO, TIME_CONV, ID_INDEX, AUXTRACE.

use model::{AuxOffset, AuxOwner, Ns, TscClock};

use super::event::{Event, EventId};
use super::le::Append;
use super::record::user_record;
use crate::record_types::{AUXTRACE, AUXTRACE_INFO, ID_INDEX, TIME_CONV};

/// PERF_AUXTRACE_INTEL_PT.
const AUXTRACE_TYPE_INTEL_PT: u32 = 1;

/// Size of an AUXTRACE record, without the payload after it.
pub(super) const AUXTRACE_SIZE: u64 = 48;

/// Bits of the `intel_pt` PMU's `config` (/sys/bus/event_source/devices/intel_pt/format).
pub mod pt_config {
    /// `pt`: tracing at all.
    pub const PT: u64 = 1 << 0;
    /// `cyc`.
    pub const CYC: u64 = 1 << 1;
    /// `mtc`.
    pub const MTC: u64 = 1 << 9;
    /// `tsc`.
    pub const TSC: u64 = 1 << 10;
    /// `noretcomp`.
    pub const NORETCOMP: u64 = 1 << 11;
    /// `branch`.
    pub const BRANCH: u64 = 1 << 13;
    /// `mtc_period`, 4 bits.
    pub const MTC_PERIOD_SHIFT: u32 = 14;
    /// `cyc_thresh`, 4 bits.
    pub const CYC_THRESH_SHIFT: u32 = 19;
    /// `psb_period`, 4 bits.
    pub const PSB_PERIOD_SHIFT: u32 = 24;
}

/// What a decoder must know of the recording (AUXTRACE_INFO of Intel PT, `intel_pt_info_fill` in
/// tools/perf/arch/x86/util/intel-pt.c).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntelPtInfo {
    /// `type` of the PMU.
    pub pmu_type: u32,
    /// TSC to perf's clock.
    pub clock: TscClock,
    /// How switches are recorded: 0 unknown, 2 SWITCH records of the traced threads, 3 SWITCH_CPU_WIDE.
    pub have_sched_switch: u64,
    /// The trace is that of rings which are overwritten, copied now and then (`perf record -S`).
    pub snapshots: bool,
    /// The AUX buffers belong to CPUs.
    pub per_cpu_buffers: bool,
    /// TSC ticks per crystal clock tick: numerator, denominator.
    pub tsc_ctc_ratio: (u32, u32),
    /// Core:bus ratio at which the core clock equals the TSC's.
    pub max_nonturbo_ratio: u32,
    /// IP filters in perf's syntax, or empty.
    pub filter: String,
}

impl IntelPtInfo {
    /// AUXTRACE_INFO.
    #[must_use]
    pub fn auxtrace_info(&self) -> Vec<u8> {
        let mut body = vec![];
        body.u32(AUXTRACE_TYPE_INTEL_PT);
        body.u32(0);
        for value in [
            u64::from(self.pmu_type),
            u64::from(self.clock.shift),
            u64::from(self.clock.mult),
            self.clock.zero,
            1, // cap_user_time_zero
            pt_config::TSC,
            pt_config::NORETCOMP,
            self.have_sched_switch,
            u64::from(self.snapshots),
            u64::from(self.per_cpu_buffers),
            pt_config::MTC,
            0xf << pt_config::MTC_PERIOD_SHIFT,
            u64::from(self.tsc_ctc_ratio.0),
            u64::from(self.tsc_ctc_ratio.1),
            pt_config::CYC,
            u64::from(self.max_nonturbo_ratio),
            self.filter.len() as u64,
        ] {
            body.u64(value);
        }
        if !self.filter.is_empty() {
            body.padded_str(&self.filter, 8);
        }
        body.u64(0); // cap_event_trace
        user_record(AUXTRACE_INFO, &body)
    }

    /// TIME_CONV.
    #[must_use]
    pub fn time_conv(&self) -> Vec<u8> {
        time_conv(self.clock, None)
    }
}

/// One instant in three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// In perf's clock, that of the records.
    pub time: Ns,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// Real time since 1970.
    pub realtime_ns: u64,
}

/// TIME_CONV; after what perf reads of it, what perf's clock is in others.
#[must_use]
pub fn time_conv(clock: TscClock, sample: Option<&ClockSample>) -> Vec<u8> {
    let mut body = vec![];
    body.u64(u64::from(clock.shift));
    body.u64(u64::from(clock.mult));
    body.u64(clock.zero);
    body.u64(0); // time_cycles
    body.u64(0); // time_mask
    body.u64(1); // cap_user_time_zero, cap_user_time_short
    let ours = sample.map(|sample| [sample.time.0, sample.monotonic_ns, sample.realtime_ns]);
    ours.into_iter().flatten().for_each(|word| body.u64(word));
    user_record(TIME_CONV, &body)
}

/// ID_INDEX: which ring buffer, CPU and thread each event id belongs to.  A record's size has 16 bits, so
/// many ids make several records.
#[must_use]
pub fn id_index(events: &[Event]) -> Vec<Vec<u8>> {
    index_of(&events.iter().flat_map(|event| event.ids.iter().copied()).collect::<Vec<_>>())
}

/// ID_INDEX of these ids.
pub(super) fn index_of(ids: &[EventId]) -> Vec<Vec<u8>> {
    const IDS_PER_RECORD: usize = 2000;
    ids.chunks(IDS_PER_RECORD)
        .map(|ids| {
            let mut body = vec![];
            body.u64(ids.len() as u64);
            for id in ids {
                body.u64(id.id);
                body.u64(u64::from(id.index));
                body.u64(i64::from(id.cpu) as u64);
                body.u64(i64::from(id.tid) as u64);
            }
            user_record(ID_INDEX, &body)
        })
        .collect()
}

/// One stretch of an AUX buffer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxChunk {
    /// perf's number of the buffer.
    pub index: u32,
    /// The thread or CPU with its trace in the buffer.
    pub owner: AuxOwner,
    /// Where in the buffer's stream.
    pub offset: AuxOffset,
    /// TSC when the data was taken out of the buffer.
    pub reference: u64,
}

impl AuxChunk {
    /// The AUXTRACE record that announces `size` bytes.
    pub(super) fn encode(&self, size: u64) -> Vec<u8> {
        const NONE: u32 = u32::MAX;
        let mut body = vec![];
        body.u64(size);
        body.u64(self.offset.0);
        body.u64(self.reference);
        body.u32(self.index);
        let (tid, cpu) = match self.owner {
            AuxOwner::Thread(tid) => (tid.0 as u32, NONE),
            AuxOwner::Cpu(cpu) => (NONE, cpu.0),
        };
        body.u32(tid);
        body.u32(cpu);
        body.u32(0);
        user_record(AUXTRACE, &body)
    }
}
