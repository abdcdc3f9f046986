//! Children of the analyzer's calls against children of the oracle's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use analyzer::{CallCounts, ChildRow, FunctionReport, Place};
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
    /// By how much `ns` may be off.
    error_ns: u64,
}

impl Sum {
    fn add(&mut self, count: u64, ns: u64, error_ns: u64) {
        let Self { count: of_count, ns: of_ns, error_ns: of_error_ns } = *self;
        *self =
            Self { count: of_count + count, ns: of_ns + ns, error_ns: of_error_ns.saturating_add(error_ns) };
    }

    /// `more_ns`: what it may differ by beside that.
    fn is_of(self, truth: Self, more_ns: u64) -> bool {
        let may_differ_ns = self.error_ns.saturating_add(more_ns);
        self.count == truth.count && self.ns.abs_diff(truth.ns) <= may_differ_ns
    }
}

/// Children of counted calls whose number is not the oracle's, or whose time is farther from the oracle's
/// than they say, described; empty if there are none. Children of open calls, too, where all rows are
/// compared: which open call is inside of another one after a loss, the oracle alone knows.
#[must_use]
pub fn child_differences(
    opened: &Opened<'_>,
    report: &FunctionReport,
    calls: &Calls,
    compare: Compare,
) -> String {
    let table = Table { opened, report, calls };
    let mut text = table.differences("children", &report.figures.children, &calls.children, 0);
    if compare == Compare::All {
        let (ours, truth) = (&report.open.children, &calls.open_children);
        let CallCounts { open_start, open_end, cut, .. } = report.calls;
        // Of each, a child may have been in the kernel when the thread came or left.
        let leaving_ns = LEAVING_NS * (open_start + open_end + cut);
        text += &table.differences("children of open calls", ours, truth, leaving_ns);
    }
    text
}

struct Table<'a> {
    opened: &'a Opened<'a>,
    report: &'a FunctionReport,
    calls: &'a Calls,
}

impl Table<'_> {
    fn differences(&self, what: &str, ours: &[ChildRow], truth: &[Child], more_ns: u64) -> String {
        let mut text = String::new();
        for ((kind, site), (ours, truth)) in self.sums(ours, truth) {
            if !ours.is_of(truth, more_ns) {
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
        // Where a function that the IP filter hides calls into it, the return tells; what leaves by a jump
        // does not return.
        let is_hidden = self.report.rows.iter().any(|row| row.traced().is_some_and(|traced| traced.hidden));
        let seen_site = |site: Option<Place>| site.filter(|_| !is_hidden);
        let at = self.calls.rows.first().map_or(Ns(0), |row| row.start);
        let mut sums: BTreeMap<Key, (Sum, Sum)> = BTreeMap::new();
        for child in ours {
            let (ours, _) = sums.entry((child.kind.name(), seen_site(child.site))).or_default();
            ours.add(child.total.count, child.total.sum_ns, child.error_ns);
        }
        for child in truth.iter().filter(|child| child.sum.count > 0) {
            let key = (child.kind, seen_site(site(self.opened, child.site, at)));
            let (_, truth) = sums.entry(key).or_default();
            truth.add(child.sum.count, child.sum.ns, 0);
        }
        sums
    }
}
