//! What this machine lets us probe.

use std::path::Path;

use bpf::Offers;
use recorder::doctor::{Finding, Trouble};

/// What is left where there is no trace unit.
const TIMES: &str = "without Intel PT uprobes time the calls of -f FUNC";

const COSTS: &str = "calls cannot be timed by uprobes (--backend uprobe)";

const PROGRAMS: &str = "eBPF programs";

/// Looks at what uprobes need.
pub(crate) fn examine(sysfs: &Path) -> Vec<Finding> {
    let mut findings = vec![types(sysfs)];
    match bpf::try_programs() {
        Ok(offers) => {
            findings.push(Finding { what: PROGRAMS, found: format!("accepted; {TIMES}"), trouble: None });
            findings.push(kinds(&offers));
        }
        Err(error) => findings.push(not_accepted(error.to_string())),
    }
    findings
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

/// By loading them: what permits it depends on capabilities, lockdown, security modules and settings
/// together.
fn not_accepted(why: String) -> Finding {
    let fix = "root, or CAP_BPF and CAP_PERFMON, on Linux 5.15 or newer that is not locked down".to_owned();
    Finding { what: PROGRAMS, found: why, trouble: Some(Trouble { fatal: false, costs: COSTS, fix }) }
}

/// What makes probes cheaper; none of it is needed.
fn kinds(offers: &Offers) -> Finding {
    let of = |is_there: bool| -> Vec<&str> {
        offers.named().into_iter().filter(|(_, has)| *has == is_there).map(|(name, _)| name).collect()
    };
    let list = |names: &[&str]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    let (has, lacks) = (of(true), of(false));
    let found = match lacks.as_slice() {
        [] => list(&has),
        lacks => format!("{}; this kernel lacks: {}", list(&has), list(lacks)),
    };
    Finding { what: "kinds of probes", found, trouble: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_probes_cheaper_is_told_with_what_lacks() {
        let offers = Offers { many_in_a_link: true, optimised: true, ..Offers::default() };
        assert_eq!(
            kinds(&offers).found,
            "all probes of a process at once (uprobe.multi), probes at 5-byte nops without a trap; this kernel lacks: entry and \
             return in one link (uprobe.session), rewritten return addresses without a trap"
        );
        assert!(kinds(&Offers::default()).found.starts_with("nothing; this kernel lacks: all probes"));
    }

    #[test]
    fn a_kernel_without_types_costs_the_probes_and_no_trace() {
        let finding = types(Path::new("/no/such/sysfs"));
        assert_eq!(finding.found, "not described");
        assert!(!finding.trouble.unwrap().fatal);
    }
}
