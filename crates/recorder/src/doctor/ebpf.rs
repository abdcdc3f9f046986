//! What stands in the way of eBPF programs, by which we know why calls are off the CPU, and time calls where
//! there is no trace unit. Whether the kernel takes them in the end is tried elsewhere, by loading them.

use std::fs;
use std::path::Path;

use super::{Finding, not_ok, ok};
use crate::procfs::Proc;

/// What our rings take, at most: one for the scheduler's events or one for calls.
const RING_BYTES: u64 = 16 << 20;

/// `kernel.unprivileged_bpf_disabled`: no obstacle with CAP_BPF, and no help without.
pub(super) fn unprivileged(proc: &Proc) -> Finding {
    let value = proc.setting("kernel/unprivileged_bpf_disabled");
    let value = value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    ok(
        "unprivileged eBPF",
        format!("kernel.unprivileged_bpf_disabled is {value}; our programs need CAP_BPF in any case"),
    )
}

/// Rings are memory of the control group that we are in (since Linux 5.11; before, they are locked memory).
pub(super) fn ring_memory(proc: &Proc, sysfs: &Path) -> Finding {
    const WHAT: &str = "memory for eBPF rings";
    let Some((most, used)) = group_memory(proc, sysfs) else {
        return ok(WHAT, "no limit of the control group");
    };
    let left = most.saturating_sub(used);
    let found = format!("the control group has {} MB left of {} MB", left >> 20, most >> 20);
    if left >= RING_BYTES {
        return ok(WHAT, found);
    }
    not_ok(
        WHAT,
        found,
        false,
        "why calls are off the CPU is not recorded, and calls cannot be timed by uprobes",
        format!(
            "a larger memory.max of the control group: {} MB more",
            (RING_BYTES - left).div_ceil(1 << 20)
        ),
    )
}

/// The limit of the control group, and the used part of it; `None`: there is none, or no control groups of
/// version 2.
fn group_memory(proc: &Proc, sysfs: &Path) -> Option<(u64, u64)> {
    let groups = proc.text("self/cgroup")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = sysfs.join("fs/cgroup").join(path);
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok();
    Some((number("memory.max")?, number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_may_have_no_room() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let finding = || ring_memory(&Proc::at(&root.path().join("proc")), root.path());
        assert_eq!(finding().trouble, None, "no control groups");
        put("proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
        put("fs/cgroup/a/b/memory.current", "1048576\n");
        put("fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(finding().trouble, None, "no limit");
        put("fs/cgroup/a/b/memory.max", "17825792\n");
        assert_eq!(finding().found, "the control group has 16 MB left of 17 MB");
        assert_eq!(finding().trouble, None);
        put("fs/cgroup/a/b/memory.max", "5242880\n");
        let trouble = finding().trouble.unwrap();
        assert!(!trouble.fatal && trouble.fix.ends_with("12 MB more"), "{trouble:?}");
    }
}
