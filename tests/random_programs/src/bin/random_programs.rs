//! `random_programs OUT [--programs N] [--seed S]`: see `cargo xtask help`. With `--kept` those whose files
//! are in `OUT` are checked once more, without a new run; with `--no-timers` they run as in the tests of
//! every change.

use std::path::Path;
use std::process::ExitCode;

use random_programs::soak::{Runs, soak};
use tracegen::run::{build_plugin, default_cache};

/// Programs of which there is a line of progress.
const STEP: usize = 100;

/// The seeds that have files in a directory.
fn kept(out: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut seeds: Vec<u64> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    seeds.sort_unstable();
    seeds
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let value = arguments.iter().position(|word| word == name).and_then(|i| arguments.get(i + 1));
        value.and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let Some(out) = arguments.first().filter(|word| !word.starts_with('-')) else {
        eprintln!("random_programs OUT [--programs N] [--seed S] [--kept | --no-timers]");
        return ExitCode::from(2);
    };
    let plugin = match build_plugin(&default_cache()) {
        Ok(plugin) => plugin,
        Err(error) => {
            eprintln!("random_programs: {error}");
            return ExitCode::from(2);
        }
    };
    let (first, count) = (number("--seed", 1), number("--programs", 2000));
    let is_given = |name: &str| arguments.iter().any(|word| word == name);
    let runs = match (is_given("--kept"), is_given("--no-timers")) {
        (true, _) => Runs::Kept,
        (false, true) => Runs::NoTimers,
        (false, false) => Runs::Timers,
    };
    let seeds = match runs {
        Runs::Kept => kept(Path::new(out)),
        _ => (first..first.saturating_add(count)).collect(),
    };
    let mut totals = random_programs::soak::Totals::default();
    for some in seeds.chunks(STEP) {
        let more = soak(some, runs, &plugin, Path::new(out));
        for (seed, wrong) in &more.wrong {
            println!(
                "seed {seed}, in {out}/{seed}; again: cargo xtask random --programs 1 --seed {seed}\n{wrong}"
            );
        }
        totals += more;
        println!("{totals}");
    }
    ExitCode::from(u8::from(!totals.wrong.is_empty()))
}
