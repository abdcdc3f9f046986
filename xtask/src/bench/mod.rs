//! `bench`: how fast we decode and report, and with how much memory, beside libipt, `perf script` and the
//! bare walk over the packets. All run here and now, one after the other; what counts are their ratios.

mod cases;
mod fleet;
mod in_process;
mod instructions;
mod measure;
mod runs;
mod whole_process;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::cargo;
use crate::extent;
use crate::fixtures::{self, Logs, Recording};
use crate::process::{self, Result};
use crate::stages::Outcome;
use crate::{civil, layout, setup};
use cases::{CASES, Case, Extent};

/// The stage of the tests that counts instructions.
pub(crate) use instructions::run as count_instructions;

/// What is built to be measured.
const BUILD: [&str; 6] =
    ["--package", "func_latency", "--package", "bench", "--features", "func_latency/libipt,bench/libipt"];

/// The long recording of `--fleet`, if no other size is given.
const FLEET_GB: u64 = 20;

/// `bench [--quick | NAME..] [--append] | --instructions | --fleet [GB]`: measures, prints, and with
/// `--append` adds the tables to docs/benchmarks.md.
pub(crate) fn run(arguments: &[&str]) -> Result {
    if arguments == ["--instructions"] {
        instructions::build()?;
        if let Outcome::Skipped(why) = instructions::run()? {
            println!("skipped: {why}");
        }
        return Ok(());
    }
    if let ["--fleet", gigabytes @ ..] = arguments {
        let gigabytes = match gigabytes {
            [] => Some(FLEET_GB),
            [number] => number.parse().ok(),
            _ => None,
        };
        return fleet::run(gigabytes.ok_or("bench: --fleet takes a number of GB")?);
    }
    let (options, names): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|word| word.starts_with("--"));
    if let Some(option) = options.iter().find(|option| !["--quick", "--append"].contains(option)) {
        return Err(format!("bench: do not know {option}"));
    }
    let cases = select(&names, options.contains(&"--quick"))?;
    let recordings: Vec<Recording> = cases.iter().copied().map(Case::recording).collect();
    let directory = make(&recordings, &BUILD)?;
    let title = title()?;
    println!("bench: {title}; load {}", load());
    let (mut decoders, mut programs) = (in_process::HEADER.to_owned(), whole_process::HEADER.to_owned());
    for case in cases {
        let data = directory.join(format!("{}.data", case.name));
        println!("bench: {}", case.name);
        if case.extent != Extent::Report {
            decoders += &in_process::row(case, &data)?;
        }
        programs += &whole_process::row(case, &data)?;
    }
    let section = format!("\n## {title}\n\nLoad at the end: {}.\n\n{decoders}\n{programs}", load());
    println!("{section}");
    if options.contains(&"--append") {
        append(&layout::root().join("docs/benchmarks.md"), &section)?;
    }
    Ok(())
}

fn select(names: &[&str], quick: bool) -> Result<Vec<&'static Case>> {
    if let Some(name) = names.iter().find(|name| CASES.iter().all(|case| case.name != **name)) {
        let all: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("bench: no case {name}; there are {}", all.join(", ")));
    }
    let wanted = |case: &&Case| match names {
        [] => case.extent == Extent::Quick || !quick,
        names => names.contains(&case.name),
    };
    Ok(CASES.iter().filter(wanted).collect())
}

/// Builds what `build` says, and makes the recordings; returns where they are. With
/// `FUNC_LATENCY_FIXTURES=DIR` they are those in DIR.
fn make(recordings: &[Recording], build: &[&str]) -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("FUNC_LATENCY_FIXTURES") {
        let mut command = cargo::command();
        command.args(["build", "--release", "--quiet"]).args(build);
        process::run(&mut command).map_err(process::perhaps_no_network)?;
        return Ok(PathBuf::from(directory));
    }
    setup::run(extent::Extent::Quick)?;
    fixtures::make(recordings, Logs::DropBig, build)?;
    Ok(layout::fixtures())
}

/// When and where is measured, and what.
fn title() -> Result<String> {
    Ok(format!("{}, {}, {}", civil::today(), civil::machine(), commit()?))
}

/// What is measured, as git names it.
fn commit() -> Result<String> {
    let mut git = std::process::Command::new("git");
    git.args(["describe", "--always", "--dirty", "--exclude=*"]).current_dir(layout::root());
    Ok(process::capture(&mut git)?.trim().to_owned())
}

/// The load in the last minute: a busy machine shows.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

fn append(file: &Path, section: &str) -> Result {
    let named = |e: std::io::Error| format!("{}: {e}", file.display());
    let mut file_out = fs::File::options().append(true).open(file).map_err(named)?;
    file_out.write_all(section.as_bytes()).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_takes_some_cases_and_names_take_others() {
        let names = |names: &[&str], quick| {
            select(names, quick).map(|cases| cases.iter().map(|case| case.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[], false).unwrap().len(), CASES.len());
        let quick = names(&[], true).unwrap();
        assert!(quick.contains(&"sq50") && !quick.contains(&"sq370"));
        assert_eq!(names(&["sq370"], true).unwrap(), ["sq370"]);
        assert!(names(&["sq"], false).unwrap_err().starts_with("bench: no case sq;"));
    }
}
