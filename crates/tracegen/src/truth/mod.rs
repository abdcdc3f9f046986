//! What really happened: the ground truth of a simulated recording.
//!
//! The simulator writes every transfer of control with its exact time, also those that the trace does not
//! hold because packets were lost.  [`format`](mod@format) is the file.

pub mod format;

pub use format::{Error, Event, Events, File, Flags, Kind, Thread, Writer, save};
