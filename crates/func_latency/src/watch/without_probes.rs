//! In the place of `by_probes`, where the command is built without eBPF.

use std::time::Duration;

use anyhow::{Context as _, Result};
use recorder::Interrupts;

use super::{Capturing, Output};
use crate::exit::Exit;
use crate::record_config::RecordConfig;
use crate::uprobe;

/// # Errors
/// Always.
pub(super) fn run(record: &RecordConfig, _: Duration, _: Output, _: Option<Capturing>) -> Result<Exit> {
    uprobe::run(record, &Interrupts::hold().context("cannot hold signals back")?)
}
