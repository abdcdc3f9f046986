//! Values of options: threads, latencies, time windows, ancestors, sizes.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use analyzer::CallId;
use analyzer::samples::Figure;
use model::{Ns, Tid};

/// `3` or `3-5`: thread ids, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TidRange(RangeInclusive<i32>);

impl TidRange {
    /// The thread is in it.
    #[must_use]
    pub fn contains(&self, tid: Tid) -> bool {
        self.0.contains(&tid.0)
    }

    /// The threads it names.
    #[must_use]
    pub fn ids(&self) -> RangeInclusive<i32> {
        self.0.clone()
    }
}

impl FromStr for TidRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.trim()
                .parse::<i32>()
                .ok()
                .filter(|n| *n >= 0)
                .ok_or_else(|| format!("`{part}` is no thread id (examples: 7  1,3-5)"))
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err(format!("`{text}` is an empty range"));
        }
        Ok(Self(first..=last))
    }
}

impl fmt::Display for TidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

/// The threads that were asked for; none given means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TidSet(pub Vec<TidRange>);

impl TidSet {
    /// The thread was asked for.
    #[must_use]
    pub fn contains(&self, tid: Tid) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(tid))
    }
}

/// `tid-number`: the id of a call, as rows have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallNumber(pub CallId);

impl FromStr for CallNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = text.split_once('-').and_then(|(tid, number)| {
            let tid = tid.parse().ok().filter(|tid| *tid > 0)?;
            Some(CallId { tid: Tid(tid), number: number.parse().ok()? })
        });
        id.map(Self)
            .ok_or_else(|| format!("`{text}` is no id of a call (example: 1234-17; report --rows has them)"))
    }
}

/// A share in percent, from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(Self).ok_or_else(|| format!("`{text}` is not between 0 and 100 percent (example: 1.5)"))
    }
}

/// By how much something is more, in percent: `5%`, or `5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rise(pub f64);

impl FromStr for Rise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_suffix('%').unwrap_or(text);
        let percent = digits.trim_end().parse().ok().filter(|percent| (0.0..f64::INFINITY).contains(percent));
        percent.map(Self).ok_or_else(|| format!("`{text}` is no share from 0% on (example: 5%)"))
    }
}

/// A figure of runs, by its name.
///
/// # Errors
/// There is none of that name.
pub fn figure(text: &str) -> Result<Figure, String> {
    let name = if text == "median" { "p50" } else { text };
    let found = Figure::ALL.into_iter().find(|figure| figure.name() == name);
    found.ok_or_else(|| format!("`{text}` is none of {}", Figure::ALL.map(Figure::name).join(", ")))
}

/// `LABEL` or `LABEL=A,B`: a label, and which of its values are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelValues {
    /// The label.
    pub key: String,
    /// A and B; `None`: the two that there are.
    pub values: Option<[String; 2]>,
}

impl FromStr for LabelValues {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((key, values)) = text.split_once('=') else {
            return Ok(Self { key: text.to_owned(), values: None });
        };
        match values.split(',').collect::<Vec<_>>().as_slice() {
            [base, these] if base != these => {
                let values = Some([base, these].map(|value| (*value).to_owned()));
                Ok(Self { key: key.to_owned(), values })
            }
            _ => Err(format!("`{values}` are not two values: write {key}=A,B")),
        }
    }
}

/// `min,max` in ns, both included; either may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NsRange {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

impl NsRange {
    /// Everything.
    pub const ALL: Self = Self { min: 0, max: u64::MAX };
}

impl FromStr for NsRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not min,max in ns (example: 1000,200000)");
        let (min, max) = text.split_once(',').ok_or_else(wrong)?;
        let number = |part: &str, absent: u64| match part.trim() {
            "" => Ok(absent),
            digits => digits.parse::<u64>().map_err(|_| wrong()),
        };
        let range = Self { min: number(min, 0)?, max: number(max, u64::MAX)? };
        if range.min > range.max {
            return Err(format!("`{text}`: min is greater than max"));
        }
        Ok(range)
    }
}

impl fmt::Display for NsRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (min, u64::MAX) => write!(f, "{min} ns or more"),
            (min, max) => write!(f, "{min} to {max} ns"),
        }
    }
}

/// `start,min,max` in ns of perf's clock: from start + min to start + max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// From here, included.
    pub from: Ns,
    /// To here, included.
    pub to: Ns,
}

