//! How tight the bounds of the decoder's times are: `time_bounds [NAME..]` prints, for recordings of
//! `fixtures/matrix.txt`, the table of `docs/accuracy.md`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::verify::{EventVerifier, Histogram, Verdict};
use truth_tests::{Fixture, Opened, fixture, pipeline};

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    match table(&names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("time_bounds: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the table; false, with the first on stderr, if a true time is outside of its bounds.
fn table(names: &[String]) -> Result<bool, Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    let quantiles = "p50 | p99 | p99.9 | max";
    writeln!(out, "| recording | width {quantiles} | error {quantiles} | outside | clock errors |")?;
    writeln!(out, "|---|{}", "---|".repeat(10))?;
    let mut right = true;
    for fixture in names.iter().filter_map(|name| fixture(name)) {
        let (verdict, clock_errors) = verify(&fixture)?;
        let outside: u64 = verdict.threads.iter().map(|t| t.time_violations).sum();
        if !verdict.agrees() || !verdict.times_agree() {
            right = false;
            eprintln!("{}:\n{verdict}", fixture.name);
        }
        let (widths, errors) = (columns(&verdict.widths), columns(&verdict.errors));
        writeln!(out, "| `{}` | {widths} | {errors} | {outside} | {clock_errors} |", fixture.name)?;
    }
    Ok(right)
}

fn verify(fixture: &Fixture) -> Result<(Verdict, u64), Box<dyn std::error::Error>> {
    let truth = File::load(&fixture.truth)?;
    let file = pipeline::open(&fixture.data)?;
    let opened = Opened::new(&file)?;
    let mut verifier = EventVerifier::new(&truth, None, opened.kernel);
    let options = DecodeOptions { workers: 2, all_branches: true, ..DecodeOptions::default() };
    let stats = opened.decode(&options, &mut verifier);
    Ok((verifier.finish(), stats.clock_errors))
}

fn columns(times: &Histogram) -> String {
    let quantiles = [500_000, 990_000, 999_000].map(|q| times.quantile(q).to_string());
    format!("{} | {}", quantiles.join(" | "), times.max())
}
