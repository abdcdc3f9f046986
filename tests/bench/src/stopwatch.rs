//! How long it takes on the CPU.

use std::time::Instant;

/// Started.
pub(crate) struct Stopwatch {
    wall: Instant,
    on_cpu_ns: Option<u64>,
    left_out_ns: u64,
}

impl Stopwatch {
    /// The clock starts, for this thread.
    pub(crate) fn start() -> Self {
        Self { wall: Instant::now(), on_cpu_ns: on_cpu_ns(), left_out_ns: 0 }
    }

    /// So much of what has passed does not count.
    pub(crate) fn leave_out(&mut self, ns: u64) {
        self.left_out_ns += ns;
    }

    /// What has passed: by the wall where nothing else is known.
    pub(crate) fn ns(&self) -> u64 {
        let wall = u64::try_from(self.wall.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let passed = self.on_cpu_ns.zip(on_cpu_ns()).map_or(wall, |(start, now)| now.saturating_sub(start));
        passed.saturating_sub(self.left_out_ns)
    }
}

/// How long this thread was on a CPU; `None` if the kernel keeps no such account (`CONFIG_SCHED_INFO`).
pub(crate) fn on_cpu_ns() -> Option<u64> {
    // The scheduler brings the account up to date when it is entered, else at its next tick.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sleep_is_not_on_the_cpu() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(200));
        let (ns, is_known) = (watch.ns(), on_cpu_ns().is_some());
        assert_eq!(ns < 100_000_000, is_known, "{ns}");
    }
}
