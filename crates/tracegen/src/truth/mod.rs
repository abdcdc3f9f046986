//! What really happened: the ground truth of a simulated recording.
//!
//! The simulator writes every transfer of control with its exact time, also those that the trace does not
//! hold because packets were lost.  [`format`](mod@format) is the file; [`calls`] are the calls that it
//! implies, by rules of its own; [`verify`] holds a decoder's output against it.

pub mod calls;
pub mod commands;
pub mod format;
pub mod verify;

pub use format::{Error, Event, Events, File, Flags, Kind, Thread, Writer, save};
