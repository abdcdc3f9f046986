//! What this machine lets us probe.

use std::path::Path;

use recorder::doctor::{Finding, Trouble};

/// What is left where there is no trace unit.
const TIMES: &str = "without Intel PT uprobes time the calls of -f FUNC";

const COSTS: &str = "calls cannot be timed by uprobes (--backend uprobe)";

/// Looks at what uprobes need.
pub(crate) fn examine(sysfs: &Path) -> Vec<Finding> {
    vec![types(sysfs), programs()]
}

fn types(sysfs: &Path) -> Finding {
    let what = "kernel types (BTF)";
    if sysfs.join("kernel/btf/vmlinux").exists() {
        return Finding { what, found: "described".to_owned(), trouble: None };
    }
    let fix = "a kernel with CONFIG_DEBUG_INFO_BTF=y".to_owned();
    let trouble = Trouble { fatal: false, costs: COSTS, fix };
    Finding { what, found: "not described".to_owned(), trouble: Some(trouble) }
}

/// By loading them: what permits it depends on capabilities, lockdown, security modules and settings together.
fn programs() -> Finding {
    let what = "eBPF programs";
    match bpf::try_programs() {
        Ok(true) => Finding { what, found: format!("accepted; {TIMES}, all probes at once"), trouble: None },
        Ok(false) => Finding { what, found: format!("accepted; {TIMES}, probe by probe"), trouble: None },
        Err(error) => {
            let fix =
                "root, or CAP_BPF and CAP_PERFMON, on Linux 5.15 or newer that is not locked down".to_owned();
            Finding {
                what,
                found: error.to_string(),
                trouble: Some(Trouble { fatal: false, costs: COSTS, fix }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_types_costs_the_probes_and_no_trace() {
        let finding = types(Path::new("/no/such/sysfs"));
        assert_eq!(finding.found, "not described");
        assert!(!finding.trouble.unwrap().fatal);
    }
}
