//! The full-trace report and the IP-filter report of the same run agree on every call that both can see
//! ([`truth_tests::agreement`]): every recording with an IP filter is held against that of the same run
//! without it. The comparison of random programs is the same (`random_programs::check`).

use std::path::{Path, PathBuf};

use analyzer::Report;
use decoder::DecodeOptions;
use tracegen::Options;
use truth_tests::agreement::{Agreement, FilteredCode, Side, compare};
use truth_tests::{Fixture, Opened, check_all, fixtures_of, hard_cases, pipeline};

/// Options that leave a run's times as they are, but not what is seen of it.
fn is_of_packets(option: &str) -> bool {
    option.starts_with("--filter=") || ["--pgd-hides-jcc", "--noretcomp"].contains(&option)
}

/// The options of the same recording without its IP filter, in alphabetical order. With the kernel's
/// scheduler in the filter kernel code ran.
fn without_filter(options: &str) -> Vec<String> {
    let option = |option: &str| match option.starts_with("--kernel-filter=") {
        true => "--kernel".to_owned(),
        false => option.to_owned(),
    };
    let options = options.split_whitespace().filter(|option| !is_of_packets(option));
    let mut options: Vec<String> = options.map(option).collect();
    options.sort_unstable();
    options
}

/// The recording of the same run without the filter: one of the matrix, or one that is made in `dir`.
fn whole_recording(filtered: &Fixture, dir: &Path) -> PathBuf {
    let options = without_filter(&filtered.options);
    let is_twin = |other: &Fixture| other.is_whole() && without_filter(&other.options) == options;
    if let Some(twin) = fixtures_of(&filtered.log).into_iter().find(is_twin) {
        return twin.data;
    }
    let [data, truth] = ["data", "truth"].map(|end| dir.join(format!("whole.{end}")));
    let log = filtered.output.with_extension("");
    tracegen::encode(&log, &data, &truth, &Options::from_args(&options).unwrap()).unwrap();
    data
}

fn analyse(opened: &Opened<'_>, symbols: &[String]) -> Report {
    let ids: Vec<_> = symbols.iter().map(|symbol| opened.function(symbol).unwrap()).collect();
    opened.analyse(&ids, &DecodeOptions { workers: 2, ..DecodeOptions::default() })
}

fn check(fixture: &Fixture) -> bool {
    let filter = fixture.options.split_whitespace().filter_map(|option| option.strip_prefix("--filter="));
    let filter: Vec<String> = filter.map(str::to_owned).collect();
    if filter.is_empty() {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    let whole_data = whole_recording(fixture, dir.path());
    let [whole_file, filtered_file] = [&whole_data, &fixture.data].map(|data| pipeline::open(data).unwrap());
    let whole = Opened::new(&whole_file).unwrap();
    let kernel = fixture.kernels_without_holes().pop().unwrap_or_default();
    let filtered = Opened::with_kernel(&filtered_file, &kernel).unwrap();
    let code = FilteredCode::new(&whole, &filter).unwrap();
    let symbols: Vec<String> = filter.into_iter().filter(|symbol| !symbol.ends_with(".cold")).collect();
    let [of_whole, of_filtered] = [&whole, &filtered].map(|opened| analyse(opened, &symbols));
    let mut agreement = Agreement::default();
    for (symbol, (one, other)) in symbols.iter().zip(of_whole.functions.iter().zip(&of_filtered.functions)) {
        let one = Side { opened: &whole, function: one };
        let other = Side { opened: &filtered, function: other };
        agreement += compare(symbol, one, other, &code);
    }
    println!("{}: {agreement}\n{}", fixture.name, agreement.wrong);
    agreement.wrong.is_empty()
}

#[test]
fn demo() {
    check_all("demo", check);
}

#[test]
fn calls() {
    check_all("calls", check);
}

#[test]
fn sqlite_small() {
    check_all("sq1", check);
}

#[test]
fn cases() {
    hard_cases().iter().for_each(|log| check_all(log, check));
}
