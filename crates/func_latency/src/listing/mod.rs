//! A function's code with what calls did in it: by instruction, and by source line.
//!
//! ```text
//!   analyzer::OwnCode   straight code: how often it ran, and its time
//!     instructions      each instruction: executions, and a share of the time
//!     lines             each line, with the lines that are inlined into it
//! ```
//! Executions are exact. So is the time of straight code, within the errors of its two ends; that of an
//! instruction or line in it is an even share, and what of it is a share is told ([`Spent::estimated_ns`]).
//! All that is shared out are integers, and adds up.

pub mod instructions;
pub mod lines;
pub mod source_text;

use std::collections::BTreeMap;

use analyzer::{ChildKind, OwnCode, TimeRow};
use model::FunctionId;

/// What the calls of a group did at an instruction or on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// How often it was executed.
    pub executions: u64,
    /// Its own time.
    pub own_ns: u64,
    /// The true time of the straight code that has it is at most so far off, for its share.
    pub own_error_ns: u64,
    /// The part of `own_ns` that is a share of straight code which is longer than it.
    pub estimated_ns: u64,
    /// Time in what it calls: functions, the kernel, and what interrupts it.
    pub inside_ns: u64,
    /// The true time is at most so far from that.
    pub inside_error_ns: u64,
    /// Of both, off the CPU; 0 where that is not known.
    pub off_cpu_ns: u64,
}

/// What was called, and how often and how long, by group.
pub type Callees = BTreeMap<(ChildKind, FunctionId), Vec<(u64, u64)>>;

/// The calls of a group as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// How many.
    pub calls: u64,
    /// The sum of their latencies: of their own time, the time in what they call, and `elsewhere_ns`.
    pub latency_ns: u64,
    /// Their own time in code that is known.
    pub own_ns: u64,
    /// The true time is at most so far from that.
    pub own_error_ns: u64,
    /// Time in what they call.
    pub inside_ns: u64,
    /// Their own time in code that is not known.
    pub elsewhere_ns: u64,
    /// Off the CPU; `None`: not known.
    pub off_cpu_ns: Option<u64>,
}

impl Whole {
    /// Of a group of calls.
    #[must_use]
    pub fn of(code: &OwnCode) -> Self {
        let sum = |times: &mut dyn Iterator<Item = u64>| times.fold(0, u64::saturating_add);
        let of_parts_ns = sum(&mut code.code.iter().map(|row| row.time.error_ns));
        // What one part has too much another one lacks: the whole is better known than its parts.
        let of_whole_ns = (code.elsewhere.sum_ns == 0).then_some(code.own_error_ns);
        Self {
            calls: code.calls.count,
            latency_ns: code.calls.sum_ns,
            own_ns: sum(&mut code.code.iter().map(|row| row.time.total.sum_ns)),
            own_error_ns: of_whole_ns.map_or(of_parts_ns, |ns| ns.min(of_parts_ns)),
            inside_ns: sum(&mut code.children.iter().map(|(_, time)| time.total.sum_ns)),
            elsewhere_ns: code.elsewhere.sum_ns,
            off_cpu_ns: code.calls.off_cpu_ns,
        }
    }
}

impl Spent {
    fn add_time(&mut self, other: &Self) {
        self.own_ns = self.own_ns.saturating_add(other.own_ns);
        self.own_error_ns = self.own_error_ns.saturating_add(other.own_error_ns);
        self.inside_ns = self.inside_ns.saturating_add(other.inside_ns);
        self.inside_error_ns = self.inside_error_ns.saturating_add(other.inside_error_ns);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(other.off_cpu_ns);
    }

    /// Its own time and that in what it calls.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.own_ns.saturating_add(self.inside_ns)
    }

    fn add_own(&mut self, share: &Self) {
        self.own_ns = self.own_ns.saturating_add(share.own_ns);
        self.own_error_ns = self.own_error_ns.saturating_add(share.own_error_ns);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(share.off_cpu_ns);
    }
}

/// Part number `number` of `parts` equal ones of a time: integers that add up to it.
fn share(time: &TimeRow, number: usize, parts: usize) -> Spent {
    let part = |whole: u64| {
        let up_to = |number: usize| u128::from(whole) * number as u128 / parts.max(1) as u128;
        u64::try_from(up_to(number + 1) - up_to(number)).unwrap_or(u64::MAX)
    };
    Spent {
        own_ns: part(time.total.sum_ns),
        own_error_ns: part(time.error_ns),
        off_cpu_ns: part(time.total.off_cpu_ns.unwrap_or_default()),
        ..Spent::default()
    }
}

/// Calls by code in the IP filter of a function outside of it are seen. None of its lines may then look as if
/// it was never executed.
pub(crate) fn is_outside_of_filter(has_ip_filter: bool, groups: &[OwnCode]) -> bool {
    has_ip_filter && groups.iter().all(|group| group.code.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use analyzer::{CodeBegin, CodeRow, Place, TimeRow, Total};
    use model::{ObjectId, Svma};

    #[test]
    fn shares_are_even_and_add_up() {
        let total = Total { count: 1, sum_ns: 10, off_cpu_ns: Some(1) };
        let time = TimeRow { total, error_ns: 7 };
        let shares: Vec<Spent> = (0..4).map(|number| share(&time, number, 4)).collect();
        assert_eq!(shares.iter().map(|one| one.own_ns).collect::<Vec<_>>(), [2, 3, 2, 3]);
        assert_eq!(shares.iter().map(|one| one.own_error_ns).sum::<u64>(), 7);
        assert_eq!(shares.iter().map(|one| one.off_cpu_ns).sum::<u64>(), 1);
    }

    /// The error was the sum of those of straight code: ten times what a report has for `*self`.
    #[test]
    fn the_whole_is_known_as_well_as_in_a_report() {
        let place = |svma| Place { object: ObjectId(1), svma: Svma(svma) };
        let time = |sum_ns, error_ns| TimeRow { total: Total { sum_ns, ..Total::default() }, error_ns };
        let row =
            |svma| CodeRow { start: place(svma), begin: CodeBegin::Jump, end: None, time: time(50, 20) };
        let code = OwnCode { code: vec![row(0x10), row(0x20)], own_error_ns: 7, ..OwnCode::default() };
        assert_eq!(Whole::of(&code).own_error_ns, 7);
        let elsewhere = Total { sum_ns: 1, ..Total::default() };
        assert_eq!(Whole::of(&OwnCode { elsewhere, ..code }).own_error_ns, 40, "the rest of the whole");
    }

    #[test]
    fn code_outside_of_the_filter_is_not_code_that_was_never_executed() {
        let (unseen, mut seen) = (OwnCode::default(), OwnCode::default());
        let (start, begin) = (Place { object: ObjectId(1), svma: Svma(0x10) }, CodeBegin::Entry);
        let time = TimeRow { total: Total::default(), error_ns: 0 };
        seen.code.push(CodeRow { start, begin, end: None, time });
        assert!(is_outside_of_filter(true, std::slice::from_ref(&unseen)));
        assert!(!is_outside_of_filter(false, std::slice::from_ref(&unseen)));
        assert!(!is_outside_of_filter(true, &[unseen, seen]));
    }
}
