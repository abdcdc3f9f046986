//! The whole of func_latency against the ground truth of generated recordings.
//!
//! `cargo xtask fixtures` makes the recordings of `fixtures/matrix.txt` in `target/fixtures`, or they are
//! where the environment variable `FUNC_LATENCY_FIXTURES` says. A test without its recordings says so and
//! passes; with `FUNC_LATENCY_REQUIRE_FIXTURES=1` it fails.

pub mod agreement;
pub mod child_rows;
pub mod counted;
pub mod dice;
pub mod fixture;
pub mod pipeline;
mod ran;
pub mod rows;
pub mod terminal;

pub use fixture::{
    Fixture, Kernel, check_all, check_in_full_run, check_one_in, fixture, fixtures_of, hard_cases,
    is_full_run, skip,
};
pub use pipeline::Opened;