impl TimeWindow {
    /// The time is inside.
    #[must_use]
    pub fn contains(&self, time: Ns) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

impl FromStr for TimeWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("`{text}` is not start,min,max in ns (example: 5133313694755869,0,200000)");
        let numbers: Vec<u64> = text
            .split(',')
            .map(|part| part.trim().parse::<u64>().map_err(wrong))
            .collect::<Result<_, _>>()?;
        let &[start, min, max] = numbers.as_slice() else {
            return Err(format!("`{text}` has {} numbers; start,min,max are three", numbers.len()));
        };
        if min > max {
            return Err(format!("`{text}`: min is greater than max"));
        }
        Ok(Self { from: Ns(start.saturating_add(min)), to: Ns(start.saturating_add(max)) })
    }
}

/// `FUNC` or `FUNC#min,max`: calls below a call of FUNC (of that latency).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The function, as `-f` takes it.
    pub function: String,
    /// Latency of its call.
    pub latency_ns: NsRange,
}

impl FromStr for Ancestor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `#` also occurs in names (`{lambda()#1}`): it starts a range only if digits and a comma follow.
        let range = text.rsplit_once('#').filter(|(_, range)| {
            range.contains(',') && range.chars().all(|c| c.is_ascii_digit() || c == ',')
        });
        let (function, latency_ns) = match range {
            Some((function, range)) => (function, range.parse()?),
            None => (text, NsRange::ALL),
        };
        if function.is_empty() {
            return Err("the function's name is missing".to_owned());
        }
        Ok(Self { function: function.to_owned(), latency_ns })
    }
}

/// `NAME=START..END`: code between two places, as a function of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// The name.
    pub name: String,
    /// Where it begins: an address, `SYMBOL+0x10`, `file.c:120` or `usdt:PROVIDER:NAME`.
    pub start: String,
    /// Where it ends.
    pub end: String,
}

impl FromStr for RegionSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no region (NAME=START..END; a place is 0x401136, SYMBOL+0x10, file.c:120 or usdt:PROVIDER:NAME)"
            )
        };
        let (name, places) = text.split_once('=').ok_or_else(wrong)?;
        let halves = |at: usize| Some((places.get(..at)?, places.get(at + 2..)?));
        // The dots of `../src/a.c:10` separate nothing.
        let is_directory = |(before, after): &(&str, &str)| {
            after.starts_with('/') && (before.is_empty() || before.ends_with('/'))
        };
        let mut splits = places.match_indices("..").filter_map(|(at, _)| halves(at));
        let (start, end) = splits.find(|halves| !is_directory(halves)).ok_or_else(wrong)?;
        if [name, start, end].iter().any(|part| part.trim().is_empty()) {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), start: start.to_owned(), end: end.to_owned() })
    }
}

/// `#2` or `2`: which of several candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateNumber(pub usize);

impl FromStr for CandidateNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('#').unwrap_or(text).parse() {
            Ok(number) if number > 0 => Ok(Self(number)),
            _ => Err(format!("`{text}` is no candidate's number (example: #2)")),
        }
    }
}

/// `p99` or `p99.9`: a percentile, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile(pub u16);

impl FromStr for Percentile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix('p').unwrap_or(text);
        let (whole, tenths) = digits.split_once('.').unwrap_or((digits, "0"));
        let number = |digits: &str, most: usize| digits.parse::<u16>().ok().filter(|_| digits.len() <= most);
        let thousandths = number(whole, 3).zip(number(tenths, 1)).map(|(whole, tenths)| whole * 10 + tenths);
        let known = thousandths.filter(|thousandths| (1..=1000).contains(thousandths));
        known.map(Self).ok_or_else(|| format!("`{text}` is no percentile (examples: p99  p99.9)"))
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "p{whole}"),
            (whole, tenths) => write!(f, "p{whole}.{tenths}"),
        }
    }
}

