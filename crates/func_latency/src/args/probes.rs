//! What times the calls, and what probes may cost.

use clap::Args;

use super::BackendChoice;
use super::headings::PROBES;

/// Options of `--backend uprobe`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ProbeArgs {
    /// What times the calls [default: pt where there is a trace unit, else uprobe]
    #[arg(long, value_enum, value_name = "BACKEND")]
    #[arg(help_heading = PROBES)]
    pub backend: Option<BackendChoice>,
    /// Refuse probes that would cost more than this share of the CPU time that the program takes without
    /// (100: as much again) [default: 20]; of a program that is started (-- CMD) the cost is not known, and
    /// nothing is refused
    #[arg(long = "max-overhead", value_name = "PCT")]
    #[arg(help_heading = PROBES)]
    pub max_overhead: Option<f64>,
    /// Probes for the children: as many as this at functions that the code calls directly
    #[arg(long = "max-probes", value_name = "N", default_value_t = 100)]
    #[arg(help_heading = PROBES)]
    pub max_probes: usize,
    /// With uprobes, see ends by rewritten return addresses: any function, and tail calls to their end, but
    /// an exception through it ends the program, and calls nested deeper than 64 have no end [default: where
    /// no exception can pass through it]
    #[arg(long)]
    #[arg(help_heading = PROBES)]
    pub uretprobe: bool,
    /// With uprobes, see ends by probes at `ret` and at jumps out of the function, also where return
    /// addresses could be rewritten
    #[arg(long, conflicts_with = "uretprobe")]
    #[arg(help_heading = PROBES)]
    pub no_uretprobe: bool,
}
