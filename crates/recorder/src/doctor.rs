//! What this machine lets us record: facts from `/proc` and `/sys`, each with what it costs and what helps.

mod ebpf;
mod trace_unit;

use std::io;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::kernel_clock;
use crate::permission::{
    self, CAP_BPF, CAP_CHECKPOINT_RESTORE, CAP_IPC_LOCK, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, SETCAP,
    capabilities,
};
use crate::pmu::Pmu;
use crate::procfs::{Proc, field};

/// Linux from which on everything that we use is there; `(major, minor)`.
const FULL_KERNEL: (u32, u32) = (5, 13);

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What is wrong with it; `None`: nothing.
    pub trouble: Option<Trouble>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// No trace can be recorded because of it.
    pub fatal: bool,
    /// What it costs.
    pub costs: &'static str,
    /// The command that fixes it, or what to do.
    pub fix: String,
}

/// Looks at everything.
#[must_use]
pub fn examine(proc: &Proc, sysfs: &Path) -> Vec<Finding> {
    examine_with(proc, sysfs, kernel_clock::is_tsc())
}

fn examine_with(proc: &Proc, sysfs: &Path, clock_is_tsc: io::Result<bool>) -> Vec<Finding> {
    let pmu = Pmu::discover(sysfs).map(Pmu::with_processors_ratio);
    let capabilities = capabilities(proc);
    let machine = Machine { proc, sysfs, has_pmu: pmu.is_ok(), clock_is_tsc, capabilities };
    let mut findings = vec![machine.cpu(), machine.virtual_machine(), trace_unit::driver(&pmu)];
    // Of a trace unit that is not there nothing more is said.
    findings.extend(pmu.iter().flat_map(trace_unit::findings));
    findings.extend([
        machine.clock(),
        machine.kernel(),
        machine.lockdown(),
        machine.paranoid(),
        machine.capability(
            "CAP_PERFMON",
            CAP_PERFMON,
            "programs of other users, and whole CPUs (-C), cannot be traced",
        ),
        machine.capability(
            "CAP_SYS_PTRACE",
            CAP_SYS_PTRACE,
            "what programs of other users have mapped cannot be read, and their functions are not known",
        ),
        machine.capability(
            "CAP_BPF",
            CAP_BPF,
            "why calls are off the CPU is not recorded, and calls cannot be timed by uprobes",
        ),
        machine.kernel_symbols(),
        ebpf::unprivileged(proc),
        ebpf::ring_memory(proc, sysfs),
        machine.locked_memory(),
        machine.capability(
            "CAP_CHECKPOINT_RESTORE",
            CAP_CHECKPOINT_RESTORE,
            "files that were deleted or replaced while they run cannot be read (those of other users' programs need \
             CAP_DAC_READ_SEARCH, too)",
        ),
        machine.container(),
    ]);
    findings
}

struct Machine<'a> {
    proc: &'a Proc,
    sysfs: &'a Path,
    has_pmu: bool,
    clock_is_tsc: io::Result<bool>,
    /// `CapEff`.
    capabilities: u64,
}

fn ok(what: &'static str, found: impl Into<String>) -> Finding {
    Finding { what, found: found.into(), trouble: None }
}

fn not_ok(
    what: &'static str,
    found: impl Into<String>,
    fatal: bool,
    costs: &'static str,
    fix: impl Into<String>,
) -> Finding {
    Finding { what, found: found.into(), trouble: Some(Trouble { fatal, costs, fix: fix.into() }) }
}

