//! A recording, opened: the AUX bytes (borrowed from the mapped file), the sideband, the clock.

use std::collections::BTreeSet;

use crate::address::{AuxOffset, Avma};
use crate::clock::{Ns, Tsc, TscClock};
use crate::ids::{Cpu, Pid, Tid};
use crate::sideband::SidebandRecord;
use crate::unknown::NoTimes;

/// The thread or CPU that a buffer's trace is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuxOwner {
    /// All traced threads that ran on this CPU.
    Cpu(Cpu),
    /// One thread.
    Thread(Tid),
}

/// The payload of one AUXTRACE record.
#[derive(Clone, Copy, Debug)]
pub struct AuxPiece<'a> {
    /// Where in the buffer's stream it starts.
    pub offset: AuxOffset,
    /// The bytes, in the mapped file.
    pub bytes: &'a [u8],
    /// Where they are in the file.
    pub file_offset: u64,
}

/// One PERF_RECORD_AUX of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxRecord {
    /// Start in the buffer's stream.
    pub offset: AuxOffset,
    /// Bytes.
    pub size: u64,
    /// PERF_AUX_FLAG_*: see the constants.
    pub flags: u64,
    /// When the kernel wrote it.
    pub time: Option<Ns>,
}

impl AuxRecord {
    /// The buffer was full: data after this record was lost until tracing was enabled again.
    pub const TRUNCATED: u64 = 1;
    /// Snapshot mode: older data was overwritten, and tracing stopped after this.
    pub const OVERWRITE: u64 = 2;
    /// There are gaps inside.
    pub const PARTIAL: u64 = 4;
    /// Collided with another user of the trace unit.
    pub const COLLISION: u64 = 8;

    /// Just after the last byte.
    #[must_use]
    pub fn end(&self) -> AuxOffset {
        self.offset.plus(self.size)
    }

    /// Data was lost after (or inside) this record.
    #[must_use]
    pub fn lost_data(&self) -> bool {
        self.flags & (Self::TRUNCATED | Self::OVERWRITE | Self::PARTIAL | Self::COLLISION) != 0
    }
}

/// One AUX buffer's stream.
#[derive(Clone, Debug)]
pub struct AuxBuffer<'a> {
    /// perf's number of the buffer (AUXTRACE `idx`).
    pub index: u32,
    /// The thread or CPU that the trace is of.
    pub owner: AuxOwner,
    /// The stream's bytes, by offset; pieces do not overlap, but there may be holes.
    pub pieces: Vec<AuxPiece<'a>>,
    /// What the kernel said of the stream, by offset.
    pub records: Vec<AuxRecord>,
}

impl AuxBuffer<'_> {
    /// Bytes of trace.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|p| p.bytes.len() as u64).sum()
    }

    /// No trace at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(|p| p.bytes.is_empty())
    }
}

/// How the trace unit was programmed (the event's `config` and AUXTRACE_INFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtConfig {
    /// CYC packets (`cyc`).
    pub cyc: bool,
    /// A CYC packet comes only when at least this many cycles have passed since the last (0: always).
    pub cyc_threshold: u32,
    /// MTC packets come every `2^mtc_period` ticks of the crystal clock; `None`: no MTC.
    pub mtc_period: Option<u8>,
    /// TSC packets.
    pub tsc: bool,
    /// All branch packets; without them there is no flow (`branch=0`, `notnt`).
    pub branch: bool,
    /// RET compression is on (`noretcomp=0`).
    pub return_compression: bool,
    /// The trace has kernel code, too (`exclude_kernel=0`).
    pub kernel: bool,
    /// The trace has user code (`exclude_user=0`).
    pub user: bool,
    /// TSC ticks per crystal clock tick: numerator, denominator (CPUID 15H EBX, EAX); 0 if unknown.
    pub tsc_ctc_ratio: (u32, u32),
    /// Core:bus ratio at which the core clock equals the TSC's; 0 if unknown.
    pub max_nonturbo_ratio: u32,
    /// IP filters in perf's syntax, empty if none: `filter 0x1180/0x58@/usr/bin/x,...`.
    pub has_ip_filter: bool,
    /// perf recorded snapshots (`-S`): nothing was observed between the pieces.
    pub snapshot: bool,
}

impl Default for PtConfig {
    /// What perf programs for `intel_pt//u`, on an unknown processor.
    fn default() -> Self {
        Self {
            cyc: false,
            cyc_threshold: 0,
            mtc_period: Some(3),
            tsc: true,
            branch: true,
            return_compression: true,
            kernel: false,
            user: true,
            tsc_ctc_ratio: (0, 0),
            max_nonturbo_ratio: 0,
            has_ip_filter: false,
            snapshot: false,
        }
    }
}

impl PtConfig {
    /// What is true of the traces of both events; `None` if their times cannot be read in one way.
    #[must_use]
    pub fn and(self, other: Self) -> Option<Self> {
        let merged = Self {
            branch: self.branch && other.branch,
            return_compression: self.return_compression || other.return_compression,
            kernel: self.kernel || other.kernel,
            user: self.user || other.user,
            ..self
        };
        let timing = |pt: Self| (pt.cyc, pt.cyc_threshold, pt.mtc_period, pt.tsc);
        (timing(self) == timing(other)).then_some(merged)
    }
}

/// The CPU of the recording (`CPUID` feature section), e.g. family 6, model 78, stepping 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuModel {
    /// Family.
    pub family: u32,
    /// Model, extended.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
}

/// What is to be added to the recording's times to get those of another clock; `None`: the recording does not
/// say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffsets {
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: Option<i64>,
    /// Real time since 1970.
    pub realtime_ns: Option<i64>,
}

