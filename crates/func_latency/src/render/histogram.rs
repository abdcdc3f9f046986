//! The latency histogram, with the off-CPU times beside it.

use std::io::{self, Write};

use analyzer::Bucket;

use super::table::bar;

/// Columns of a line at most, wherever it goes.
const WIDTH: usize = 80;

/// Columns of a bar between its ends, at most; a narrow line leaves fewer.
const BAR: usize = 20;

/// Columns of a bar with its title: where there are fewer there is none.
const LEAST_BAR: usize = "distribution".len();

/// Columns of a histogram's numbers and bars.
struct BarColumns {
    low: usize,
    high: usize,
    count: usize,
    off_cpu: usize,
    /// With its ends.
    bar: usize,
}

impl BarColumns {
    fn of(buckets: &[Bucket], unit: &str) -> Self {
        let digits = |of: fn(&Bucket) -> u64| buckets.iter().map(of).max().unwrap_or(0).to_string().len();
        let has_off_cpu = buckets.iter().any(|bucket| bucket.off_cpu_count.is_some());
        let low = digits(|bucket| bucket.low_ns).max(unit.len());
        let high = digits(last_ns);
        let count = digits(|bucket| bucket.count).max("count".len());
        let off_cpu = digits(|bucket| bucket.off_cpu_count.unwrap_or(0)).max("off-CPU".len());
        let numbers = "  ".len() + low + " -> ".len() + high + " : ".len() + count;
        let (halves, numbers) = if has_off_cpu { (2, numbers + off_cpu + 3) } else { (1, numbers + 1) };
        let bar = (WIDTH.saturating_sub(numbers) / halves).min(BAR + 2);
        Self { low, high, count, off_cpu, bar: if bar < LEAST_BAR { 0 } else { bar } }
    }

    fn bar(&self, count: u64, most: u64) -> String {
        self.bar.checked_sub(2).map_or(String::new(), |inside| bar(count, most, inside))
    }

    fn title(&self, unit: &str, has_off_cpu: bool) -> String {
        let Self { low, high, count, off_cpu, bar } = *self;
        let distribution = if bar > 0 { "distribution" } else { "" };
        let of_off_cpu = format!(" {:<off_cpu$} {distribution}", "off-CPU");
        let of_off_cpu = if has_off_cpu { of_off_cpu.as_str() } else { "" };
        let title = format!(
            "  {:>low$}    {:<high$} : {:<count$} {distribution:<bar$}{of_off_cpu}",
            unit, "", "count"
        );
        title.trim_end().to_owned()
    }
}

/// The largest duration of a bucket.
fn last_ns(bucket: &Bucket) -> u64 {
    if bucket.high_ns == u64::MAX { bucket.high_ns } else { bucket.high_ns.saturating_sub(1) }
}

/// Writes a histogram of at most 80 columns; where off-CPU time is not known only the latency's half.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, buckets: &[Bucket]) -> io::Result<()> {
    write_by(out, buckets, "ns")
}

/// Writes a histogram of another number than ns.
///
/// # Errors
/// What `out` says.
pub fn write_by(out: &mut dyn Write, buckets: &[Bucket], unit: &str) -> io::Result<()> {
    let columns = BarColumns::of(buckets, unit);
    let BarColumns { low, high, count, off_cpu, bar } = columns;
    let most = buckets.iter().map(|b| b.count).max().unwrap_or(0);
    let most_off = buckets.iter().filter_map(|b| b.off_cpu_count).max().unwrap_or(0);
    writeln!(out, "{}", columns.title(unit, buckets.iter().any(|b| b.off_cpu_count.is_some())))?;
    for b in buckets {
        let of_count = columns.bar(b.count, most);
        let mut line =
            format!("  {:>low$} -> {:<high$} : {:<count$} {of_count:<bar$}", b.low_ns, last_ns(b), b.count);
        if let Some(count) = b.off_cpu_count {
            line.push_str(&format!(" {count:<off_cpu$} {}", columns.bar(count, most_off)));
        }
        writeln!(out, "{}", line.trim_end())?;
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

    fn text(buckets: &[Bucket]) -> String {
        let mut out = Vec::new();
        write(&mut out, buckets).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_halves() {
        let all = text(&histogram([0, 40, 41, 100, 100, 100, 100, 5000], [0, 0, 4100]));
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines.len(), 15);
        let expect = [
            "    ns         : count distribution           off-CPU distribution",
            "    32 -> 63   : 2     |**********          | 0       |                    |",
            "  4096 -> 8191 : 1     |*****               | 1       |********************|",
        ];
        assert_eq!([lines[0], lines[7], lines[14]], expect);
        let unknown = analyzer::histogram::histogram(&[1].into_iter().collect(), None);
        assert_eq!(
            text(&unknown),
            "  ns      : count distribution\n   1 -> 1 : 1     |********************|\n"
        );
    }

    /// It had 102.
    #[test]
    fn no_line_has_more_than_80_columns() {
        let bucket = |low_ns: u64, count: u64, off_cpu_count: Option<u64>| Bucket {
            low_ns,
            high_ns: low_ns << 1,
            count,
            off_cpu_count,
        };
        let a_minute = text(&[bucket(1 << 35, 1_000_000, Some(1_000_000)), bucket(1, 1, Some(1))]);
        let half_a_day = text(&[bucket(1 << 45, 1_000_000_000, Some(1_000_000_000))]);
        let years = text(&[bucket(1 << 62, 1_000_000_000, Some(1_000_000_000))]);
        let widths = [&a_minute, &half_a_day, &years].map(|text| text.lines().map(str::len).max().unwrap());
        assert_eq!(widths, [80, 59, 69]);
        let expect = "
               ns                : count   distribution     off-CPU distribution
      34359738368 -> 68719476735 : 1000000 |**************| 1000000 |**************|
                1 -> 1           : 1       |.             | 1       |.             |";
        assert_eq!(format!("\n{}", a_minute.trim_end()), expect.replace("\n    ", "\n"));
    }

    #[test]
    fn merging_is_the_histogram_of_all() {
        let parts = [histogram([0, 3], [1]), histogram([], []), histogram([900, 3], [0])];
        let all = histogram([0, 3, 900, 3], [1, 0]);
        assert_eq!(merged(parts.iter().map(Vec::as_slice)), all);
        assert_eq!(merged(std::iter::empty()), []);
    }
}
