//! The latency histogram, with the off-CPU times beside it.

use std::io::{self, Write};

use analyzer::Bucket;

use super::table::bar;

const BAR: usize = 20;

/// Writes a histogram; where off-CPU time is not known only the latency's half.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, buckets: &[Bucket]) -> io::Result<()> {
    let off_cpu = buckets.iter().any(|b| b.off_cpu_count.is_some());
    let most = buckets.iter().map(|b| b.count).max().unwrap_or(0);
    let most_off = buckets.iter().filter_map(|b| b.off_cpu_count).max().unwrap_or(0);
    let title = format!("  {:>12}    {:<12} : {:<11} {:22}", "ns", "", "count", "distribution");
    let title_off = if off_cpu { format!(" {:<11} {}", "off-CPU", "distribution") } else { String::new() };
    writeln!(out, "{}", format!("{title}{title_off}").trim_end())?;
    for b in buckets {
        let last = if b.high_ns == u64::MAX { b.high_ns } else { b.high_ns.saturating_sub(1) };
        write!(out, "  {:>12} -> {:<12} : {:<11} {}", b.low_ns, last, b.count, bar(b.count, most, BAR))?;
        if let Some(count) = b.off_cpu_count {
            write!(out, " {count:<11} {}", bar(count, most_off, BAR))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// One histogram of several: buckets contiguous, as in each.
#[must_use]
pub fn merged<'a>(histograms: impl Iterator<Item = &'a [Bucket]>) -> Vec<Bucket> {
    let mut slots = [None::<Bucket>; 65];
    let mut nothing_off = None;
    for bucket in histograms.flatten() {
        nothing_off = bucket.off_cpu_count.map(|_| 0);
        // 0 for 0, otherwise one more than the exponent.
        let index = (u64::BITS - bucket.low_ns.leading_zeros()) as usize;
        if let Some(slot) = slots.get_mut(index) {
            let sum = slot.get_or_insert(Bucket { count: 0, off_cpu_count: nothing_off, ..*bucket });
            sum.count = sum.count.saturating_add(bucket.count);
            let off_cpu = sum.off_cpu_count.zip(bucket.off_cpu_count);
            sum.off_cpu_count = off_cpu.map(|(count, more)| count.saturating_add(more));
        }
    }
    let (Some(first), Some(last)) =
        (slots.iter().position(Option::is_some), slots.iter().rposition(Option::is_some))
    else {
        return Vec::new();
    };
    let empty = |i: usize| Bucket {
        low_ns: if i == 0 { 0 } else { 1 << (i - 1) },
        high_ns: if i == 64 { u64::MAX } else { 1 << i },
        count: 0,
        off_cpu_count: nothing_off,
    };
    (first..=last).map(|i| slots.get(i).copied().flatten().unwrap_or_else(|| empty(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram<const N: usize, const M: usize>(latency_ns: [u64; N], off_cpu_ns: [u64; M]) -> Vec<Bucket> {
        let [latency, off_cpu] = [&latency_ns[..], &off_cpu_ns].map(|list| list.iter().copied().collect());
        analyzer::histogram::histogram(&latency, Some(&off_cpu))
    }

    #[test]
    fn both_halves() {
        let mut out = Vec::new();
        write(&mut out, &histogram([0, 40, 41, 100, 100, 100, 100, 5000], [0, 0, 4100])).unwrap();
        let unknown = analyzer::histogram::histogram(&[1].into_iter().collect(), None);
        write(&mut out, &unknown).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 17);
        assert_eq!(
            lines[0],
            "            ns                 : count       distribution           off-CPU     distribution"
        );
        assert_eq!(
            lines[7],
            "            32 -> 63           : 2           |**********          | 0           |                    |"
        );
        assert_eq!(
            lines[14],
            "          4096 -> 8191         : 1           |*****               | 1           |********************|"
        );
        assert_eq!(lines[16], "             1 -> 1            : 1           |********************|");
    }

    #[test]
    fn merging_is_the_histogram_of_all() {
        let parts = [histogram([0, 3], [1]), histogram([], []), histogram([900, 3], [0])];
        let all = histogram([0, 3, 900, 3], [1, 0]);
        assert_eq!(merged(parts.iter().map(Vec::as_slice)), all);
        assert_eq!(merged(std::iter::empty()), []);
    }
}