/// `64M`: bytes, or K, M, G of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("K", 10), ("M", 20), ("G", 30)];
        let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
        let (digits, shift) = unit.unwrap_or((text, 0));
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        let bytes = bytes.filter(|bytes| (1..=1 << 40).contains(bytes));
        bytes.map(Self).ok_or_else(|| format!("`{text}` is no size (examples: 65536  64M  1G)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids() {
        let set = TidSet(vec!["1".parse().unwrap(), "3-5".parse().unwrap()]);
        let inside: Vec<i32> = (0..8).filter(|t| set.contains(Tid(*t))).collect();
        assert_eq!(inside, [1, 3, 4, 5]);
        assert!(TidSet::default().contains(Tid(9)));
        for wrong in ["", "x", "5-3", "1-", "-1", "99999999999"] {
            assert!(wrong.parse::<TidRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn regions() {
        let parsed = |text: &str| {
            let RegionSpec { name, start, end } = text.parse().unwrap();
            [name, start, end]
        };
        assert_eq!(parsed("r=f+0x10..f+0x20"), ["r", "f+0x10", "f+0x20"]);
        assert_eq!(parsed("r=a.c:10..a.c:20"), ["r", "a.c:10", "a.c:20"]);
        assert_eq!(parsed("r=../a.c:10..../b.c:20"), ["r", "../a.c:10", "../b.c:20"]);
        assert_eq!(parsed("r=x/../a.c:10..x/../a.c:20"), ["r", "x/../a.c:10", "x/../a.c:20"]);
        assert_eq!(parsed("q=usdt:db:start..usdt:db:done"), ["q", "usdt:db:start", "usdt:db:done"]);
        for wrong in ["", "r", "r=f", "=f..g", "r=..g", "r=f..", "r=f.g"] {
            assert!(wrong.parse::<RegionSpec>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn latencies() {
        assert_eq!("0,200000".parse(), Ok(NsRange { min: 0, max: 200_000 }));
        assert_eq!("5,".parse(), Ok(NsRange { min: 5, max: u64::MAX }));
        assert_eq!(",5".parse(), Ok(NsRange { min: 0, max: 5 }));
        for wrong in ["", "5", "7,5", "a,b", "1,2,3"] {
            assert!(wrong.parse::<NsRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn percents() {
        assert_eq!(["0", "1.5", "100"].map(str::parse), [0.0, 1.5, 100.0].map(|share| Ok(Percent(share))));
        for wrong in ["", "-1", "100.1", "nan", "inf", "5%"] {
            assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn windows() {
        let window: TimeWindow = "5133313694755869,100000,200000".parse().unwrap();
        assert_eq!(window, TimeWindow { from: Ns(5_133_313_694_855_869), to: Ns(5_133_313_694_955_869) });
        assert!(window.contains(window.to) && !window.contains(Ns(window.to.0 + 1)));
        for wrong in ["", "1,2", "1,3,2", "1,2,3,4", "1,x,3"] {
            assert!(wrong.parse::<TimeWindow>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ancestors() {
        let check = |text: &str, function: &str, latency_ns| {
            assert_eq!(text.parse(), Ok(Ancestor { function: function.to_owned(), latency_ns }), "{text}");
        };
        check("do_command#1,100000", "do_command", NsRange { min: 1, max: 100_000 });
        check("do_command", "do_command", NsRange::ALL);
        check("f::{lambda()#1}", "f::{lambda()#1}", NsRange::ALL);
        check("f::{lambda(int, int)#1}#5,", "f::{lambda(int, int)#1}", NsRange { min: 5, max: u64::MAX });
        assert!("#1,2".parse::<Ancestor>().is_err());
    }

    #[test]
    fn sizes() {
        let sizes = ["1", "4K", "64M", "1G"].map(|text| text.parse());
        assert_eq!(sizes, [1, 4 << 10, 64 << 20, 1 << 30].map(|bytes| Ok(ByteSize(bytes))));
        for wrong in ["", "0", "M", "-1", "1T", "99999999999G"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn percentiles() {
        let texts = ["p99", "99.9", "p50", "p100", "p0.1"];
        let percentiles = texts.map(|text| text.parse::<Percentile>().map(|p| (p.0, p.to_string())));
        let expect = [(990, "p99"), (999, "p99.9"), (500, "p50"), (1000, "p100"), (1, "p0.1")];
        assert_eq!(percentiles, expect.map(|(number, text)| Ok((number, text.to_owned()))));
        for wrong in ["", "p", "p0", "p101", "p99.99", "p-1", "p9.", "x", "p65535"] {
            assert!(wrong.parse::<Percentile>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn calls() {
        assert_eq!("77-3".parse(), Ok(CallNumber(CallId { tid: Tid(77), number: 3 })));
        for wrong in ["", "77", "77-", "-3", "a-3", "77-3-4"] {
            assert!(wrong.parse::<CallNumber>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn candidates() {
        assert_eq!("#2".parse(), Ok(CandidateNumber(2)));
        assert_eq!("3".parse(), Ok(CandidateNumber(3)));
        assert!("#0".parse::<CandidateNumber>().is_err());
    }
}