/// Which CPUs a recording is of. Empty where buffers are those of threads, which go wherever their threads
/// go, or where the recording does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCoverage {
    /// Trace was recorded on these.
    pub traced: BTreeSet<Cpu>,
    /// Context switches were recorded on these.
    pub watched: BTreeSet<Cpu>,
    /// Trace of all that ran on them, and not of certain tasks alone.
    pub is_whole: bool,
    /// How many CPUs were running; `None`: the recording does not say.
    pub running: Option<usize>,
}

impl CpuCoverage {
    /// Trace of this CPU was not recorded.
    #[must_use]
    pub fn is_untraced(&self, cpu: Cpu) -> bool {
        !self.traced.is_empty() && !self.traced.contains(&cpu)
    }

    /// There were CPUs that the recording has nothing of: a thread that has run on one looks as if it had
    /// slept.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        let known = self.traced.union(&self.watched).count();
        !self.traced.is_empty() && self.running.is_some_and(|running| running > known)
    }
}

/// The place from which a file could not be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub file_offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl Recording<'_> {
    /// Where the IP filter's range in the kernel starts, if it has one: perf writes it as `filter
    /// 0xADDRESS/0xSIZE`, without a file.
    #[must_use]
    pub fn kernel_filter(&self) -> Option<Avma> {
        let address = |filter: &str| {
            let range = filter.trim().strip_prefix("filter")?.trim().split('/').next()?;
            u64::from_str_radix(range.strip_prefix("0x")?, 16).ok().map(Avma)
        };
        let ranges = self.ip_filter.split(',').filter(|filter| !filter.contains('@'));
        ranges.filter_map(address).find(|start| start.is_kernel())
    }
}

/// All that one `perf.data` says; by default nothing.
#[derive(Clone, Debug, Default)]
pub struct Recording<'a> {
    /// AUX buffers, by index.
    pub buffers: Vec<AuxBuffer<'a>>,
    /// Sideband by time; records without a time first, ties in file order.
    pub sideband: Vec<SidebandRecord>,
    /// Which CPUs were recorded, where buffers are those of CPUs.
    pub coverage: CpuCoverage,
    /// How the trace unit was programmed.
    pub pt: PtConfig,
    /// TSC to perf's clock; `None`: the recording does not say (no TIME_CONV, no AUXTRACE_INFO).
    pub clock: Option<TscClock>,
    /// Why no time in the trace is known; `None`: times are known.
    pub no_times: Option<NoTimes>,
    /// The recording's times in other clocks.
    pub clock_offsets: ClockOffsets,
    /// IP filter text of AUXTRACE_INFO, empty if none.
    pub ip_filter: String,
    /// The recording's CPU, if it says.
    pub cpu_model: Option<CpuModel>,
    /// The release of the kernel that was recorded on (`uname -r`), if the recording has it.
    pub kernel_release: Option<String>,
    /// The name of the machine that was recorded on (`uname -n`), if the recording has it.
    pub hostname: Option<String>,
    /// Symbols of that kernel, as `/proc/kallsyms` has them: those that its stacks in the recording need; may
    /// be empty.
    pub kernel_symbols: String,
    /// The scheduler's events were timed by another clock, which was joined to perf's: how far off their
    /// times may be, in ns.
    pub sched_apart_ns: Option<u64>,
    /// The command line that was recorded with, if known.
    pub command_line: Vec<String>,
    /// Process that the recording is about, if `-p` or a command made it known by its first COMM.
    pub first_pid: Option<Pid>,
    /// First and last time of any timed record.
    pub time_span: Option<(Ns, Ns)>,
    /// Holes in the buffers are trace that was left out because decoding was too slow, and no damage.
    pub leaves_out: bool,
    /// Where the file is truncated or damaged; what precedes it is whole.
    pub damage: Option<Damage>,
}

impl Recording<'_> {
    /// TSC to perf's clock; where the recording does not say, a tick counts as a nanosecond.
    #[must_use]
    pub fn conversion(&self) -> TscClock {
        self.clock.unwrap_or(TscClock { shift: 0, mult: 1, zero: 0 })
    }

    /// A TSC value near the recording, by this clock: see [`Tsc::of_packet`].
    #[must_use]
    pub fn tsc_near(&self, clock: TscClock) -> Tsc {
        clock.to_tsc(self.time_span.map_or(Ns(0), |(first, _)| first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(traced: &[u32], watched: &[u32], running: Option<usize>) -> CpuCoverage {
        let cpus = |cpus: &[u32]| cpus.iter().copied().map(Cpu).collect();
        CpuCoverage { traced: cpus(traced), watched: cpus(watched), running, ..CpuCoverage::default() }
    }

    #[test]
    fn a_cpu_without_trace_is_known_where_the_others_are() {
        assert!(coverage(&[0, 2], &[0, 1, 2], None).is_untraced(Cpu(1)));
        assert!(!coverage(&[0, 2], &[], None).is_untraced(Cpu(2)));
        assert!(!CpuCoverage::default().is_untraced(Cpu(1)));
    }

    #[test]
    fn what_ran_on_a_cpu_that_was_neither_traced_nor_watched_nobody_knows() {
        assert!(coverage(&[0], &[0], Some(2)).is_partial());
        assert!(!coverage(&[0], &[0, 1], Some(2)).is_partial());
        assert!(!coverage(&[0, 1], &[], Some(2)).is_partial());
        assert!(!coverage(&[0], &[0], None).is_partial());
        assert!(!coverage(&[], &[], Some(2)).is_partial());
    }
}
