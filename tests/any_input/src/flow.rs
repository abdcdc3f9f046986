//! Any stream of packets over the code of a real program.

use std::sync::OnceLock;

use model::{
    AuxBuffer, AuxOffset, AuxOwner, AuxPiece, AuxRecord, Cpu, FunctionId, Ns, PtConfig, Recording, Sideband,
    SidebandRecord, Tid, TscClock,
};

use crate::{pipeline, program};

/// The input's first byte: how the stream was recorded.
#[derive(Clone, Copy, Debug)]
struct Recorded(u8);

impl Recorded {
    const IP_FILTER: u8 = 1;
    const NO_RETURN_COMPRESSION: u8 = 2;
    const NO_CYC: u8 = 4;
    const NO_MTC: u8 = 8;
    const PER_CPU: u8 = 0x10;
    /// The input's second byte, times 16: after so many bytes the kernel lost data.
    const TRUNCATED: u8 = 0x20;
    /// Not in small segments, but in one.
    const WHOLE: u8 = 0x40;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// Bytes before the stream.
pub(crate) const HEAD: usize = 2;

/// So small that a stream of a few PSBs has several.
const SEGMENT_BYTES: u64 = 200;

const THREADS: [Tid; 2] = [Tid(1), Tid(2)];

/// The time of a generated stream's first packet, and when it has certainly ended.
const TIME_SPAN: (Ns, Ns) = (Ns(6_680_000_000_000), Ns(6_700_000_000_000));
/// Time slices of the threads of a per-CPU recording.
const SLICE_NS: u64 = 50_000;
const SLICES: u64 = 400;

/// Two bytes that say how it was recorded, and a stream: see [`crate::pipeline`] for what must hold.
///
/// # Panics
/// If it does not.
pub fn flow(input: &[u8]) {
    let Some((recording, segment_bytes)) = recorded(input) else { return };
    pipeline::check(&recording, program::image(), functions(), segment_bytes);
}

/// The recording that an input is, and how large its segments are to be.
pub(crate) fn recorded(input: &[u8]) -> Option<(Recording<'_>, u64)> {
    let (&[flags, truncated_at], stream) = input.split_first_chunk::<HEAD>()?;
    let recorded = Recorded(flags);
    let mut records = vec![];
    if recorded.has(Recorded::TRUNCATED) {
        let size = u64::from(truncated_at) * 16;
        let record = AuxRecord { offset: AuxOffset(0), size, flags: AuxRecord::TRUNCATED, time: None };
        records.push(record);
    }
    let buffer = AuxBuffer {
        index: 0,
        owner: if recorded.has(Recorded::PER_CPU) {
            AuxOwner::Cpu(Cpu(0))
        } else {
            AuxOwner::Thread(THREADS[0])
        },
        pieces: vec![AuxPiece { offset: AuxOffset(0), bytes: stream, file_offset: 0 }],
        records,
    };
    let segment_bytes = if recorded.has(Recorded::WHOLE) { 1 << 20 } else { SEGMENT_BYTES };
    Some((recording(recorded, buffer), segment_bytes))
}

/// The functions of the program.
pub(crate) fn functions() -> &'static [FunctionId] {
    static FUNCTIONS: OnceLock<Vec<FunctionId>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| program::functions(program::image()))
}

/// A recording with the clock of `tracegen`'s.
fn recording(recorded: Recorded, buffer: AuxBuffer<'_>) -> Recording<'_> {
    let sideband = if recorded.has(Recorded::PER_CPU) { switches() } else { vec![started(THREADS[0])] };
    Recording {
        buffers: vec![buffer],
        sideband: [vec![program::sideband()], sideband].concat(),
        pt: PtConfig {
            cyc: !recorded.has(Recorded::NO_CYC),
            mtc_period: (!recorded.has(Recorded::NO_MTC)).then_some(3),
            return_compression: !recorded.has(Recorded::NO_RETURN_COMPRESSION),
            tsc_ctc_ratio: (250, 2),
            max_nonturbo_ratio: 30,
            has_ip_filter: recorded.has(Recorded::IP_FILTER),
            ..PtConfig::default()
        },
        clock: Some(TscClock { shift: 31, mult: 715_827_883, zero: 7_000_000_019 }),
        first_pid: Some(program::PID),
        time_span: Some(TIME_SPAN),
        ..Recording::default()
    }
}

fn record(tid: Tid, ns: u64, body: Sideband) -> SidebandRecord {
    let who = Some(program::PID);
    SidebandRecord { time: Some(Ns(ns)), cpu: Some(Cpu(0)), pid: who, tid: Some(tid), file_offset: 0, body }
}

fn started(tid: Tid) -> SidebandRecord {
    record(tid, TIME_SPAN.0.0, Sideband::ItraceStart { pid: program::PID, tid })
}

/// Two threads in turns.
fn switches() -> Vec<SidebandRecord> {
    let mut records: Vec<_> = THREADS.map(started).to_vec();
    for (slice, tid) in (0..SLICES).zip(THREADS.into_iter().cycle()) {
        let from = TIME_SPAN.0.0 + slice * SLICE_NS;
        records.push(record(tid, from, Sideband::Switch { out: false, preempted: false }));
        records.push(record(tid, from + SLICE_NS - 1000, Sideband::Switch { out: true, preempted: true }));
    }
    records
}
