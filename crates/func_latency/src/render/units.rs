//! Numbers for people.

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration in the unit that suits it: `564 ns`, `12.2 us`, `1.50 s`.
#[must_use]
pub fn duration(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    mean_duration(ns as f64)
}

/// A mean duration in the unit that suits it, three digits: `5.64 ns`, `12.2 us`.
#[must_use]
pub fn mean_duration(ns: f64) -> String {
    scaled(ns, &[("ns", 1e3), ("us", 1e3), ("ms", 1e3), ("s", f64::INFINITY)])
}

/// A size: `812 B`, `1.20 MB` (10^6).
#[must_use]
pub fn size(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    scaled(bytes as f64, &[("B", 1e3), ("kB", 1e3), ("MB", 1e3), ("GB", f64::INFINITY)])
}

/// `value` in the first unit of which it is less than `limit`; each unit is a thousand of the one before.
fn scaled(mut value: f64, units: &[(&str, f64)]) -> String {
    for (unit, limit) in units {
        // 999.6 would be printed as 1000.
        if value < *limit - 0.5 {
            return format!("{} {unit}", three_digits(value));
        }
        value /= 1000.0;
    }
    String::new()
}

fn three_digits(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A share in percent: `12.3`, `< 0.1` for little that is not nothing.
#[must_use]
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.05 { "< 0.1".to_owned() } else { format!("{share:.1}") }
}

/// `part` of `whole` in percent; 0 if there is no whole.
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// `count thing` with the plural's s.
#[must_use]
pub fn counted(count: u64, thing: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {thing}{s}", grouped(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let grouped = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567"]);
        let durations =
            [0, 1, 999, 1000, 9_994, 9_995, 12_222, 999_499, 999_500, 61_000_000_000].map(duration);
        let expected = [
            "0 ns", "1 ns", "999 ns", "1.00 us", "9.99 us", "10.0 us", "12.2 us", "999 us", "1.00 ms",
            "61.0 s",
        ];
        assert_eq!(durations, expected);
        let means = [0.0, 0.005, 5.64, 563.7, 999.6, f64::MAX].map(mean_duration);
        assert_eq!(means[..5], ["0 ns", "0.01 ns", "5.64 ns", "564 ns", "1.00 us"]);
        assert_eq!([812, 1_200_000, 3_000_000_000].map(size), ["812 B", "1.20 MB", "3.00 GB"]);
        assert_eq!([0.0, 0.01, 99.96].map(percent), ["0.0", "< 0.1", "100.0"]);
        assert_eq!([counted(1, "call"), counted(2, "call")], ["1 call", "2 calls"]);
    }
}
