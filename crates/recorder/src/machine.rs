//! What a file says of the machine it was recorded on.

use perfdata::write::Features;

use crate::cpu_list::CpuList;
use crate::pmu::Pmu;
use crate::procfs::{Proc, field};

/// Machine and command; what cannot be read is empty.
#[must_use]
pub fn features(proc: &Proc, cpus: &CpuList, pmu: &Pmu, command_line: Vec<String>) -> Features {
    let line = |name: &str| proc.text(name).unwrap_or_default().trim().to_owned();
    Features {
        hostname: line("sys/kernel/hostname"),
        os_release: line("sys/kernel/osrelease"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cpus: cpus.0.len() as u32,
        cpuid: cpuid(&proc.text("cpuinfo").unwrap_or_default()).unwrap_or_default(),
        command_line,
        pmus: vec![(pmu.number, Pmu::NAME.to_owned())],
        build_ids: Vec::new(),
        tracing_data: None,
    }
}

/// `GenuineIntel,6,85,7`, as perf has it.
fn cpuid(cpuinfo: &str) -> Option<String> {
    let value = |name: &str| Some(field(cpuinfo, name)?.strip_prefix(':')?.trim());
    let words = [value("vendor_id\t")?, value("cpu family\t")?, value("model\t\t")?, value("stepping\t")?];
    Some(words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_as_perf_names_it() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
                    model name\t: Intel\nstepping\t: 7\n";
        assert_eq!(cpuid(text).as_deref(), Some("GenuineIntel,6,85,7"));
        assert_eq!(cpuid("vendor_id\t: x"), None);
    }
}
