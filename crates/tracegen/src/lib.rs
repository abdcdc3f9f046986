//! Test support: real programs run in software to valid Intel PT and its ground truth.

pub mod truth;
