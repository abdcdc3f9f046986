//! What this kernel has for probes: told by its own description of its types and functions.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Func};

/// What this kernel has for probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// One link holds many probes of a process (`uprobe.multi`, for all of its threads since Linux 6.10).
    pub many_in_a_link: bool,
    /// One link holds entry and return of a function (`uprobe.session`, 6.13).
    pub sessions: bool,
    /// Rewritten return addresses come back by a system call, not by a trap (6.11).
    pub returns_by_system_call: bool,
    /// Probes at 5-byte nops are entered by a system call, not by a trap (6.18).
    pub optimised: bool,
}

impl Offers {
    /// By the kernel's types; whether it takes links for many probes was tried.
    pub(crate) fn of(many_in_a_link: bool) -> Self {
        let Ok(btf) = Btf::from_vmlinux() else { return Self { many_in_a_link, ..Self::default() } };
        let has = |name: &str| btf.type_by_name::<Func<'_>>(name).is_some();
        let attach_types = btf.type_by_name::<Enum<'_>>("bpf_attach_type");
        let has_session = |types: Enum<'_>| {
            types.iter().any(|member| member.name.is_some_and(|name| name == "BPF_TRACE_UPROBE_SESSION"))
        };
        Self {
            many_in_a_link,
            sessions: attach_types.is_some_and(has_session),
            returns_by_system_call: [
                "__x64_sys_uretprobe",
                "__do_sys_uretprobe",
                "arch_uretprobe_trampoline",
            ]
            .into_iter()
            .any(has),
            optimised: has("arch_uprobe_optimize"),
        }
    }

    /// Each by its name, and whether it is there.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, bool); 4] {
        [
            ("all probes of a process at once (uprobe.multi)", self.many_in_a_link),
            ("entry and return in one link (uprobe.session)", self.sessions),
            ("rewritten return addresses without a trap", self.returns_by_system_call),
            ("probes at 5-byte nops without a trap", self.optimised),
        ]
    }
}
