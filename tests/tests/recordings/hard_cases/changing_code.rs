//! Code that changes: libraries that take each other's place, and code that the program writes.

use super::check;
use super::printed;
use decoder::DecodeOptions;
use truth_tests::{Opened, fixture, pipeline};

/// The generated code runs so often: it is entered by a call, and by each return from a function that it
/// called.
const STAYS: u64 = 4 * (1 + 3);

/// Holds the functions around the generated code, which the oracle does not have, to what the program
/// printed. Returns the objects whose code is missing, and how many gaps that makes; `None` if there is no
/// such recording.
#[track_caller]
fn check_around(recording: &str) -> Option<Vec<(String, u64)>> {
    let fixture = fixture(recording)?;
    let output = std::fs::read_to_string(&fixture.output).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let functions = ["called_by_it", "runs_it", "has_it_run", "outside"];
    let ids = functions.map(|name| opened.function(name).unwrap());
    let report = opened.analyse(&ids, &DecodeOptions { workers: 2, ..DecodeOptions::default() });
    for (name, function) in functions.iter().zip(&report.functions) {
        let wrong = printed::differences(&output, &fixture, name, &opened, function);
        assert!(wrong.is_empty(), "{recording}, {name}:\n{wrong}");
    }
    let object = |id| opened.image.object_name(id).to_owned();
    let losses = report.loss.by_cause.iter();
    Some(losses.map(|loss| (loss.object().map_or_else(String::new, object), loss.count)).collect())
}

#[test]
fn a_library_at_the_address_of_another_one_has_its_own_code_and_functions() {
    check("case-plugins", &["uses", "first_entry", "first_middle", "second_entry"]);
}

#[test]
fn generated_code_is_what_a_jitdump_says() {
    if let Some(lost) = check_around("jit-dump") {
        assert_eq!(lost, []);
    }
}

#[test]
fn generated_code_that_nobody_knows_is_lost_and_not_guessed() {
    if let Some(lost) = check_around("jit-none") {
        assert_eq!(lost, [("//anon".to_owned(), STAYS)]);
    }
}

#[test]
fn generated_code_that_a_perf_map_names_is_lost_by_that_name() {
    if let Some(lost) = check_around("jit-map") {
        let [(object, count)] = &lost[..] else { panic!("{lost:?}") };
        assert!(object.starts_with("/tmp/perf-") && object.ends_with(".map"), "{object}");
        assert_eq!(*count, STAYS);
    }
}
