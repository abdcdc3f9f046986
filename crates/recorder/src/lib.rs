//! Records Intel PT of running programs into a `perf.data` file.
//!
//! ```text
//! pmu         what sysfs says of the trace unit      --pt_config-->  the event's config
//! target      what is recorded
//! procfs      what /proc says of the target          --snapshot-->   records true from the start
//! ip_filter   which file an IP filter must name      (overlay: where files of overlayfs are; filter_mapping:
//!             which mapping of the file the kernel looks for a range in)
//! plan        number, layout and size of buffers     (means: what this process may have)
//! attach      opens events, maps buffers             (events: their attrs; error: why not)
//! snapshot    threads and mappings at the start      (build_ids: each file is read once)
//! session     one recording: open, head of the file, window, end
//!   window      enable, wait, disable
//!   drain       buffers to file, in rounds; newborns: threads that are born meanwhile
//!   ring_copies of rings that are overwritten, what is copied when that is asked for
//!   output      the file that all write to           (file_head: its beginning; new_file: where it is made)
//! started     a program that is started, and not recorded
//! doctor      what this machine lets us record           (kernel_clock: whether a trace has times)
//! sys         system calls and mapped rings: the only `unsafe`
//! ```
//!
//! The decoder never sees any of this: recorder and decoder meet in the file. Nothing here prints, exits or
//! reads the environment. `docs/recording.md` says why things are as they are.

mod armed;
mod attach;
mod buffer_records;
mod build_ids;
mod clocks;
pub mod cpu_list;
mod descriptors;
pub mod doctor;
mod drain;
mod error;
mod events;
mod file_head;
pub mod filter_mapping;
pub mod ip_filter;
mod job;
mod kernel_clock;
mod losses;
pub mod machine;
mod means;
mod new_cpus;
mod new_file;
mod newborns;
mod output;
mod overlay;
mod permission;
mod piece_feed;
mod pieces;
pub mod plan;
pub mod pmu;
pub mod procfs;
mod pt_config;
mod ring_copies;
mod rounds;
mod sched_side;
mod session;
mod snapshot;
mod started;
mod sys;
mod target;
#[cfg(test)]
mod tests;
mod window;
mod workers;

pub use clocks::{at_monotonic as perf_clock_at_monotonic, now as perf_clock_now};
pub use cpu_list::CpuList;
pub use error::RecordError;
pub use events::KernelCan;
pub use filter_mapping::Misplaced;
pub use ip_filter::IpRange;
pub use job::{Job, Request, Summary};
pub use losses::Losses;
pub use means::{LockLimit, Means};
pub use new_file::NewFile;
#[doc(hidden)]
pub use piece_feed::PieceFeed;
pub use pieces::{Piece, Pieces};
pub use plan::{Layout, Plan, PlanError};
pub use pmu::{Pmu, PmuError};
pub use procfs::{MapsLine, Proc};
pub use pt_config::{PtConfigError, PtSettings};
pub use ring_copies::{Copied, RingCopies};
pub use sched_side::{Sched, SchedSource};
pub use session::Session;
pub use snapshot::{BuildIdOf, Mapping, Snapshot};
pub use started::StartedProgram;
pub use sys::{Interrupts, ProgramStreams, UserSignal, let_large_writes_fail, process_cpu_ns};
pub use target::Target;
pub use window::Ended;

/// Reads `bytes` as records of the kernel and as text of `/proc`: for tests of what any bytes do.
#[doc(hidden)]
pub fn read_as_records(bytes: &[u8]) {
    let _ = Losses::none(model::AuxOwner::Cpu(model::Cpu(0))).notice(bytes);
    let text = String::from_utf8_lossy(bytes);
    text.lines().for_each(|line| drop(procfs::parse_maps_line(line)));
    drop(overlay::layers(&text, std::path::Path::new("/merged/file")));
    drop(text.parse::<CpuList>());
}
