//! Commands that write files made from the command line's own definition.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `func_latency completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Of which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell whose completions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// source <(func_latency completions bash)
    Bash,
    /// func_latency completions zsh > _func_latency, in a directory of $fpath
    Zsh,
    /// func_latency completions fish | source
    Fish,
}

/// `func_latency man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory for func_latency.1 and a page for each command; made if it is not there
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
