//! libipt, Intel's reference decoder, sees what ours sees: every transfer and every gap, thread by thread, in the
//! recordings of [`HELD`]; and the calls that come of it are the same.  Where libipt cannot, `docs/testing.md` says why, and this
//! test holds that it is so.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use decoder::DecodeOptions;
use libipt::Libipt;
use model::{AuxOffset, BranchKind, EndKind, EventSink, GapCause, Pid, SpaceId, Tid, TraceEvent, Transfer};
use tracegen::truth::File;
use tracegen::truth::verify::EventVerifier;
use truth_tests::{Fixture, Opened, fixtures_of, pipeline};

/// The recordings that are held so far.
const HELD: &[&str] = &["demo", "calls-noretcomp"];

/// What libipt may do wrong in a recording, see `docs/testing.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// A return that has a packet of its own stays on libipt's stack for compressed returns: where an exception has
    /// left frames, a later compressed return goes to the wrong place.
    Returns,
    /// A TIP.PGD without address at a conditional jump.
    HiddenJumps,
}

fn known(fixture: &Fixture) -> Known {
    match fixture.log.as_str() {
        _ if fixture.options.contains("--pgd-hides-jcc") => Known::HiddenJumps,
        "calls" if !fixture.options.contains("--noretcomp") => Known::Returns,
        _ => Known::Nothing,
    }
}

/// An event without what only one decoder knows: its time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shown {
    Transfer(Transfer),
    Gap(&'static str),
}

const OVERFLOW: Shown = Shown::Gap(GapCause::Overflow.name());

/// The events of each thread, and where in the buffer they come from.
#[derive(Default)]
struct Threads(BTreeMap<Tid, Vec<(Shown, AuxOffset)>>);

impl EventSink for Threads {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        let shown = events.iter().map(|event| match event {
            TraceEvent::Branch(branch) => (Shown::Transfer(branch.transfer), branch.at),
            TraceEvent::Gap(gap) => (Shown::Gap(gap.cause.name()), gap.at),
        });
        self.0.entry(tid).or_default().extend(shown);
    }
}

fn options(segment_bytes: u64) -> DecodeOptions {
    DecodeOptions { workers: 2, all_branches: true, segment_bytes }
}

/// What came of holding two decoders against each other.
#[derive(Debug, Default)]
struct Comparison {
    same: u64,
    /// Transfers that led into an overflow: libipt tells where an instruction was, and of the last one before an
    /// overflow not where it led.
    into_overflow: u64,
    /// Places at which libipt took a wrong way that is known, and our events until it was right again.
    wrong_ways: u64,
    not_held: u64,
    differs: Option<String>,
}

fn compare(ours: &Threads, libipt: &Threads, known: Known) -> Comparison {
    let mut comparison = Comparison::default();
    if ours.0.keys().ne(libipt.0.keys()) {
        comparison.differs = Some(format!("threads {:?} and {:?}", ours.0.keys(), libipt.0.keys()));
    }
    for (tid, ours) in &ours.0 {
        if let Some(theirs) = libipt.0.get(tid) {
            let difference = compare_thread(ours, theirs, known, &mut comparison);
            comparison.differs =
                comparison.differs.or(difference.map(|text| format!("thread {}: {text}", tid.0)));
        }
    }
    comparison
}

type Events<'a> = &'a [(Shown, AuxOffset)];

/// Describes the first difference that is not known.
fn compare_thread<'a>(
    mut ours: Events<'a>,
    mut theirs: Events<'a>,
    known: Known,
    all: &mut Comparison,
) -> Option<String> {
    loop {
        match (ours, theirs) {
            ([], []) => return None,
            ([(a, _), rest @ ..], [(b, _), their_rest @ ..]) if a == b => {
                all.same += 1;
                (ours, theirs) = (rest, their_rest);
            }
            ([(Shown::Transfer(Transfer::Branch { .. }), _), rest @ ..], [(OVERFLOW, _), ..])
                if rest.first().is_some_and(|(next, _)| *next == OVERFLOW) =>
            {
                all.into_overflow += 1;
                ours = rest;
            }
            _ if is_known(ours, theirs, known) => {
                all.wrong_ways += 1;
                let before = ours.len();
                let Some(behind) = behind_wrong_way(ours, theirs) else {
                    all.not_held += before as u64;
                    return None;
                };
                (ours, theirs) = behind;
                all.not_held += (before - ours.len()) as u64;
            }
            _ => {
                let lines = |events: Events<'_>| {
                    let shown: Vec<_> = events.iter().take(5).map(|(e, at)| format!("{e:x?} {at}")).collect();
                    shown.join("\n    ")
                };
                return Some(format!("ours\n    {}\n  libipt\n    {}", lines(ours), lines(theirs)));
            }
        }
    }
}

/// libipt takes a wrong way in the way that is known.
fn is_known(ours: Events<'_>, theirs: Events<'_>, known: Known) -> bool {
    let first = |events: Events<'_>| match events.first() {
        Some((Shown::Transfer(transfer), _)) => Some(*transfer),
        _ => None,
    };
    match (known, first(ours)) {
        (Known::Nothing, _) => false,
        (Known::Returns, Some(Transfer::Branch { kind: BranchKind::Return, from, .. })) => {
            match first(theirs) {
                Some(Transfer::Branch { kind: BranchKind::Return, from: theirs, .. }) => from == theirs,
                _ => true, // it found that out at once
            }
        }
        (Known::HiddenJumps, Some(Transfer::End { kind: EndKind::Branch(kind), .. })) => {
            kind == BranchKind::ConditionalJump
        }
        _ => false,
    }
}

