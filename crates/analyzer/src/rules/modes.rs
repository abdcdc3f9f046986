//! Which calls go the same way.

use super::script::{analyse_trees, callee_text};
use crate::Request;
use crate::call_row::CallRow;
use crate::modes::{DEPTHS, ModesOfCalls};
use crate::tree::{CallTree, TreeSink, Trees};

/// Each way as `first call: latencies: callees`.
#[track_caller]
fn check(script: &str, depth: usize, expect: &[&str]) {
    let mut modes = ModesOfCalls::default();
    let _ = analyse_trees(script, Request::default(), &mut modes);
    let modes = modes.finish();
    let line = |mode: &crate::modes::Mode| {
        let callees = mode.callees.iter().map(|(key, _)| callee_text(key.kind, key.function, key.site));
        format!("{}: {:?}: {}", mode.first.number, mode.latencies_ns, callees.collect::<Vec<_>>().join(", "))
    };
    assert_eq!(
        (modes.depth, modes.modes.iter().map(line).collect::<Vec<_>>()),
        (depth, expect.iter().map(|l| (*l).to_owned()).collect())
    );
}

#[test]
fn calls_that_make_the_same_calls_in_the_same_order_go_the_same_way() {
    // Once or twice is the same, and so is an interrupt or none.
    let script = "
        0 start main+4
        100 call main+20 f\n 110 call f+10 g\n 115 ret g+10 f+15\n 120 ret f+40 main+25
        200 call main+30 f\n 210 call f+10 g\n 215 ret g+10 f+15\n 216 call f+10 g\n 220 ret g+10 f+15\n 230 ret f+40 main+35
        300 call main+20 f\n 310 call f+20 h\n 315 ret h+10 f+25\n 350 ret f+40 main+25
        400 call main+20 f\n 405 async f+5\n 408 start f+5\n 410 call f+10 g\n 415 ret g+10 f+15\n 425 ret f+40 main+25";
    check(script, usize::MAX, &["0: [20, 25, 30]: call g at f+10", "2: [50]: call h at f+20"]);
}

/// Each call is known by its own way, wherever that stands among the others.
#[test]
fn calls_are_told_which_way_they_went() {
    #[derive(Default)]
    struct WayOfEach {
        modes: ModesOfCalls,
        ways: Vec<(u64, Option<crate::modes::Ways>)>,
    }
    impl TreeSink for WayOfEach {
        fn wanted(&self) -> Trees {
            Trees::Every
        }

        fn call(&mut self, call: &CallRow, tree: &CallTree) {
            self.ways.push((call.id.number, self.modes.add(call, tree)));
        }
    }
    // The rarer way first; the last call is open.
    let script = "
        0 start main+4
        100 call main+20 f\n 110 call f+20 h\n 115 ret h+10 f+25\n 120 ret f+40 main+25
        200 call main+20 f\n 210 call f+10 g\n 215 ret g+10 f+15\n 220 ret f+40 main+25
        300 call main+20 f\n 310 call f+10 g\n 315 ret g+10 f+15\n 320 ret f+40 main+25
        400 call main+20 f\n 410 call f+10 g";
    let mut each = WayOfEach::default();
    let _ = analyse_trees(script, Request::default(), &mut each);
    let modes = each.modes.finish();
    let of = |(number, ways): &(u64, Option<crate::modes::Ways>)| {
        (*number, ways.as_ref().and_then(|ways| modes.of(ways)))
    };
    let found: Vec<(u64, Option<usize>)> = each.ways.iter().map(of).collect();
    assert_eq!(found, [(0, Some(1)), (1, Some(0)), (2, Some(0)), (3, None)]);
}

#[test]
fn recursion_is_the_same_way_however_deep() {
    let script = "
        0 start main+4
        100 call main+20 f\n 110 call f+10 g\n 112 call g+10 g\n 114 ret g+20 g+15\n 115 ret g+20 f+15\n 120 ret f+40 main+25
        200 call main+20 f\n 210 call f+10 g\n 212 call g+10 g\n 213 call g+10 g\n 214 ret g+20 g+15\n 215 ret g+20 g+15
        216 ret g+20 f+15\n 230 ret f+40 main+25";
    check(script, usize::MAX, &["0: [20, 30]: call g at f+10, recursion g at g+10"]);
}

#[test]
fn where_every_call_goes_its_own_way_only_the_upper_levels_count() {
    use std::fmt::Write as _;
    // g calls h from another place each time, and f calls g.
    let mut script = String::from("0 start main+4\n");
    for i in 0..20_u64 {
        let base = 100 * (i + 1) / 2;
        writeln!(script, "{base} call main+20 f\n{} call f+10 g", base + 1).unwrap();
        writeln!(script, "{} call g+{:x} h\n{} ret h+10 g+{:x}", base + 2, 16 * i, base + 3, 16 * i + 5)
            .unwrap();
        writeln!(script, "{} ret g+500 f+15\n{} ret f+40 main+25", base + 4, base + 5).unwrap();
    }
    let latencies = vec![5; 20];
    check(&script, DEPTHS[0], &[&format!("0: {latencies:?}: call g at f+10")]);
}
