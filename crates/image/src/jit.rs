//! Code that a program wrote at run time: what its runtime tells of it.

pub(crate) mod jit_code;
pub(crate) mod jitdump;
pub(crate) mod named_code;
pub(crate) mod perf_map;
