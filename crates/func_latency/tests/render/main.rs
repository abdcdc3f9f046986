//! The report's text, JSON and rows, held against `tests/goldens`. `UPDATE_GOLDENS=1` writes them anew: read
//! the diff.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod counters;
mod explain;
#[path = "../golden/mod.rs"]
mod golden;
mod machine;
mod report;
mod runs;
mod screen;
mod summary;
mod tables;
mod text;
mod top;
#[path = "../unknown/mod.rs"]
mod unknown;
