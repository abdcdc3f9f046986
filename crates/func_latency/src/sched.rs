//! Takes the scheduler's events for a recording: eBPF programs, if this command was built with them.

use recorder::SchedSource;

use crate::record_config::RecordConfig;

/// Loads them; nothing is attached yet.
///
/// # Errors
/// Why there are none, and what helps.
#[cfg(feature = "bpf")]
pub(crate) fn source(config: &RecordConfig) -> Result<Box<dyn SchedSource>, String> {
    programs::source(config)
}

/// There are none.
///
/// # Errors
/// Always.
#[cfg(not(feature = "bpf"))]
pub(crate) fn source(_: &RecordConfig) -> Result<Box<dyn SchedSource>, String> {
    Err("this func_latency was built without eBPF (cargo build --features bpf)".to_owned())
}

#[cfg(feature = "bpf")]
mod programs {
    use std::collections::BTreeSet;

    use bpf::{SchedBy, SchedSession};
    use image::KernelSymbols;
    use model::{Avma, SchedEvent};
    use recorder::procfs::Proc;
    use recorder::{SchedSource, Target};

    use crate::record_config::RecordConfig;

    struct Programs(SchedSession);

    pub(super) fn source(config: &RecordConfig) -> Result<Box<dyn SchedSource>, String> {
        if Proc::host().has_own_numbers() {
            // Another process may have the number of one that is recorded.
            return Err("eBPF knows processes by their numbers on the host, and this is a container with its own: run it there, or \
                 start the container with --pid=host"
                .to_owned());
        }
        let by = match &config.request.target {
            Target::Processes(_) | Target::Families(_) | Target::Program(_) => {
                SchedBy::Processes { follow: config.request.follow }
            }
            Target::Threads(_) => SchedBy::Threads,
            Target::WholeCpus => SchedBy::Cpus,
        };
        let session = SchedSession::open(by, config.waker_stack).map_err(|error| error.to_string())?;
        Ok(Box::new(Programs(session)))
    }

    impl SchedSource for Programs {
        fn start(&mut self, ids: &dyn Fn() -> Vec<u32>) -> Result<(), String> {
            self.0.start(ids).map_err(|error| error.to_string())
        }

        fn read(&self, take: &mut dyn FnMut(&mut Vec<SchedEvent>) -> bool) -> Result<(), String> {
            self.0.read(take).map_err(|error| error.to_string())
        }

        fn stop(&mut self) {
            self.0.stop();
        }

        fn lost(&self) -> u64 {
            self.0.lost()
        }

        fn symbols(&self, addresses: &BTreeSet<Avma>) -> String {
            KernelSymbols::read("/proc/kallsyms".as_ref()).excerpt(addresses.iter().copied())
        }
    }
}
