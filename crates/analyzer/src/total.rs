//! A number of occurrences and their time, of which the part off the CPU may be unknown.
//!
//! That is known of all of a recording or of nothing in it ([`OffCpuKnown`]). So sums are added up as
//! numbers, without asking each time ([`RunningTotal`]), and only what leaves this crate says if it is
//! known ([`Total`]).

use serde::{Deserialize, Serialize};

/// A number of occurrences and their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Occurrences.
    pub count: u64,
    /// Their time, off-CPU included.
    pub sum_ns: u64,
    /// Of that, off the CPU; `None`: not known.
    pub off_cpu_ns: Option<u64>,
}

impl Default for Total {
    fn default() -> Self {
        Self { count: 0, sum_ns: 0, off_cpu_ns: Some(0) }
    }
}

impl Total {
    /// Adds others to these.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.off_cpu_ns = self.off_cpu_ns.zip(other.off_cpu_ns).map(|(ns, more)| ns.saturating_add(more));
    }

    /// Time on the CPU; `None`: not known.
    #[must_use]
    pub const fn on_cpu_ns(&self) -> Option<u64> {
        match self.off_cpu_ns {
            Some(off_cpu_ns) => Some(self.sum_ns.saturating_sub(off_cpu_ns)),
            None => None,
        }
    }

    /// This total without the time of `inside`; the number of occurrences stays.
    #[must_use]
    pub fn without(&self, inside: &Self) -> Self {
        let off_cpu_ns = self.off_cpu_ns.zip(inside.off_cpu_ns);
        Self {
            count: self.count,
            sum_ns: self.sum_ns.saturating_sub(inside.sum_ns),
            off_cpu_ns: off_cpu_ns.map(|(ns, inside)| ns.saturating_sub(inside)),
        }
    }
}

/// A [`Total`] while it is added up: its off-CPU time is what the records tell of, which is nothing where
/// there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningTotal {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    pub(crate) off_cpu_ns: u64,
    /// Their true time is at most so far from `sum_ns`.
    pub(crate) error_ns: u64,
}

impl RunningTotal {
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(other.off_cpu_ns);
        self.error_ns = self.error_ns.saturating_add(other.error_ns);
    }

    /// What is known of it.
    #[inline]
    pub(crate) fn known(self, off_cpu: OffCpuKnown) -> Total {
        let Self { count, sum_ns, off_cpu_ns, .. } = self;
        Total { count, sum_ns, off_cpu_ns: off_cpu.ns(off_cpu_ns) }
    }
}

/// Percent of one core that a ns on the CPU is, in `span_ns` with this coverage of the threads' time.
pub(crate) fn percent_of_a_core(span_ns: u64, coverage: f64) -> f64 {
    if span_ns == 0 || coverage == 0.0 { 0.0 } else { 100.0 / (span_ns as f64 * coverage) }
}

/// Narrows the error of a part of something that took at most `longest_ns`: the part took no less than
/// nothing, and no more than that.
pub(crate) fn error_of_part(error_ns: u64, sum_ns: u64, longest_ns: u64) -> u64 {
    error_ns.min(sum_ns.max(longest_ns.saturating_sub(sum_ns)))
}

/// Whether records tell of the time off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffCpuKnown(pub(crate) bool);

impl OffCpuKnown {
    /// The time that they tell of, if they do.
    #[inline]
    pub(crate) fn ns(self, off_cpu_ns: u64) -> Option<u64> {
        self.0.then_some(off_cpu_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was 0, and all of the rest was on the CPU.
    #[test]
    fn what_is_not_known_stays_so() {
        let known = |off_cpu_ns| Total { count: 1, sum_ns: 30, off_cpu_ns };
        let mut sum = known(Some(10));
        sum.add(known(Some(5)));
        assert_eq!((sum.sum_ns, sum.off_cpu_ns, sum.on_cpu_ns()), (60, Some(15), Some(45)));
        assert_eq!(sum.without(&known(Some(5))).off_cpu_ns, Some(10));
        assert_eq!(sum.without(&known(None)).on_cpu_ns(), None);
        sum.add(known(None));
        assert_eq!((sum.count, sum.sum_ns, sum.off_cpu_ns, sum.on_cpu_ns()), (3, 90, None, None));
        let running = RunningTotal { count: 1, sum_ns: 30, off_cpu_ns: 0, error_ns: 0 };
        assert_eq!(
            (running.known(OffCpuKnown(true)), running.known(OffCpuKnown(false))),
            (known(Some(0)), known(None))
        );
    }
}
