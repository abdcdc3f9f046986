//! What this process may, by its capabilities and by the settings that stand in for them.

use crate::procfs::{Proc, field};

/// Bits of `CapEff` (include/uapi/linux/capability.h).
pub(crate) const CAP_IPC_LOCK: u64 = 1 << 14;
pub(crate) const CAP_SYS_PTRACE: u64 = 1 << 19;
pub(crate) const CAP_SYS_ADMIN: u64 = 1 << 21;
pub(crate) const CAP_SYSLOG: u64 = 1 << 34;
pub(crate) const CAP_PERFMON: u64 = 1 << 38;
pub(crate) const CAP_BPF: u64 = 1 << 39;
pub(crate) const CAP_CHECKPOINT_RESTORE: u64 = 1 << 40;

/// The command that lets an ordinary user do all of it: one, because it sets all of a file's capabilities
/// anew.
pub(crate) const SETCAP: &str = "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_ipc_lock,cap_syslog,cap_checkpoint_restore+ep $(command -v func_latency)";

/// The capabilities of this process; 0 if they cannot be read.
pub(crate) fn capabilities(proc: &Proc) -> u64 {
    let status = proc.text("self/status").unwrap_or_default();
    field(&status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

/// Beyond 2 `kernel.perf_event_paranoid` means nothing to Linux itself, where CAP_PERFMON is enough; by a
/// patch of Debian's and Ubuntu's only a process with CAP_SYS_ADMIN may open an event then.
pub(crate) fn is_for_root_only(paranoid: Option<i64>, capabilities: u64) -> bool {
    paranoid.is_some_and(|value| value > 2) && capabilities & CAP_SYS_ADMIN == 0
}

/// `/proc/kallsyms` shows addresses, and not zeros (`kallsyms_show_value`).
pub(crate) fn shows_kernel_symbols(proc: &Proc, capabilities: u64) -> bool {
    let for_perf = proc.setting("kernel/perf_event_paranoid").is_some_and(|value| value <= 1);
    match proc.setting("kernel/kptr_restrict").unwrap_or(0) {
        0 => for_perf || capabilities & CAP_SYSLOG != 0,
        1 => capabilities & CAP_SYSLOG != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn kernel_symbols_are_shown_as_the_kernel_shows_them() {
        let root = tempfile::tempdir().unwrap();
        let settings = root.path().join("sys/kernel");
        fs::create_dir_all(&settings).unwrap();
        let shows = |kptr_restrict: &str, paranoid: &str, capabilities| {
            fs::write(settings.join("kptr_restrict"), kptr_restrict).unwrap();
            fs::write(settings.join("perf_event_paranoid"), paranoid).unwrap();
            shows_kernel_symbols(&Proc::at(root.path()), capabilities)
        };
        let users = [("0", "1"), ("0", "2"), ("1", "1"), ("2", "-1")];
        assert_eq!(users.map(|(kptr, paranoid)| shows(kptr, paranoid, 0)), [true, false, false, false]);
        let with_syslog = users.map(|(kptr, paranoid)| shows(kptr, paranoid, CAP_SYSLOG));
        assert_eq!(with_syslog, [true, true, true, false]);
    }
}
