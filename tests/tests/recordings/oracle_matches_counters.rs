//! The oracle against a program that counts its own calls: the oracle's rules are held by something that
//! never saw a branch.

use tracegen::truth::File;
use tracegen::truth::calls::{Oracle, Status};
use truth_tests::{Fixture, fixture};

/// Counted where they are inlined, too.
const INLINED: [&str; 2] = ["inlined_only", "maybe_inlined"];

/// `count NAME entered returned`
fn counters(output: &str) -> Vec<(&str, usize, usize)> {
    let line = |line| {
        let mut words = str::split_ascii_whitespace(line).skip_while(|&w| w != "count").skip(1);
        Some((words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    output.lines().filter_map(line).filter(|(name, ..)| !INLINED.contains(name)).collect()
}

fn check(fixture: &Fixture) {
    let output = std::fs::read_to_string(&fixture.output).unwrap();
    let counters = counters(&output);
    assert_eq!(counters.len(), 39, "functions that count themselves in {}", fixture.output.display());
    let truth = File::load(&fixture.truth).unwrap();
    let mut oracle = Oracle::new(&truth, &fixture.data).unwrap();
    let names: Vec<&str> = counters.iter().map(|(name, ..)| *name).collect();
    for ((name, entered, returned), calls) in counters.into_iter().zip(oracle.calls_of_each(&names).unwrap())
    {
        let [complete, unwound, open_start, open_end, cut] = Status::ALL.map(|s| calls.count(s));
        let found = (complete, unwound + complete + open_end, open_start, cut, calls.odd_flow);
        assert_eq!(found, (returned, entered, 0, 0, 0), "{} {name}", fixture.name);
    }
}

#[test]
fn full_recordings() {
    // How packets look is nothing to the oracle: where threads run is.
    const SCHEDULES: [&str; 3] = ["calls", "calls-cpu2", "calls-cpu8"];
    for fixture in SCHEDULES.into_iter().filter_map(fixture) {
        check(&fixture);
    }
}
