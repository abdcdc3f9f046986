//! Calls of cargo.

use std::process::Command;

use crate::layout;

/// `cargo`, the one that runs us; it builds in [`crate::layout::target`].
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(layout::root());
    if let Some(target) = layout::target_elsewhere() {
        command.env("CARGO_TARGET_DIR", target);
    }
    command
}
