//! Holds what a decoder says against the truth, event by event.
//!
//! [`perf_script`] reads the text of perf's own decoder; [`events`] is a sink for ours.

mod counters;
pub mod events;
mod expected;
mod histogram;
pub mod perf_script;

pub use counters::CounterVerdict;
pub use events::{EventVerifier, Verdict};
pub use expected::KernelText;
pub use histogram::Histogram;
