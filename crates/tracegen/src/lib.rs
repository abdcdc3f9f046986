//! Test support: a real program runs in software, and its exact path becomes valid Intel PT in a `perf.data`
//! file, with the ground truth of every transfer of control and its time.
//!
//! ```text
//! program --qemu-user + plugin--> block log            run, plugin/bblog.c
//! block log --> blocks, threads, mappings              log, block, maps, elf, program
//! threads on simulated CPUs, simulated time            simulate, schedule, slice, flow, clock, rng
//!   ... some calls slower                            fault, slow_calls
//!   ... in the kernel                                kernel
//!   --> packets                                        pt_unit (encoder: the crate `packet`)
//!   --> perf.data                      aux_buffer, sideband, timeline (writer: `perfdata::write`)
//!   --> ground truth                                   truth::format
//! ```
//!
//! [`encode::encode`] does it for one log and one set of [`Options`]; the same log, options and seed give
//! the same bytes.  [`truth`] reads the result, checks `perf script` against it and counts the calls of a
//! function.
//!
//! Limits: one process, and a made-up kernel ([`kernel`]); x86-64; no TSX, PTWRITE, power events, PEBS.
//! Interrupts hit the first or the last instruction of a block only. TIPs are never deferred, and CYC counts
//! core cycles exactly as the core:bus ratio says. What the emulator cannot run is out: AVX-512, rseq; the
//! vDSO is not used, so that `clock_gettime` is a system call.

mod aux_buffer;
pub mod block;
mod calls;
mod clock;
pub mod elf;
pub mod encode;
pub mod error;
mod fault;
mod filter;
mod flow;
mod kernel;
pub mod log;
mod maps;
pub mod options;
pub mod program;
mod pt_clock;
mod pt_unit;
mod return_stack;
mod rng;
pub mod run;
mod schedule;
mod sideband;
mod sigreturn;
mod simulate;
mod slice;
mod slow_calls;
mod thread;
mod timeline;
pub mod truth;

pub use encode::{Summary, encode};
pub use error::Error;
pub use options::Options;
