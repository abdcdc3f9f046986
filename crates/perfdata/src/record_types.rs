//! The header of records: the numbers of types, and flags of `misc`: `enum perf_event_type` (of
//! include/uapi/linux/perf_event.h) and `enum perf_user_event_type` (of tools/lib/perf/include/perf/event.h).

/// `sizeof(struct perf_event_header)`.
pub const HEADER_SIZE: usize = 8;

/// Memory was mapped.
pub const MMAP: u32 = 1;
/// Records did not fit their buffer.
pub const LOST: u32 = 2;
/// A thread has a name.
pub const COMM: u32 = 3;
/// A thread has died.
pub const EXIT: u32 = 4;
/// A thread was born.
pub const FORK: u32 = 7;
/// A sample of an event.
pub const SAMPLE: u32 = 9;
/// Memory was mapped, with the inode or the build id of its file.
pub const MMAP2: u32 = 10;
/// There is new trace in the buffer of trace.
pub const AUX: u32 = 11;
/// A thread is traced from here on.
pub const ITRACE_START: u32 = 12;
/// Samples did not fit their buffer.
pub const LOST_SAMPLES: u32 = 13;
/// A thread went on or off its CPU.
pub const SWITCH: u32 = 14;
/// A thread went on or off its CPU, and which other one ran there before or after it.
pub const SWITCH_CPU_WIDE: u32 = 15;
/// From here on perf writes the records itself, and they have no trailer.
pub const USER_TYPE_START: u32 = 64;
/// An event, as `perf record` opened it.
pub const HEADER_ATTR: u32 = 64;
/// perf has given it up; our recorder has in it what TRACING_DATA has.
pub const HEADER_EVENT_TYPE: u32 = 65;
/// Formats of tracepoints.
pub const HEADER_TRACING_DATA: u32 = 66;
/// The build id of a file.
pub const HEADER_BUILD_ID: u32 = 67;
/// All buffers have been read once.
pub const FINISHED_ROUND: u32 = 68;
/// CPU and thread of each event id.
pub const ID_INDEX: u32 = 69;
/// The kind of the trace and how it was set.
pub const AUXTRACE_INFO: u32 = 70;
/// A piece of trace, which stands behind the record.
pub const AUXTRACE: u32 = 71;
/// A name of an event, or its CPUs.
pub const EVENT_UPDATE: u32 = 78;
/// From TSC to time.
pub const TIME_CONV: u32 = 79;
/// A section of the header, where there is none.
pub const HEADER_FEATURE: u32 = 80;
/// Records, compressed.
pub const COMPRESSED: u32 = 81;
/// Records, compressed and padded.
pub const COMPRESSED2: u32 = 83;

/// Of any record: about the kernel.
pub const MISC_KERNEL: u16 = 1;
/// Of any record: about user code.
pub const MISC_USER: u16 = 2;
/// Of MMAP and MMAP2: not executable.
pub const MISC_MMAP_DATA: u16 = 1 << 13;
/// Of MMAP2: it has the build id.
pub const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
/// Of a build id: its size is stored.
pub const MISC_BUILD_ID_SIZE: u16 = 1 << 15;
/// Of COMM: by execve.
pub const MISC_COMM_EXEC: u16 = 1 << 13;
/// Of SWITCH and SWITCH_CPU_WIDE: off its CPU.
pub const MISC_SWITCH_OUT: u16 = 1 << 13;
/// Of SWITCH and SWITCH_CPU_WIDE: off its CPU, and it would have run on.
pub const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
