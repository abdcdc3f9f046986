//! The page of `--html` in a real browser: opened from disk, brushed, clicked, searched, sent as a link,
//! switched to dark.
//!
//! Pictures are written below `target/tmp/browser`, to be looked at.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod call;
mod counters;
mod devtools;
mod inside;
mod large;
mod links;
#[path = "../made_up/mod.rs"]
mod made_up;
mod not_known;
mod opened;
mod plot;
#[path = "../program/mod.rs"]
mod program;
mod recordings;
#[path = "../unknown/mod.rs"]
mod unknown;
