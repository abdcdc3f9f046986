//! Today's date and this machine, for the benchmark table.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today in UTC, `2026-01-31`.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    date(seconds / 86_400)
}

/// The CPU's name and how many there are.
pub(crate) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{}, {count} CPUs", name.map_or("unknown CPU", |(_, name)| name))
}

/// The date of a day since 1970-01-01, in the proleptic Gregorian calendar.
fn date(days: u64) -> String {
    // Years that begin on 1 March put the leap day last; 400 of them are an era of 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let table =
            [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01"), (20_819, "2027-01-01")];
        for (days, expect) in table {
            assert_eq!(date(days), expect);
        }
    }
}
