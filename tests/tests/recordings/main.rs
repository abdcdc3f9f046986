//! Recordings against what is known of them. One file, one promise; one binary, for each would link all of
//! the product.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod annotate;
mod call_counters_match_truth;
mod captures;
mod copies;
mod counters_match_truth;
mod damage;
mod decode_matches_truth;
mod explain;
mod exports;
mod filter_agrees;
mod frequency;
mod hard_cases;
mod inside;
mod instructions_of_a_program;
mod kernel_functions;
mod ledgers;
#[cfg(feature = "libipt")]
mod libipt_agrees;
mod missing_code_matches_perf;
mod missing_code_says_nothing_wrong;
mod missing_libraries;
mod not_known;
mod one_call;
mod oracle_matches_counters;
mod other_machine;
mod parts;
mod perf_script_agrees;
mod records_match_perf;
mod regions;
mod repeated_runs;
mod rows_match_oracle;
mod screen;
mod short_calls;
mod snapshots;
mod stripped_objects;
mod summaries;
mod three_gigabytes;
mod top;
mod trees;
mod watch;
mod workers_do_not_matter;
