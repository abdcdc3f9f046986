//! Bits of the file header's feature bitmap: `HEADER_*` of tools/perf/util/header.h.

pub(crate) const TRACING_DATA: u32 = 1;
pub(crate) const BUILD_ID: u32 = 2;
pub(crate) const HOSTNAME: u32 = 3;
pub(crate) const OSRELEASE: u32 = 4;
pub(crate) const VERSION: u32 = 5;
pub(crate) const ARCH: u32 = 6;
pub(crate) const NRCPUS: u32 = 7;
pub(crate) const CPUDESC: u32 = 8;
pub(crate) const CPUID: u32 = 9;
pub(crate) const TOTAL_MEM: u32 = 10;
pub(crate) const CMDLINE: u32 = 11;
pub(crate) const EVENT_DESC: u32 = 12;
pub(crate) const PMU_MAPPINGS: u32 = 16;
/// An index of AUXTRACE records, by offsets in the file.
pub(crate) const AUXTRACE: u32 = 18;
pub(crate) const COMPRESSED: u32 = 27;
pub(crate) const CLOCK_DATA: u32 = 29;
