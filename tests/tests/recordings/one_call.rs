//! A call that is opened alone, from the bytes around it, has the tree that it has when all is decoded.

use std::collections::HashMap;

use analyzer::{CallId, CallRow, CallTree, TreeSink, Trees};
use decoder::{DecodeOptions, OwnDecoder};
use func_latency::one_call::{self, CallKey, Place};
use truth_tests::{Fixture, Opened, fixture, pipeline};

/// Calls of each recording.
const CALLS: usize = 1_000;

/// Keeps trees.
struct Kept {
    calls: Vec<CallId>,
    trees: HashMap<CallId, CallTree>,
}

impl TreeSink for Kept {
    fn wanted(&self) -> Trees {
        Trees::Calls(self.calls.clone())
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        self.trees.insert(call.id, tree.clone());
    }
}

/// Some of them, the same in every run.
fn some_of(rows: &[CallRow]) -> Vec<CallRow> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut rows = rows.to_vec();
    for i in (1..rows.len()).rev() {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        rows.swap(i, ((random >> 33) % (i as u64 + 1)) as usize);
    }
    rows.truncate(CALLS);
    rows
}

fn check(name: &str, symbol: &str) {
    let Some(Fixture { data, .. }) = fixture(name) else { return };
    let file = pipeline::open(&data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let function = opened.function(symbol).unwrap();
    let all = opened.analyse(&[function], &DecodeOptions::default()).functions.remove(0).rows;
    let rows = some_of(&all);
    let mut kept = Kept { calls: rows.iter().map(|row| row.id).collect(), trees: HashMap::new() };
    let _ = opened.analyse_trees(&[function], &DecodeOptions::default(), &mut kept);
    let place =
        Place { recording: &opened.recording, schedule: &opened.schedule, image: &opened.image, workers: 1 };
    let decoder = OwnDecoder::default();
    let (mut attempts, mut bytes, mut most, mut bad) = (0, 0, 0, 0);
    for row in &rows {
        let key = CallKey::of(row);
        let twin = all.iter().filter(|other| CallKey::of(other) == key && other.id < row.id).count();
        let Some(call) = one_call::open(place, &decoder, function, &key, twin) else {
            println!("{name}: not found: {row:?}");
            bad += 1;
            continue;
        };
        attempts += call.attempts - 1;
        bytes += call.bytes;
        most = most.max(call.bytes);
        if Some(&call.tree) != kept.trees.get(&row.id) {
            println!("{name}: differs: {row:?}");
            bad += 1;
        }
    }
    println!(
        "{name}: {} calls, {} bytes each, at most {most}, {attempts} more attempts",
        rows.len(),
        bytes / rows.len().max(1) as u64
    );
    assert_eq!(bad, 0, "{name}");
}

#[test]
fn demo() {
    check("demo", "round_fn");
}
#[test]
fn calls_cpu8() {
    check("calls-cpu8", "round_cc");
}
#[test]
fn sq1() {
    check("sq1", "sqlite3VdbeExec");
}
#[test]
fn sq1_halt() {
    check("sq1", "sqlite3VdbeHalt");
}
#[test]
fn catcher() {
    check("demo", "catcher");
}
#[test]
fn rec() {
    check("calls", "throw_rec");
}
#[test]
fn demo_ovf() {
    check("demo-cpu2-ovf", "leaf");
}
