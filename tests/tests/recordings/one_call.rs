//! A call that is opened alone, from the bytes around it, has the tree that it has when all is decoded.

use std::collections::HashMap;

use analyzer::{CallId, CallRow, CallTree, Node, TreeSink, Trees};
use decoder::DecodeOptions;
use func_latency::args::DecoderChoice;
use func_latency::one_call::{self, CallKey, CallPlace};
use model::{AuxOffset, AuxOwner};
use truth_tests::{Opened, fixture, is_full_run, pipeline};

/// A little more than there is between two PSBs in these recordings.
const PSB_BYTES: u64 = 4_500;

/// Keeps trees.
struct Kept {
    entries: Vec<AuxOffset>,
    trees: HashMap<CallId, CallTree>,
}

impl TreeSink for Kept {
    fn wanted(&self) -> Trees {
        Trees::EnteredAt(self.entries.clone())
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        self.trees.insert(call.id, tree.clone());
    }
}

/// So many of them, the same in every run.
fn some_of(rows: &[CallRow], count: usize) -> Vec<CallRow> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut rows = rows.to_vec();
    for i in (1..rows.len()).rev() {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        rows.swap(i, ((random >> 33) % (i as u64 + 1)) as usize);
    }
    rows.truncate(count);
    rows
}

/// The bytes of a call in its thread's own buffer, at most: up to the next call that is in no other.
fn bytes_of(row: &CallRow, all: &[CallRow]) -> Option<u64> {
    let is_next = |other: &&CallRow| other.id.tid == row.id.tid && other.depth == 0 && other.id > row.id;
    let next = all.iter().filter(is_next).min_by_key(|other| other.id)?;
    Some(next.aux_offset()?.minus(row.aux_offset()?))
}

/// The trees are the same; an error may be 1 ns larger or smaller, as a part of a recording has its own first
/// time, and bounds between packets are rounded from there.
fn is_same(one: &CallTree, other: &CallTree) -> bool {
    let around = one.callers() == other.callers() && one.left_out() == other.left_out();
    let (one, other) = (one.nodes(), other.nodes());
    let same = |(one, other): (&Node, &Node)| {
        one.error_ns.abs_diff(other.error_ns) <= 1 && *one == Node { error_ns: one.error_ns, ..*other }
    };
    around && one.len() == other.len() && one.iter().zip(other).all(same)
}

/// `most_attempts`: how often, of all these calls, what came before has to be looked at.
fn check(name: &str, symbol: &str, count: usize, most_attempts: u64) {
    let Some(fixture) = fixture(name) else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::with_kernel(&file, &fixture.kernels().pop().unwrap_or_default()).unwrap();
    let function = opened.function(symbol).unwrap();
    let all = opened.analyse(&[function], &DecodeOptions::default()).functions.remove(0).rows;
    let rows = some_of(&all, count);
    let mut kept =
        Kept { entries: rows.iter().filter_map(|row| row.aux_offset()).collect(), trees: HashMap::new() };
    let _ = opened.analyse_trees(&[function], &DecodeOptions::default(), &mut kept);
    let place = CallPlace {
        recording: &opened.recording,
        schedule: &opened.schedule,
        image: &opened.image,
        workers: 1,
        decoder: DecoderChoice::Own,
    };
    let has_thread_buffers =
        opened.recording.buffers.iter().all(|buffer| matches!(buffer.owner, AuxOwner::Thread(_)));
    let (mut attempts, mut bytes) = (0, 0);
    for row in &rows {
        let key = CallKey::of(row);
        let twin = all.iter().filter(|other| CallKey::of(other) == key && other.id < row.id).count();
        let call = one_call::open(place, function, &key, twin).unwrap().unwrap();
        let whole = kept.trees.get(&row.id).unwrap();
        assert!(is_same(&call.tree, whole), "{name}: {row:?}\n{:?}\n{whole:?}", call.tree);
        attempts += call.attempts - 1;
        bytes += call.bytes;
        // The PSB before the call, the PSB before that, and the PSB after the call.
        if let Some(own) = bytes_of(row, &all).filter(|_| has_thread_buffers && call.attempts == 1) {
            assert!(call.bytes <= own + 3 * PSB_BYTES, "{name}: {} bytes: {row:?}", call.bytes);
        }
    }
    let each = bytes / rows.len().max(1) as u64;
    println!("{name}: {} calls of {symbol}, {each} bytes each, {attempts} more attempts", rows.len());
    assert!(attempts <= most_attempts, "{name}: {attempts} more attempts");
}

#[test]
fn a_thousand_calls() {
    check("sq1", "sqlite3VdbeExec", 1_000, 0);
}

/// So many of each of the others.
fn few() -> usize {
    if is_full_run() { 1_000 } else { 60 }
}

#[test]
fn calls_of_threads() {
    check("demo", "round_fn", few(), 0);
    check("sq1", "sqlite3VdbeHalt", few(), 0);
    check("sq1", "main", few(), 0);
    check("calls", "simple_fn", few(), 0);
}

#[test]
fn calls_on_cpus() {
    check("calls-cpu8", "round_cc", few(), 0);
    check("demo-cpu2", "round_fn", few(), 0);
    check("demo-kernel-cpu2", "round_fn", few(), 0);
}

#[test]
fn calls_that_recurse_jump_and_throw() {
    check("calls", "fact_rec", few(), 0);
    check("calls", "throw_rec", few(), 0);
    check("calls", "tail_b", few(), 0);
    check("calls", "jmp_rec", few(), 0);
    check("demo", "catcher", few(), 0);
}

#[test]
fn calls_that_were_not_seen_whole() {
    check("demo-cpu2-ovf", "leaf", few(), 0);
    check("demo-cpu2-trunc", "round_fn", few(), 0);
    check("demo-filter2", "mid", few(), 0);
    check("calls-window", "round_cc", few(), 0);
}
