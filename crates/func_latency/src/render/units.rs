//! Numbers for people.

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
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

/// A duration with an error, with no digit that says nothing: `270 ns` for 265 +- 30, and `< 30 ns`
/// for 12 +- 14.
#[must_use]
pub fn duration_within(ns: u64, error_ns: u64) -> String {
    match KnownNumber::of(ns, error_ns) {
        KnownNumber::Exactly => duration(ns),
        KnownNumber::Below(limit) => format!("< {}", duration(limit)),
        KnownNumber::About { rounded, digits: 3.. } => duration(rounded),
        KnownNumber::About { rounded, digits } => scaled(rounded as f64, digits, &TIMES),
    }
}

/// Nanoseconds with an error, with no digit that says nothing: `2,460` for 2,456 +- 14, and `< 25`
/// for 12 +- 12.
#[must_use]
pub fn ns_within(ns: u64, error_ns: u64) -> String {
    match KnownNumber::of(ns, error_ns) {
        KnownNumber::Exactly => grouped(ns),
        KnownNumber::Below(limit) => format!("< {}", grouped(limit)),
        KnownNumber::About { rounded, .. } => grouped(rounded),
    }
}

/// With its sign, but for 0.
#[must_use]
pub fn signed(ns: i64) -> String {
    let sign = match ns.signum() {
        1 => "+",
        -1 => "-",
        _ => "",
    };
    format!("{sign}{}", grouped(ns.unsigned_abs()))
}

/// Nanoseconds with their sign, with no digit that says nothing: `-2,460`, `< 25` for +12 +- 12, and `> -25`
/// for -12 +- 12.
#[must_use]
pub fn signed_within(ns: i64, error_ns: u64) -> String {
    match (KnownNumber::of(ns.unsigned_abs(), error_ns), ns < 0) {
        (KnownNumber::Exactly, _) => signed(ns),
        (KnownNumber::Below(limit), false) => format!("< {}", grouped(limit)),
        (KnownNumber::Below(limit), true) => format!("> -{}", grouped(limit)),
        (KnownNumber::About { rounded, .. }, is_less) => {
            format!("{}{}", if is_less { '-' } else { '+' }, grouped(rounded))
        }
    }
}

/// A share in percent that may be below 0 or above 100, with no digit that says nothing: `24`, `< 37` for
/// 12 +- 25, and `> -37` for -12 +- 25.
#[must_use]
pub fn signed_percent_within(share: f64, error: f64) -> String {
    let most = (share.abs() + error).ceil();
    match error {
        _ if error < 0.05 => format!("{share:.1}"),
        _ if error >= share.abs() && share < 0.0 => format!("> -{most}"),
        _ if error >= share.abs() => format!("< {most}"),
        _ if error < 0.5 => format!("{share:.1}"),
        _ => format!("{share:.0}"),
    }
}

/// By how much a factor is more or less than 1: `+5.2 %`.
#[must_use]
pub fn signed_percent(factor: f64) -> String {
    if factor.is_finite() { format!("{:+.1} %", (factor - 1.0) * 100.0) } else { "unknown".to_owned() }
}

/// What is known of a number that may be some more or less.
enum KnownNumber {
    Exactly,
    /// It is less than this.
    Below(u64),
    /// The number without the digits that are not known, and how many are left.
    About {
        rounded: u64,
        digits: usize,
    },
}

impl KnownNumber {
    fn of(number: u64, error: u64) -> Self {
        if error == 0 {
            return Self::Exactly;
        }
        if error >= number {
            let above = number.saturating_add(error).saturating_add(1);
            let tens = 10_u64.pow(above.ilog10().saturating_sub(1));
            return Self::Below(above.div_ceil(tens).saturating_mul(tens));
        }
        let step = 10_u64.pow(error.ilog10());
        let steps = number.saturating_add(step / 2) / step;
        let digits = steps.max(1).ilog10() as usize + 1;
        Self::About { rounded: steps.saturating_mul(step), digits }
    }
}

/// A mean duration in the unit that suits it, three digits: `5.64 ns`, `12.2 us`.
#[must_use]
pub fn mean_duration(ns: f64) -> String {
    scaled(ns, 3, &TIMES)
}

const TIMES: [(&str, f64); 4] = [("ns", 1e3), ("us", 1e3), ("ms", 1e3), ("s", f64::INFINITY)];

/// A mean duration with an error: see [`duration_within`].
#[must_use]
pub fn mean_duration_within(ns: f64, error_ns: f64) -> String {
    if error_ns < 1.0 {
        mean_duration(ns)
    } else {
        duration_within(ns.round() as u64, error_ns.round() as u64)
    }
}

