//! What calls executed by the analyzer against what they executed by the oracle.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use analyzer::{Counted, FunctionReport, Place};
use model::{Avma, Ns};
use tracegen::truth::calls::{Calls, Ran};

use crate::pipeline::Opened;
use crate::ran::counted_difference;
use crate::rows::site;

/// Counters and the oracle's, by kind and site.
type ByPlace = BTreeMap<(&'static str, Option<Place>), (Counted, Ran)>;

/// Children and callers that executed something else than those of the oracle, described; empty if none
/// has. Only where all rows are the oracle's are the sums over them comparable.
#[must_use]
pub fn counter_differences(opened: &Opened<'_>, report: &FunctionReport, calls: &Calls) -> String {
    let at = calls.rows.first().map_or(Ns(0), |row| row.start);
    let place = |ip: Avma| site(opened, ip, at);
    let mut children = ByPlace::new();
    for child in &report.figures.children {
        add_counted(&mut children, (child.kind.name(), child.site), child.counted);
    }
    for child in calls.children.iter().filter(|child| child.sum.count > 0) {
        add_ran(&mut children, (child.kind, place(child.site)), child.sum.ran);
    }
    let mut callers = ByPlace::new();
    for caller in &report.callers {
        add_counted(
            &mut callers,
            ("", caller.from.site),
            caller.figures.counters.as_ref().map(|counters| counters.sum),
        );
    }
    for caller in &calls.callers {
        add_ran(&mut callers, ("", place(caller.site)), caller.sum.ran);
    }
    let mut text = String::new();
    for (what, sums) in [("child", children), ("caller", callers)] {
        for ((kind, place), (ours, truth)) in sums {
            if let Some(differs) = counted_difference(&ours, truth) {
                let name = |place: Place| opened.image.site_name_at(place.object, place.svma);
                let (at, function) = (place.map_or("-".to_owned(), name), &calls.function);
                let _ =
                    writeln!(text, "{function}: {differs} of {what} {kind} at {at}: {ours:?}, not {truth:?}");
            }
        }
    }
    text
}

fn add_counted(sums: &mut ByPlace, key: (&'static str, Option<Place>), counted: Option<Counted>) {
    let (sum, _) = sums.entry(key).or_default();
    counted.iter().for_each(|counted| sum.add(counted));
}

fn add_ran(sums: &mut ByPlace, key: (&'static str, Option<Place>), ran: Ran) {
    let (_, sum) = sums.entry(key).or_default();
    *sum = sum.plus(ran);
}
