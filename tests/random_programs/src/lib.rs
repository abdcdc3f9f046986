//! Random programs, recorded in random ways.
//!
//! ```text
//! seed -> dice -> program -> assembly -> as, ld -> emulator -> log        program, assembly, run
//!              -> modes   ----------------------------------> recordings  mode, check
//!                                        every transfer against the truth, every call against the oracle
//! ```

pub mod assembly;

pub mod check;
pub mod mode;
pub mod program;
pub mod run;
pub mod soak;
