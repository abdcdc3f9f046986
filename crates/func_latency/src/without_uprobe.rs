//! In the place of `uprobe`, where the command is built without eBPF.

use anyhow::Result;
use recorder::Interrupts;

use crate::args::BackendChoice;
use crate::exit::{Exit, failure};
use crate::record_config::RecordConfig;

/// Only a command that asks for probes is told that there are none.
pub(crate) fn takes(config: &RecordConfig) -> bool {
    config.backend == Some(BackendChoice::Uprobe)
}

/// Nothing but probes can time the calls: they were asked for.
pub(crate) fn must_take(config: &RecordConfig) -> bool {
    takes(config)
}

/// # Errors
/// Always.
pub(crate) fn run(_: &RecordConfig, _: &Interrupts) -> Result<Exit> {
    let message = "--backend uprobe: this func_latency was built without eBPF (cargo build --features bpf)";
    Err(failure(Exit::NotPossible, message))
}