impl Machine<'_> {
    fn has(&self, capability: u64) -> bool {
        self.capabilities & capability != 0
    }

    /// A capability; those that were split off CAP_SYS_ADMIN are included in it.
    fn may(&self, capability: u64) -> bool {
        self.has(capability) || capability != CAP_SYS_PTRACE && self.has(CAP_SYS_ADMIN)
    }

    fn cpu_info(&self, name: &str) -> String {
        let text = self.proc.text("cpuinfo").unwrap_or_default();
        let value = field(&text, name).and_then(|value| value.strip_prefix(':')).unwrap_or_default();
        value.trim().to_owned()
    }

    fn cpu(&self) -> Finding {
        let (vendor, name) = (self.cpu_info("vendor_id\t"), self.cpu_info("model name\t"));
        // A virtual machine may hide the flag and have the driver.
        let has_pt = self.has_pmu || self.cpu_info("flags\t\t").split(' ').any(|flag| flag == "intel_pt");
        match (vendor.as_str(), has_pt) {
            (_, true) => ok("processor", name),
            ("GenuineIntel", false) => not_ok(
                "processor",
                format!("{name}, which does not announce Intel PT"),
                true,
                "no trace can be recorded",
                "a processor of the 5th generation (Broadwell) or newer, and Intel PT not switched off in the firmware",
            ),
            _ => not_ok(
                "processor",
                format!("{name} ({vendor})"),
                true,
                "only Intel's processors have Intel PT",
                "record on one that has it; recordings can be analysed anywhere",
            ),
        }
    }

    fn virtual_machine(&self) -> Finding {
        let virtual_machine = self.cpu_info("flags\t\t").split(' ').any(|flag| flag == "hypervisor");
        match (virtual_machine, self.has_pmu) {
            (false, _) => ok("virtual machine", "no"),
            (true, true) => ok("virtual machine", "yes, and it was given Intel PT"),
            (true, false) => not_ok(
                "virtual machine",
                "yes, and it was not given Intel PT",
                true,
                "no trace can be recorded",
                "record on bare metal, or, on a host with Intel PT: modprobe kvm_intel pt_mode=1, and a guest CPU with intel_pt",
            ),
        }
    }

    fn clock(&self) -> Finding {
        const WHAT: &str = "kernel's clock";
        let no_time = "no trace can be recorded: if the clock is not the TSC, nothing in it has a time";
        match &self.clock_is_tsc {
            Ok(true) => ok(WHAT, "the TSC"),
            Ok(false) => not_ok(WHAT, "not the TSC", true, no_time, kernel_clock::remedy(self.proc)),
            Err(error) => not_ok(
                WHAT,
                format!("not known: this user may open no event that tells it ({error})"),
                false,
                no_time,
                "sudo func_latency doctor",
            ),
        }
    }

    fn kernel(&self) -> Finding {
        let release = self.proc.text("sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let mut numbers =
            release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
        let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version >= FULL_KERNEL {
            return ok("kernel", release);
        }
        not_ok(
            "kernel",
            release,
            false,
            "mappings are told without build ids (before 5.12), child processes are traced without --follow, too (before 5.13), \
             CAP_PERFMON is not known (before 5.8)",
            "Linux 5.13 or newer",
        )
    }

    fn lockdown(&self) -> Finding {
        let path = self.sysfs.join("kernel/security/lockdown");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mode = text.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
        match mode.as_str() {
            // Of perf it forbids only what we do not ask for, samples of the kernel's registers.
            "confidentiality" => not_ok(
                "lockdown",
                mode,
                false,
                "eBPF programs may not read the kernel's memory: why calls are off the CPU is not recorded, and calls cannot be \
                 timed by uprobes",
                "boot without lockdown=confidentiality",
            ),
            _ => ok("lockdown", mode),
        }
    }

    fn paranoid(&self) -> Finding {
        let found = self.proc.setting("kernel/perf_event_paranoid");
        let text = found.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
        let text = format!("kernel.perf_event_paranoid is {text}");
        match found {
            // What tells the clock is an event of our own thread.
            Some(value) if value > 2 && self.clock_is_tsc.is_err() => not_ok(
                "permission",
                text,
                true,
                "no trace can be recorded without CAP_SYS_ADMIN",
                "sudo sysctl kernel.perf_event_paranoid=2",
            ),
            _ => ok("permission", text),
        }
    }

    fn capability(&self, name: &'static str, capability: u64, costs: &'static str) -> Finding {
        if self.may(capability) {
            return ok(name, "yes");
        }
        not_ok(name, "no", false, costs, SETCAP)
    }

    fn kernel_symbols(&self) -> Finding {
        const WHAT: &str = "kernel symbols";
        if permission::shows_kernel_symbols(self.proc, self.capabilities) {
            return ok(WHAT, "shown");
        }
        not_ok(
            WHAT,
            "hidden from this user",
            false,
            "a sleep in no system call (a page fault) has no reason, and kernel stacks have no names",
            format!("{SETCAP}, and sudo sysctl kernel.kptr_restrict=1 if that is 2"),
        )
    }

    fn locked_memory(&self) -> Finding {
        let setting = self.proc.setting("kernel/perf_event_mlock_kb").unwrap_or(0);
        let limit = getrlimit(Resource::Memlock).current;
        let limit = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} KB", bytes / 1024));
        let found = format!("ulimit -l is {limit}, kernel.perf_event_mlock_kb is {setting} for each CPU");
        // Not included in CAP_SYS_ADMIN.
        if self.has(CAP_IPC_LOCK) {
            return ok("locked memory", format!("{found}; CAP_IPC_LOCK: as much as there is"));
        }
        not_ok(
            "locked memory",
            found,
            false,
            "buffers are small, so that more is lost",
            format!(
                "{SETCAP}, or ulimit -l unlimited (as root), or sudo sysctl kernel.perf_event_mlock_kb=65536"
            ),
        )
    }

    fn container(&self) -> Finding {
        if !self.proc.has_own_numbers() {
            return ok("container", "no");
        }
        not_ok(
            "container",
            "yes: a PID namespace of its own",
            false,
            "only processes of this container are seen, why their calls are off the CPU is not recorded, and the container's \
             runtime may forbid perf_event_open (seccomp)",
            "run on the host, or start the container with --pid=host --cap-add=PERFMON and a seccomp profile that allows it",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::pmu::tests::{SKYLAKE, sysfs};

    /// A `/proc` of an ordinary user on such a machine.
    fn proc(cpuinfo: &str, release: &str, paranoid: &str, capabilities: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("cpuinfo", cpuinfo);
        put("sys/kernel/osrelease", release);
        put("sys/kernel/perf_event_paranoid", paranoid);
        put("sys/kernel/perf_event_mlock_kb", "516");
        put("self/status", &format!("CapEff:\t{capabilities}\n"));
        root
    }

    const SKYLAKE_CPU: &str = "vendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu intel_pt\n";

    fn troubles(
        proc: &tempfile::TempDir,
        sys: &Path,
        clock_is_tsc: io::Result<bool>,
    ) -> Vec<(&'static str, bool)> {
        let findings = examine_with(&Proc::at(proc.path()), sys, clock_is_tsc);
        findings.iter().filter_map(|f| f.trouble.as_ref().map(|trouble| (f.what, trouble.fatal))).collect()
    }

    #[test]
    fn a_good_machine() {
        let sys = sysfs(&SKYLAKE);
        let root = proc(SKYLAKE_CPU, "6.1.0-37-amd64", "2", "000001ffffffffff");
        assert_eq!(troubles(&root, sys.path(), Ok(true)), []);
        let user = proc(SKYLAKE_CPU, "6.1.0-37-amd64", "3", "0000000000000000");
        assert_eq!(
            troubles(&user, sys.path(), Err(io::ErrorKind::PermissionDenied.into())),
            [
                ("kernel's clock", false),
                ("permission", true),
                ("CAP_PERFMON", false),
                ("CAP_SYS_PTRACE", false),
                ("CAP_BPF", false),
                ("kernel symbols", false),
                ("locked memory", false),
                ("CAP_CHECKPOINT_RESTORE", false)
            ]
        );
    }

    #[test]
    fn a_machine_without_the_trace_unit() {
        let empty = tempfile::tempdir().unwrap();
        let amd = "vendor_id\t: AuthenticAMD\nmodel name\t: EPYC\nflags\t\t: fpu hypervisor\n";
        let root = proc(amd, "5.4.0", "2", "000001ffffffffff");
        assert_eq!(
            troubles(&root, empty.path(), Ok(false)),
            [
                ("processor", true),
                ("virtual machine", true),
                ("kernel driver", true),
                ("kernel's clock", true),
                ("kernel", false)
            ]
        );
    }
}
