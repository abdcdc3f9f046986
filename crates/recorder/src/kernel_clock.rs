//! Whether the kernel takes perf's time from the TSC: only then do the TSC values of a trace have a time.
//!
//! The clocksource does not decide that (`/sys/devices/system/clocksource`) but the scheduler's clock, which
//! must be native and stable (`arch_perf_update_userpage` in arch/x86/events/core.c). So it is the kernel
//! that is asked.

use std::io;

use model::Tid;
use perfdata::write::Attr;

use crate::events::dummy;
use crate::procfs::{Proc, field};
use crate::sys::{EventFd, Ring, Scope};

/// Any ring has the page that tells it; this is the smallest.
const RECORDS_BYTES: usize = 4096;

/// Asks, by an event that does nothing.
///
/// # Errors
/// This user may open none.
pub(crate) fn is_tsc() -> io::Result<bool> {
    let nothing = dummy(Attr::DISABLED | Attr::EXCLUDE_KERNEL | Attr::EXCLUDE_HV);
    let event = EventFd::open(&nothing, Scope::Thread(Tid(0)))?;
    Ok(Ring::map(&event, RECORDS_BYTES, 0, false)?.clock().is_some())
}

/// What makes it the TSC.
pub(crate) fn remedy(proc: &Proc) -> &'static str {
    let text = proc.text("cpuinfo").unwrap_or_default();
    let is_guest =
        field(&text, "flags\t\t").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    match is_guest {
        true => {
            "in a virtual machine it is the hypervisor's: boot this kernel with no-kvmclock (KVM; its TSC must be stable), or \
             record on the host"
        }
        false => {
            "the kernel does not trust the TSC (sudo dmesg | grep -i tsc says why): newer firmware, or boot with tsc=reliable \
             if it can be trusted"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_another_remedy() {
        let root = tempfile::tempdir().unwrap();
        let text = |flags: &str| {
            std::fs::write(root.path().join("cpuinfo"), format!("flags\t\t: fpu {flags} sse\n")).unwrap();
            remedy(&Proc::at(root.path()))
        };
        assert!(text("hypervisor").contains("no-kvmclock"));
        assert!(text("intel_pt").contains("tsc=reliable"));
    }

    /// All rings of a machine say the same.
    #[test]
    fn the_kernel_answers_always_the_same() {
        match (is_tsc(), is_tsc()) {
            (Ok(first), Ok(second)) => assert_eq!(first, second),
            (Err(why), _) | (_, Err(why)) => println!("skipped: no events here: {why}"),
        }
    }
}
