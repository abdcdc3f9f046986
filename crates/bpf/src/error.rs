//! Why calls cannot be probed here, and what helps.

use std::path::PathBuf;

use model::Pid;
use thiserror::Error;

/// Why calls cannot be probed here.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The kernel does not let us.
    #[error(
        "the kernel does not permit eBPF programs: run as root, or with CAP_BPF and CAP_PERFMON \
         (func_latency doctor has the command){0}"
    )]
    NotPermitted(String),
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no description of its types (no /sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    /// Nothing is there to probe.
    #[error("nothing to probe: none of the functions is mapped by a process that lives")]
    NothingToProbe,
    /// The programs were not accepted.
    #[error("the kernel does not accept our eBPF programs: {0}")]
    Load(String),
    /// A probe could not be placed.
    #[error("cannot place probes in process {} ({}): {what}", pid.0, file.display())]
    Attach {
        /// Process.
        pid: Pid,
        /// File that has the function.
        file: PathBuf,
        /// What the kernel says.
        what: String,
    },
    /// Something of the rest.
    #[error("{doing}: {what}")]
    Other {
        /// What was done.
        doing: &'static str,
        /// What the kernel says.
        what: String,
    },
}

impl BpfError {
    pub(crate) fn other(doing: &'static str) -> impl Fn(libbpf_rs::Error) -> Self {
        move |error| Self::Other { doing, what: format!("{error:#}") }
    }
}
