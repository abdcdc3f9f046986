//! Children of the analyzer's calls against children of the oracle's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use analyzer::{ChildKind, ChildRow, FunctionReport, Place};
use model::Ns;
use tracegen::truth::calls::{Calls, Child};

use crate::pipeline::Opened;
use crate::rows::{Compare, LEAVING_NS, site};

/// Kind and site: what code without a symbol is called is not the same in both.
type Key = (&'static str, Option<Place>);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    ns: u64,
}

impl Sum {
    fn add(&mut self, count: u64, ns: u64) {
        (self.count, self.ns) = (self.count + count, self.ns + ns);
    }

    /// Inside a call a time may be known less well than at its ends, and children have no bound of their own.
    fn may_differ_ns(self, error_ns: u64) -> u64 {
        self.count * error_ns + self.ns / 128 + LEAVING_NS
    }
}

/// Children of counted calls whose number, or whose time, is not the oracle's, described; empty if there are none.  Children of open
/// calls, too, where all rows are compared: which open call is inside of another one after a loss, the oracle alone knows.
#[must_use]
pub fn child_differences(
    opened: &Opened<'_>,
    report: &FunctionReport,
    calls: &Calls,
    compare: Compare,
) -> String {
    let table = Table { opened, report, calls };
    let mut text = table.differences("children", &report.children, &calls.children);
    if compare == Compare::All {
        text += &table.differences("children of open calls", &report.open.children, &calls.open_children);
    }
    text
}

struct Table<'a> {
    opened: &'a Opened<'a>,
    report: &'a FunctionReport,
    calls: &'a Calls,
}

impl Table<'_> {
    fn differences(&self, what: &str, ours: &[ChildRow], truth: &[Child]) -> String {
        let sums = self.sums(ours, truth);
        let error_ns = self.report.rows.iter().map(|row| row.error_ns).max().unwrap_or(0);
        let all_may_differ_ns: u64 = sums.values().map(|(_, truth)| truth.may_differ_ns(error_ns)).sum();
        let mut text = String::new();
        for ((kind, site), (ours, truth)) in sums {
            // `*self` is what the others leave.
            let is_self = kind == ChildKind::Own.name();
            let may_differ_ns = if is_self { all_may_differ_ns } else { truth.may_differ_ns(error_ns) };
            // Without CYC an estimate between two anchors may be far off, wherever in between the time went.
            let is_timed = self.opened.recording.pt.cyc;
            let other_time = is_timed && ours.ns.abs_diff(truth.ns) > may_differ_ns;
            if ours.count != truth.count || other_time {
                let image = &self.opened.image;
                let at = site.map_or("-".to_owned(), |place| image.site_name_at(place.object, place.svma));
                let function = &self.calls.function;
                let _ = writeln!(text, "{function}: {what}: {ours:?}, not {truth:?}: {kind} at {at}");
            }
        }
        text
    }

    /// Ours, and the oracle's.
    fn sums(&self, ours: &[ChildRow], truth: &[Child]) -> BTreeMap<Key, (Sum, Sum)> {
        // Where a function that the IP filter hides calls into it, the return tells; what leaves by a jump does not return.
        let is_hidden = self.report.rows.iter().any(|row| row.hidden);
        let seen_site = |site: Option<Place>| site.filter(|_| !is_hidden);
        let at = self.calls.rows.first().map_or(Ns(0), |row| row.start);
        let mut sums: BTreeMap<Key, (Sum, Sum)> = BTreeMap::new();
        for child in ours {
            let (ours, _) = sums.entry((child.kind.name(), seen_site(child.site))).or_default();
            ours.add(child.total.count, child.total.sum_ns);
        }
        for child in truth.iter().filter(|child| child.sum.count > 0) {
            let key = (child.kind, seen_site(site(self.opened, child.site, at)));
            let (_, truth) = sums.entry(key).or_default();
            truth.add(child.sum.count, child.sum.ns);
        }
        sums
    }
}
