//! What the driver says of the trace unit.

use super::{Finding, not_ok, ok};
use crate::pmu::{Pmu, PmuError};

/// Whether it is there.
pub(super) fn driver(pmu: &Result<Pmu, PmuError>) -> Finding {
    match pmu {
        Ok(pmu) => ok("kernel driver", format!("{}, type {}", Pmu::NAME, pmu.number)),
        Err(error) => not_ok(
            "kernel driver",
            error.to_string(),
            true,
            "no trace can be recorded",
            // pt_init() in arch/x86/events/intel/pt.c: a firmware or debugger has left it on; no output to
            // many regions.
            "if the processor has it, the kernel says why not: sudo dmesg | grep -i -e 'PT is enabled at boot' -e 'ToPA output'",
        ),
    }
}

/// What it can do.
pub(super) fn findings(pmu: &Pmu) -> [Finding; 5] {
    [time_packets(pmu), crystal_clock(pmu), ip_filters(pmu), buffers(pmu), features(pmu)]
}

fn time_packets(pmu: &Pmu) -> Finding {
    match (pmu.cap("psb_cyc"), pmu.cap("mtc")) {
        (0, 0) => not_ok(
            "time packets",
            "TSC only",
            false,
            "times are known to some 100 us",
            "a processor of the 6th generation (Skylake) or newer has MTC and CYC packets",
        ),
        (0, _) => not_ok(
            "time packets",
            "TSC, MTC",
            false,
            "times are known to a microsecond",
            "a processor with CYC packets",
        ),
        _ => ok("time packets", "TSC, MTC, CYC"),
    }
}

fn crystal_clock(pmu: &Pmu) -> Finding {
    match pmu.tsc_ctc_ratio {
        (ticks, per) if ticks > 0 && per > 0 => {
            ok("crystal clock", format!("{ticks}:{per} ticks of the TSC for each of its own"))
        }
        _ => not_ok(
            "crystal clock",
            "neither the driver (tsc_art_ratio) nor the processor (CPUID 15H) tells its rate",
            false,
            "perf and libipt cannot use MTC packets; func_latency measures the rate by the trace, which must be long enough for it",
            "a newer kernel; in a virtual machine: a hypervisor that passes CPUID 15H on",
        ),
    }
}

fn ip_filters(pmu: &Pmu) -> Finding {
    match pmu.address_filters {
        0 => not_ok(
            "IP filters",
            "none",
            false,
            "-i is not possible: everything that the threads run is traced",
            "a processor of the 6th generation (Skylake) or newer",
        ),
        ranges => ok("IP filters", format!("{ranges} ranges")),
    }
}

/// Where a table of regions has one entry only, the trace unit stops at the end of each region
/// (`pt_handle_status`), which is as large as the watermark, and 4 MB at most.
fn buffers(pmu: &Pmu) -> Finding {
    match pmu.cap("topa_multiple_entries") {
        0 => not_ok(
            "buffers",
            "of pieces at whose ends the trace unit stops",
            false,
            "trace is lost at the end of each quarter of a buffer, or of each 4 MB of it",
            "a processor of the 6th generation (Skylake) or newer; else -i, or -m 16M and more",
        ),
        _ => ok("buffers", "of many pieces"),
    }
}

/// Nothing that is missing here is missed by us.
fn features(pmu: &Pmu) -> Finding {
    let of_processor = [
        ("ptwrite", "PTWRITE"),
        ("power_event_trace", "power events"),
        ("event_trace", "interrupts and faults by number"),
        ("tnt_disable", "branches without TNT"),
    ];
    let there = of_processor.iter().filter(|(cap, _)| pmu.cap(cap) != 0).map(|(_, name)| *name);
    // The driver's own: any processor can write over the oldest trace.
    let all: Vec<&str> = ["snapshots"].into_iter().chain(there).collect();
    ok("other features", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::tests::{SKYLAKE, sysfs};

    fn of(change: impl FnOnce(&mut Pmu)) -> Vec<(&'static str, String, bool)> {
        let mut pmu = Pmu::discover(sysfs(&SKYLAKE).path()).unwrap();
        change(&mut pmu);
        let all = findings(&pmu).into_iter();
        all.map(|finding| (finding.what, finding.found, finding.trouble.is_none())).collect()
    }

    #[test]
    fn a_skylake_has_all_of_it() {
        let all = of(|_| ());
        assert!(all.iter().all(|(.., good)| *good), "{all:?}");
        assert_eq!(all[1].1, "216:2 ticks of the TSC for each of its own");
        assert_eq!(all[4].1, "snapshots");
        let newer =
            of(|pmu| pmu.caps.extend(["ptwrite", "power_event_trace"].map(|cap| (cap.to_owned(), 1))));
        assert_eq!(newer[4].1, "snapshots, PTWRITE, power events");
    }

    #[test]
    fn a_broadwell_has_less() {
        let bad = of(|pmu| {
            pmu.caps.clear();
            (pmu.address_filters, pmu.tsc_ctc_ratio) = (0, (0, 0));
        });
        let bad: Vec<&str> = bad.iter().filter(|(.., good)| !good).map(|(what, ..)| *what).collect();
        assert_eq!(bad, ["time packets", "crystal clock", "IP filters", "buffers"]);
    }

    #[test]
    fn a_driver_that_is_not_there_may_have_said_why() {
        let empty = tempfile::tempdir().unwrap();
        let trouble = driver(&Pmu::discover(empty.path())).trouble.unwrap();
        assert!(trouble.fatal && trouble.fix.contains("dmesg"));
    }
}
