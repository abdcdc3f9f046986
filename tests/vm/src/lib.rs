//! Recordings made by a real kernel, in a virtual machine whose PMU `intel_pt` is a test module (`module`).
//!
//! ```text
//! in the machine, guest    each case: knobs, target, recorder -> NAME.data, NAME.log
//! outside, check           NAME.data -> our decoder -> events   those of NAME.log, made a ground truth (log)
//!                                    -> func_latency report     the counts that the target has printed
//! ```
//!
//! `cargo xtask vm` builds what this needs, starts the machine once and calls both.  [`cases`] is the list.

pub mod case;
pub mod cases;
pub mod check;
mod counts;
mod crystal;
mod edges;
pub mod guest;
pub mod log;
mod losses;
pub mod paths;
mod remains;
mod sched;
mod switches;
mod untraced;