/// Events that must follow one another in both for the decoders to be together again.
const TOGETHER: usize = 8;

/// Both from where libipt has gone on at a PSB; `None` if it has not.
fn behind_wrong_way<'a>(ours: Events<'a>, mut theirs: Events<'a>) -> Option<(Events<'a>, Events<'a>)> {
    let is_resume = |(event, _): &(Shown, AuxOffset)| {
        matches!(event, Shown::Transfer(Transfer::Start { after_gap: true, .. }))
    };
    loop {
        let resume = theirs.iter().position(is_resume)?;
        let (psb, behind) = (theirs.get(resume)?.1, theirs.get(resume + 1..)?);
        let next: Vec<Shown> = behind.iter().take(TOGETHER).map(|(event, _)| *event).collect();
        let near = |at: AuxOffset| at >= psb && at.minus(psb) < 4096;
        let together = (0..ours.len())
            .find(|&i| near(ours[i].1) && ours[i..].iter().map(|(event, _)| event).take(TOGETHER).eq(&next));
        match together {
            Some(i) => return Some((&ours[i..], behind)),
            None => theirs = behind,
        }
    }
}

fn transfers_agree(fixture: &Fixture, opened: &Opened<'_>, libipt: &Libipt) -> bool {
    let mut good = true;
    for segment_bytes in [1 << 18, 20_000] {
        let (mut ours, mut theirs) = (Threads::default(), Threads::default());
        opened.decode(&options(segment_bytes), &mut ours);
        opened.decode_with(libipt, &options(segment_bytes), &mut theirs);
        let known = known(fixture);
        let found = compare(&ours, &theirs, known);
        let Comparison { same, into_overflow, wrong_ways, not_held, differs } = found;
        println!(
            "{}: {same} events are the same; {into_overflow} into an overflow only ours; {wrong_ways} wrong ways of \
             libipt ({known:?}), {not_held} of our events there",
            fixture.name
        );
        let right = differs.is_none() && same > 0 && (fixture.is_lossy() || into_overflow == 0);
        good &= right;
        if let Some(difference) = differs {
            println!("{}: differs: {difference}", fixture.name);
        }
    }
    good
}

/// The truth, which neither decoder has made.
fn truth_agrees(fixture: &Fixture, opened: &Opened<'_>, libipt: &Libipt) -> bool {
    if fixture.is_lossy() || known(fixture) != Known::Nothing {
        return true;
    }
    let truth = File::load(&fixture.truth).unwrap();
    let mut verifier = EventVerifier::new(&truth, None, opened.kernel);
    opened.decode_with(libipt, &options(1 << 18), &mut verifier);
    let verdict = verifier.finish();
    let good = verdict.agrees() && verdict.matched() > 0;
    println!(
        "{}: {} events are the truth's; errors, ns: {}",
        fixture.name,
        verdict.matched(),
        verdict.errors
    );
    if !good {
        println!("{verdict}");
    }
    good
}

fn check(fixture: &Fixture) -> bool {
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let libipt = Libipt::new().unwrap();
    transfers_agree(fixture, &opened, &libipt) & truth_agrees(fixture, &opened, &libipt)
}

fn check_all(log: &str) {
    let held = fixtures_of(log).into_iter().filter(|f| HELD.contains(&f.name.as_str()));
    let bad: Vec<String> = held.filter(|f| !check(f)).map(|f| f.name).collect();
    assert!(bad.is_empty(), "libipt and ours differ: {}", bad.join(", "));
}

#[test]
fn demo() {
    check_all("demo");
}

#[test]
fn calls() {
    check_all("calls");
}

/// The same calls: status, caller, site, depth and off-CPU time; the latencies differ by no more than both decoders
/// say.
#[test]
fn rows_are_the_same() {
    let cases = [("demo", "round_fn")];
    let libipt = Libipt::new().unwrap();
    for (name, symbol) in cases {
        let Some(fixture) = truth_tests::fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let function = opened.function(symbol).unwrap();
        let ours = opened.analyse(&[function], &DecodeOptions::default());
        let theirs = opened.analyse_with(&libipt, &[function], &DecodeOptions::default());
        // By start in the report, which is an estimate.
        let in_order = |report: &analyzer::Report| {
            let mut rows = report.functions[0].rows.clone();
            rows.sort_by_key(|r| (r.tid, r.id.number));
            rows
        };
        let (ours, theirs) = (in_order(&ours), in_order(&theirs));
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let same = |r: &analyzer::CallRow| (r.tid, r.status, r.caller, r.site, r.depth, r.off_cpu_ns);
            assert_eq!(same(ours), same(theirs), "{name}");
            let apart = ours.latency_ns.abs_diff(theirs.latency_ns);
            assert!(apart <= ours.error_ns.saturating_add(theirs.error_ns), "{name}: {ours:?} {theirs:?}");
        }
        println!("{name}: {} rows of {symbol} are the same", ours.len());
    }
}
