//! `random_programs OUT [--programs N] [--seed S]`: see `cargo xtask help`.

use std::path::Path;
use std::process::ExitCode;

use random_programs::soak::{Timers, soak};
use tracegen::run::{build_plugin, default_cache};

/// Programs of which there is a line of progress.
const STEP: usize = 100;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let value = arguments.iter().position(|word| word == name).and_then(|i| arguments.get(i + 1));
        value.and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let Some(out) = arguments.first() else {
        eprintln!("random_programs OUT [--programs N] [--seed S]");
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
    let seeds: Vec<u64> = (first..first.saturating_add(count)).collect();
    let mut totals = random_programs::soak::Totals::default();
    for some in seeds.chunks(STEP) {
        let more = soak(some, Timers::Run, &plugin, Path::new(out));
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