/// A size: `812 B`, `1.20 MB` (10^6).
#[must_use]
pub fn size(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    scaled(bytes as f64, 3, &[("B", 1e3), ("kB", 1e3), ("MB", 1e3), ("GB", f64::INFINITY)])
}

/// `value` in the first unit in which it is less than the limit, with `digits` digits; each unit is a
/// thousand of the one before.
fn scaled(mut value: f64, digits: usize, units: &[(&str, f64)]) -> String {
    for (unit, limit) in units {
        // 999.6 would be printed as 1000.
        if value < *limit - 0.5 {
            return format!("{} {unit}", with_digits(value, digits));
        }
        value /= 1000.0;
    }
    String::new()
}

fn with_digits(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // 9.996 would be printed as 10.00.
    let before_point = 1 + usize::from(value >= 9.995) + usize::from(value >= 99.95);
    format!("{value:.*}", digits.saturating_sub(before_point))
}

/// A share in percent: `12.3`, `< 0.1` for little that is not nothing.
#[must_use]
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.05 { "< 0.1".to_owned() } else { format!("{share:.1}") }
}

/// A share in percent that may be so much more or less, with no digit that says nothing: `24` for 24.3 +- 2,
/// `< 40` for 12 +- 25.
#[must_use]
pub fn percent_within(share: f64, error: f64) -> String {
    let most = (share + error).ceil();
    match error {
        _ if error < 0.05 => percent(share),
        _ if error >= share => format!("< {}", if most < 100.0 { most } else { 100.0 }),
        _ if error < 0.5 => percent(share),
        _ => format!("{share:.0}"),
    }
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
        let within = [
            (12, 0),
            (12, 9),
            (265, 30),
            (2_456, 14),
            (2_456, 300),
            (996, 20),
            (99_600, 4_000),
            (12, 12),
            (0, 7),
            (0, u64::MAX),
            (u64::MAX, 1),
        ]
        .map(|(ns, error)| duration_within(ns, error));
        let expected =
            ["12 ns", "12 ns", "270 ns", "2.46 us", "2.5 us", "1.00 us", "100 us", "< 25 ns", "< 8 ns"];
        assert_eq!(within[..9], expected);
        let within = [
            (12, 0),
            (12, 9),
            (2_456, 14),
            (2_456, 300),
            (99_600, 4_000),
            (12, 12),
            (0, 1_200),
            (u64::MAX, 1),
        ];
        let within = within.map(|(ns, error)| ns_within(ns, error));
        assert_eq!(within[..7], ["12", "12", "2,460", "2,500", "100,000", "< 25", "< 1,300"]);
        let means = [0.0, 0.005, 5.64, 563.7, 999.6, f64::MAX].map(mean_duration);
        assert_eq!(means[..5], ["0 ns", "0.01 ns", "5.64 ns", "564 ns", "1.00 us"]);
        assert_eq!([812, 1_200_000, 3_000_000_000].map(size), ["812 B", "1.20 MB", "3.00 GB"]);
        assert_eq!([0.0, 0.01, 99.96].map(percent), ["0.0", "< 0.1", "100.0"]);
        let within = [(24.3, 0.01), (24.3, 0.3), (24.3, 2.0), (0.01, 0.01), (12.0, 25.0), (60.0, 70.0)];
        let within = within.map(|(share, error)| percent_within(share, error));
        assert_eq!(within, ["24.3", "24.3", "24", "< 0.1", "< 37", "< 100"]);
        let within = [(0, 0), (-7, 0), (2_456, 14), (-2_456, 14), (12, 12), (-12, 12), (0, 3)];
        let within = within.map(|(ns, error)| signed_within(ns, error));
        assert_eq!(within, ["0", "-7", "+2,460", "-2,460", "< 25", "> -25", "< 4"]);
        let within = [(100.1, 0.0), (-0.1, 0.04), (-24.3, 0.3), (124.3, 2.0), (12.0, 25.0), (-12.0, 25.0)];
        let within = within.map(|(share, error)| signed_percent_within(share, error));
        assert_eq!(within, ["100.1", "-0.1", "-24.3", "124", "< 37", "> -37"]);
        assert_eq!([1.052, 0.5, f64::INFINITY].map(signed_percent), ["+5.2 %", "-50.0 %", "unknown"]);
        assert_eq!([counted(1, "call"), counted(2, "call")], ["1 call", "2 calls"]);
    }
}
