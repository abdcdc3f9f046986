//! `explain`: why the slow calls of a function were slow.

use std::io::{BufWriter, Write, stdout};

use analyzer::ledger::{ChoiceError, Groups, LedgerOfCalls, Slow};
use analyzer::{Analysis, FunctionReport, LatencyRange, Report, Request, Surroundings};
use anyhow::{Context, Result};
use model::FunctionId;

use crate::args::Format;
use crate::config::{ExplainConfig, SlowCalls};
use crate::exit::{Exit, failure};
use crate::printable::Printable;
use crate::render::explain::{self, Explanation};
use crate::render::image_names::ImageNames;
use crate::render::units::grouped;
use crate::report_command::{decode, problems, request, seen, text_width};
use crate::target::{self, Remarks};
use crate::{messages, recording};

/// The recording is decoded twice: once for the latencies, which say which calls are slow and which are typical, and once
/// for the trees of those calls.
pub(crate) fn run(config: &ExplainConfig) -> Result<Exit> {
    let ExplainConfig { report: of_report, slow } = config;
    // A decoder serves one sink: what it remembers is about what that asks for.
    let (of_rows, of_trees) = (of_report.decoder.decoder()?, of_report.decoder.decoder()?);
    let file = recording::open(&of_report.input)?;
    let recording = recording::read_timed(&file)?;
    let (image, schedule) = recording::load(&recording, of_report.symfs.as_deref(), &of_report.kernel);
    let _said = problems(&recording, &image);
    let wanted = target::wanted(&image, of_report, Remarks::Now)?;
    let all = Request { rows: true, ..request(of_report, &recording, &schedule, &image, &wanted)? };
    let around = Surroundings::of(&recording, &schedule, &image);
    let names = ImageNames::new(&image, true);

    let mut analysis = Analysis::new(&all, around);
    decode(of_report, &recording, &schedule, &image, &*of_rows, &mut analysis);
    let function = the_one(analysis.finish(), &|id| image.function_name(id))?;
    let groups = Groups::choose(&function.rows, of_args(*slow)).map_err(no_groups)?;

    let mut ledger = LedgerOfCalls::new(&groups, &schedule);
    let one = Request { functions: vec![function.id], rows: false, ..all };
    let mut analysis = Analysis::with_trees(&one, around, &mut ledger);
    decode(of_report, &recording, &schedule, &image, &*of_trees, &mut analysis);
    let _same = analysis.finish();
    let ledger = ledger.finish();
    let Some(comparison) = ledger.compare() else { return Err(no_groups(ChoiceError::NoCalls)) };
    let explanation = Explanation {
        names: &names,
        input: &of_report.input.display().to_string(),
        function: function.id,
        asked: &asked(*slow, &groups),
        groups: &groups,
        ledger: &ledger,
        comparison: &comparison,
    };
    write(of_report.format, &explanation).context("cannot write to stdout")?;
    Ok(Exit::Done)
}

/// The function that was called.
fn the_one(report: Report, name: &dyn Fn(FunctionId) -> String) -> Result<FunctionReport> {
    let called = report.functions.into_iter().filter(|function| seen(&function.calls));
    let mut called: Vec<FunctionReport> = called.collect();
    match (called.pop(), called.is_empty()) {
        (Some(function), true) => Ok(function),
        (None, _) => Err(no_groups(ChoiceError::NoCalls)),
        (Some(last), false) => {
            called.push(last);
            let names: Vec<String> = called.iter().map(|function| name(function.id)).collect();
            let message = format!("explain takes one function; -f names {}", messages::list(&names));
            Err(failure(Exit::Usage, message))
        }
    }
}

fn no_groups(error: ChoiceError) -> anyhow::Error {
    let exit = match error {
        ChoiceError::NoCalls | ChoiceError::NoOthers | ChoiceError::NoSlowCalls => Exit::Nothing,
        ChoiceError::NoSuchCall(_) | ChoiceError::NotWhole(..) => Exit::Usage,
    };
    failure(exit, error.to_string())
}

fn of_args(slow: SlowCalls) -> Slow {
    match slow {
        SlowCalls::From(percentile) => Slow::Percentile(percentile.0),
        SlowCalls::Of(range) => Slow::Latency(LatencyRange { min_ns: range.min, max_ns: range.max }),
        SlowCalls::One(call) => Slow::Call(call.0),
    }
}

/// What makes these calls the slow ones, in words.
fn asked(slow: SlowCalls, groups: &Groups) -> String {
    match slow {
        SlowCalls::From(percentile) => {
            let least = groups.slow.last().map_or(0, |row| row.latency_ns);
            format!("{percentile}: {} ns or more", grouped(least))
        }
        SlowCalls::Of(range) => format!("of {range}"),
        SlowCalls::One(call) => format!("id {}", call.0),
    }
}

fn write(format: Format, explanation: &Explanation<'_>) -> std::io::Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    match format {
        Format::Text => explain::text::write(&mut Printable(&mut out), explanation, text_width())?,
        Format::Json => explain::json::write(&mut out, explanation)?,
    }
    out.flush()
}
