//! Which slow calls are slow for the same reason.

use std::fmt::Write as _;

use super::ledger::{calls, rows};
use super::script::{analyse_trees, schedule};
use crate::ledger::{Cluster, Clusters, End, Groups, LedgerOfCalls, Slow, Spent};
use crate::{ChildKey, LatencyRange, Request};

/// Two call `g` 14 times, three that block in it, and one that takes longer itself; 144 typical ones.
#[test]
fn slow_calls_are_sorted_by_what_made_each_slow() {
    let quick = "10 call f+10 g\n 20 ret g+10 f+15\n 40 ret f+40 main+25";
    let mut often = String::new();
    for at in (0..14).map(|i| 10 + 11 * i) {
        writeln!(often, "{at} call f+10 g\n {} ret g+10 f+15", at + 10).unwrap();
    }
    let often = &*(often + "185 ret f+40 main+25");
    let blocks = "10 call f+10 g\n 12 syscall g+4\n 170 start g+6\n 180 ret g+10 f+15\n 199 ret f+40 main+25";
    let own = "10 call f+10 g\n 20 ret g+10 f+15\n 160 ret f+40 main+25";
    let mut bodies = vec![quick; 300];
    let start = |at: usize| 1000 + 200 * at;
    let mut off = String::new();
    for (at, body) in [(20, often), (60, blocks), (90, own), (120, blocks), (200, often), (280, blocks)] {
        bodies[at] = body;
        if body == blocks {
            writeln!(off, "off {} {}", start(at) + 15, start(at) + 165).unwrap();
        }
    }
    let script = off + &calls(&bodies);
    let slow = Slow::Latency(LatencyRange { min_ns: 100, max_ns: u64::MAX });
    let groups = Groups::choose(&rows(&script), slow).unwrap();
    let schedule = schedule(&script);
    let mut ledger = LedgerOfCalls::new(&groups, &schedule);
    let _ = analyse_trees(&script, Request::default(), &mut ledger);
    let (_, Clusters { clusters, others }) = ledger.finish();
    let text = |cluster: &Cluster<ChildKey>| {
        let ids: Vec<u64> = cluster.calls.iter().map(|row| row.id.number).collect();
        let comparison = cluster.ledger.compare().unwrap();
        let leading = comparison.leading().unwrap();
        let descent = cluster.ledger.descend(leading);
        (ids, leading.spent, leading.counts, descent.end, comparison.difference.ns)
    };
    assert_eq!(
        clusters.iter().map(text).collect::<Vec<_>>(),
        [
            (vec![60, 120, 280], Spent::Blocked, None, End::MoreOften, 159),
            (vec![20, 200], Spent::Running, Some((28, 144)), End::MoreOften, 145),
            (vec![90], Spent::Running, Some((1, 144)), End::Own, 120),
        ]
    );
    assert_eq!(others, []);
}
