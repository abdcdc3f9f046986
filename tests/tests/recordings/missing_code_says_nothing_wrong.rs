//! Recordings decoded without one of their libraries: no transfer is one that did not happen.

use std::collections::HashMap;

use decoder::DecodeOptions;
use model::{AuxOffset, EventSink, Pid, Site, SpaceId, Target, Tid, TraceEvent, Transfer};
use truth_tests::{Opened, fixture, pipeline};

use crate::other_machine::{with_symfs, write_bundle};

/// How far apart the packets of a branch may be: a direct one goes by the packet before or after it.
const NEAR_BYTES: u64 = 16;

/// A branch by its packet and its addresses.
type Branch = (Tid, AuxOffset, u64, u64);

#[derive(Default)]
struct Branches {
    all: Vec<Branch>,
}

impl EventSink for Branches {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        for event in events {
            if let TraceEvent::Branch(branch) = event
                && let Transfer::Branch { from: Site { ip: from, .. }, to: Target { ip: to, .. }, .. } =
                    branch.transfer
            {
                self.all.push((tid, branch.at, from.0, to.0));
            }
        }
    }
}

fn branches(opened: &Opened<'_>) -> Vec<Branch> {
    let mut branches = Branches::default();
    opened.decode(&DecodeOptions { all_branches: true, ..DecodeOptions::default() }, &mut branches);
    branches.all
}

/// Decodes without the object `without`: how many branches, and how many of them are not among those with it.
fn check(name: &str, without: &str) -> Option<(usize, usize)> {
    let fixture = fixture(name)?;
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let mut known: HashMap<(Tid, u64, u64), Vec<u64>> = HashMap::new();
    for (tid, at, from, to) in branches(&opened) {
        known.entry((tid, from, to)).or_default().push(at.0);
    }
    known.values_mut().for_each(|places| places.sort_unstable());
    let is_known = |&&(tid, at, from, to): &&Branch| {
        let near = |places: &Vec<u64>| {
            let next = places.partition_point(|place| place + NEAR_BYTES < at.0);
            places.get(next).is_some_and(|place| place.abs_diff(at.0) <= NEAR_BYTES)
        };
        known.get(&(tid, from, to)).is_some_and(near)
    };
    let root = tempfile::tempdir().unwrap();
    write_bundle(&opened.image, root.path(), without);
    let found = branches(&with_symfs(&opened, root.path()));
    let wrong: Vec<_> = found.iter().filter(|branch| !is_known(branch)).collect();
    if !wrong.is_empty() {
        println!("{name} without {without}: {:x?}", &wrong[..wrong.len().min(5)]);
    }
    Some((found.len(), wrong.len()))
}

/// A TIP that leads out of the missing library may have waited for the TNT before it, whose last bits are not
/// the library's then.
#[test]
fn no_branch_is_made_up() {
    for name in ["demo-defer", "demo-defer-noret", "demo-defer-long", "demo-defer-nocyc"] {
        for without in ["libc.so.6", "ld-linux-x86-64.so.2"] {
            let Some((found, wrong)) = check(name, without) else { return };
            println!("{name} without {without}: {found} branches");
            assert_eq!(wrong, 0, "{name} without {without}");
        }
    }
}
