//! All records of a file, one by one, for listing: also those that no decoder needs.

use std::borrow::Cow;

use model::SidebandRecord;

/// A record as it stands in the file.  Records inside a COMPRESSED one stand where that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// perf's number of its type.
    pub record_type: u32,
    /// Bytes, without the payload of AUXTRACE.
    pub size: usize,
    /// Where in it its time is, in bytes from its start; `None`: it has none, or is a SAMPLE.
    pub time_at: Option<usize>,
    /// Id of the event that wrote it; `None`: it does not say.
    pub event_id: Option<u64>,
    /// What it says; [`model::Sideband::Other`] where that is nothing for a decoder.
    pub record: SidebandRecord,
}

impl Listed {
    /// perf's name of the type, or its number.
    #[must_use]
    pub fn type_name(&self) -> Cow<'static, str> {
        match NAMES.iter().find(|(record_type, _)| *record_type == self.record_type) {
            Some((_, name)) => Cow::Borrowed(*name),
            None => Cow::Owned(format!("RECORD {}", self.record_type)),
        }
    }
}

/// `enum perf_event_type` (include/uapi/linux/perf_event.h) and `enum perf_user_event_type`
/// (tools/lib/perf/include/perf/event.h).
const NAMES: [(u32, &str); 41] = [
    (1, "MMAP"),
    (2, "LOST"),
    (3, "COMM"),
    (4, "EXIT"),
    (5, "THROTTLE"),
    (6, "UNTHROTTLE"),
    (7, "FORK"),
    (8, "READ"),
    (9, "SAMPLE"),
    (10, "MMAP2"),
    (11, "AUX"),
    (12, "ITRACE_START"),
    (13, "LOST_SAMPLES"),
    (14, "SWITCH"),
    (15, "SWITCH_CPU_WIDE"),
    (16, "NAMESPACES"),
    (17, "KSYMBOL"),
    (18, "BPF_EVENT"),
    (19, "CGROUP"),
    (20, "TEXT_POKE"),
    (21, "AUX_OUTPUT_HW_ID"),
    (64, "ATTR"),
    (65, "EVENT_TYPE"),
    (66, "TRACING_DATA"),
    (67, "BUILD_ID"),
    (68, "FINISHED_ROUND"),
    (69, "ID_INDEX"),
    (70, "AUXTRACE_INFO"),
    (71, "AUXTRACE"),
    (72, "AUXTRACE_ERROR"),
    (73, "THREAD_MAP"),
    (74, "CPU_MAP"),
    (75, "STAT_CONFIG"),
    (76, "STAT"),
    (77, "STAT_ROUND"),
    (78, "EVENT_UPDATE"),
    (79, "TIME_CONV"),
    (80, "FEATURE"),
    (81, "COMPRESSED"),
    (82, "FINISHED_INIT"),
    (83, "COMPRESSED2"),
];
