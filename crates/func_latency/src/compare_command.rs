//! `compare`: two commands in turns.  `diff` of rows: two sets of runs that were made before.

use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use analyzer::samples::{Missing, RunsComparison, SamplesOf};
use anyhow::{Context, Result};
use recorder::Pmu;

use crate::args::{BackendChoice, CallsArgs, CompareArgs, Format, RecordArgs};
use crate::exit::{Exit, failure};
use crate::printable::Printable;
use crate::render::compare::{self, Compared, FailAbove, Side};
use crate::render::units::counted;
use crate::runs_made::{Made, RowsDirectory, Runner, make, read_made};
use crate::shell_line::program_of;
use crate::terminal::text_width;
use crate::{messages, runs_there};

pub(crate) fn run(args: CompareArgs) -> Result<Exit> {
    let CompareArgs { repeat, fail, record } = args;
    let [line_a, line_b] = record.program.as_slice() else {
        let message = "compare takes two lines of a shell: compare -f FUNC -- 'CMD A' 'CMD B'";
        return Err(failure(Exit::Usage, message));
    };
    let fail_above = fail.fail_above();
    check_runs(usize::from(repeat.runs), fail_above)?;
    let rows = RowsDirectory::new(record.save.as_deref())?;
    let (rows_a, rows_b) = (rows.within("a")?, rows.within("b")?);
    let of = |line: &str| -> Result<RecordArgs> {
        let words = program_of(line).into_iter().map(|word| word.into_string());
        let program = words.collect::<Result<_, _>>().map_err(|_| failure(Exit::Usage, "no text"))?;
        Ok(RecordArgs { program, ..record.clone() })
    };
    let runners = [
        Runner { args: of(line_a)?, name: "A", rows: &rows_a },
        Runner { args: of(line_b)?, name: "B", rows: &rows_b },
    ];
    runners.iter().for_each(warn_of_shell);
    let made = make(&runners, repeat)?;
    let side = |line: &String, rows: &Path| {
        let functions = read_made(rows, repeat, made, "compare")?;
        Ok::<_, anyhow::Error>(Side { name: line.clone(), runs: runs_there::one("compare", functions)? })
    };
    let (base, these) = (side(line_a, &rows_a)?, side(line_b, &rows_b)?);
    let exit = tell(&base, &these, record.query.format, fail_above)?;
    if fail_above.is_some() && !passes(exit, made) {
        if exit == Exit::Done {
            messages::warn(
                "--fail-above: runs were interrupted, and those that were made do not pass for all",
            );
        }
        return Ok(Exit::Nothing);
    }
    Ok(exit)
}

/// Whether runs pass when `--fail-above` says `verdict`: a gate that was interrupted has not been passed.
const fn passes(verdict: Exit, made: Made) -> bool {
    matches!((verdict, made), (Exit::Done, Made::All))
}

/// Uprobes are placed where the program that is started begins, which is the shell then.
fn warn_of_shell(Runner { args, name, .. }: &Runner<'_>) {
    let is_shell = args.program.first().is_some_and(|word| word == "sh");
    let by_probes = args.probes.backend != Some(BackendChoice::Pt) && Pmu::discover("/sys".as_ref()).is_err();
    if is_shell && by_probes {
        messages::warn(format!(
            "{name} takes a shell, and uprobes look for the function in that: a program with its arguments and quotes takes none"
        ));
    }
}

/// So few runs can never fail.
fn check_runs(runs: usize, fail_above: Option<FailAbove>) -> Result<()> {
    let one_call: &[u64] = &[1];
    let runs_of_one = vec![one_call; runs];
    let can_tell = RunsComparison::of(&runs_of_one, &runs_of_one);
    match fail_above.and_then(|asked| can_tell.figure(asked.figure)).map(|change| change.change) {
        Some(Err(Missing::Runs(needed))) => {
            let message =
                format!("--fail-above: {runs} runs of each can never tell; -r {needed} or more can");
            Err(failure(Exit::Usage, message))
        }
        _ => Ok(()),
    }
}

/// Two sets of runs that were made before.
pub(crate) fn of_paths(
    [base, these]: [&Path; 2],
    calls: &CallsArgs,
    format: Format,
    fail_above: Option<FailAbove>,
) -> Result<Exit> {
    let side = |path: &Path| {
        let functions = runs_there::read(&[path.to_owned()], calls, "diff")?;
        let name = path.display().to_string();
        Ok::<_, anyhow::Error>(Side { name, runs: runs_there::one("diff", functions)? })
    };
    let (base, these) = (side(base)?, side(these)?);
    if base.runs.function != these.runs.function {
        messages::note(format!("{} is compared with {}", these.runs.function, base.runs.function));
    }
    tell(&base, &these, format, fail_above)
}

/// Prints the comparison of A and B.
///
/// # Errors
/// It cannot be written.
pub(crate) fn tell(base: &Side, these: &Side, format: Format, fail_above: Option<FailAbove>) -> Result<Exit> {
    let comparison = RunsComparison::of(&these.runs.latencies(), &base.runs.latencies());
    let runs = base.runs.runs.len().max(these.runs.runs.len());
    if comparison.samples == SamplesOf::Runs && runs > analyzer::samples::SAMPLES_MAX {
        let most = analyzer::samples::SAMPLES_MAX as u64;
        messages::note(format!("intervals are those of the first {} of each", counted(most, "run")));
    }
    let compared = Compared { base, these, comparison: &comparison, fail_above };
    let mut out = BufWriter::new(stdout().lock());
    let written = match format {
        Format::Text => compare::write_text(&mut Printable(&mut out), &compared, text_width()),
        Format::Json => compare::write_json(&mut out, &compared),
    };
    written.and_then(|()| out.flush()).context("cannot write to stdout")?;
    Ok(verdict(&comparison, fail_above))
}

/// How a comparison ends; where it could not be told, that is said.
pub(crate) fn verdict(comparison: &RunsComparison, fail_above: Option<FailAbove>) -> Exit {
    let Some(fail_above) = fail_above else { return Exit::Done };
    if let Some(why) = fail_above.untold(comparison) {
        let figure = fail_above.figure.name();
        messages::warn(format!("--fail-above of {figure} cannot be told: {figure} {why}"));
    }
    if fail_above.fails(comparison) { Exit::Nothing } else { Exit::Done }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_runs_do_not_pass() {
        assert!(passes(Exit::Done, Made::All) && !passes(Exit::Nothing, Made::All));
        assert!(!passes(Exit::Done, Made::Interrupted { whole: 9 }));
    }
}
