//! The rules of what a call is, one test each: events in, calls out.
//!
//! [`script`] has the language of the tests.

mod any_events;
mod branch_paths;
mod causes;
mod checks;
mod clusters;
mod completeness;
mod counters;
mod digests;
mod ended_threads;
mod entry_and_exit;
mod figures;
mod gaps;
mod guesses;
mod ip_filter;
mod ip_filter_jumps;
mod ip_filter_left;
mod kernel_calls;
mod landing_pads;
mod landings;
mod ledger;
mod missing_code;
mod modes;
mod open_calls;
mod own_code;
mod regions;
mod script;
mod signals;
mod tails;
mod trees;
