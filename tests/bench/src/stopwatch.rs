//! How long it takes on the CPU.

use rustix::time::{ClockId, clock_gettime};

/// Started.
pub(crate) struct Stopwatch {
    started_ns: u64,
    left_out_ns: u64,
}

impl Stopwatch {
    /// The clock starts, for this thread.
    pub(crate) fn start() -> Self {
        Self { started_ns: on_cpu_ns(), left_out_ns: 0 }
    }

    /// So much of what has passed does not count.
    pub(crate) fn leave_out(&mut self, ns: u64) {
        self.left_out_ns += ns;
    }

    /// What has passed.
    pub(crate) fn ns(&self) -> u64 {
        (on_cpu_ns() - self.started_ns).saturating_sub(self.left_out_ns)
    }
}

/// How long this thread was on a CPU.  To ask takes less than a microsecond: it is asked for each segment.
pub(crate) fn on_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sleep_is_not_on_the_cpu() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(200));
        let ns = watch.ns();
        assert!(ns < 100_000_000, "{ns}");
    }
}
