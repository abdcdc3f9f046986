//! Durations by powers of two.

use crate::durations::SortedDurations;

/// Calls with a duration in `[low_ns, high_ns)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest duration of the bucket: 0 or a power of two.
    pub low_ns: u64,
    /// Just above its largest: a power of two ([`u64::MAX`] for the last bucket there can be).
    pub high_ns: u64,
    /// Calls with such a latency.
    pub count: u64,
    /// Calls that were off the CPU at all, for so long; `None`: not known.
    pub off_cpu_count: Option<u64>,
}

/// The buckets from the smallest to the largest duration that occurs, empty ones between included.
#[must_use]
pub fn histogram(latency: &SortedDurations, off_cpu: Option<&SortedDurations>) -> Vec<Bucket> {
    let mut counts = [(0_u64, 0_u64); 65];
    for (ns, times) in latency.iter() {
        counts[index(ns)].0 += times;
    }
    for (ns, times) in off_cpu.iter().flat_map(|all| all.iter()).filter(|(ns, _)| *ns != 0) {
        counts[index(ns)].1 += times;
    }
    let used = |c: &(u64, u64)| *c != (0, 0);
    let (Some(first), Some(last)) = (counts.iter().position(used), counts.iter().rposition(used)) else {
        return Vec::new();
    };
    let bucket = |i: usize| Bucket {
        low_ns: if i == 0 { 0 } else { 1 << (i - 1) },
        high_ns: if i == 64 { u64::MAX } else { 1 << i },
        count: counts[i].0,
        off_cpu_count: off_cpu.map(|_| counts[i].1),
    };
    (first..=last).map(bucket).collect()
}

/// 0 for 0, otherwise one more than the exponent.
fn index(ns: u64) -> usize {
    (u64::BITS - ns.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram<const N: usize, const M: usize>(latency_ns: [u64; N], off_cpu_ns: [u64; M]) -> Vec<Bucket> {
        super::histogram(&latency_ns.into_iter().collect(), Some(&off_cpu_ns.into_iter().collect()))
    }

    #[test]
    fn buckets_are_contiguous_powers_of_two() {
        let buckets = histogram([0, 1, 5, 7, 8], [0, 0, 3, 0, 0]);
        let text: Vec<String> = buckets
            .iter()
            .map(|b| format!("[{},{}) {} {}", b.low_ns, b.high_ns, b.count, b.off_cpu_count.unwrap()))
            .collect();
        assert_eq!(text, ["[0,1) 1 0", "[1,2) 1 0", "[2,4) 0 1", "[4,8) 2 0", "[8,16) 1 0"]);
    }

    #[test]
    fn extremes_have_a_bucket() {
        assert_eq!(histogram([], [0]), []);
        let top = histogram([u64::MAX], []);
        assert_eq!(top, [Bucket { low_ns: 1 << 63, high_ns: u64::MAX, count: 1, off_cpu_count: Some(0) }]);
    }
}
