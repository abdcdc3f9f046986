//! `explain`: why the slow calls of a function were slow.

use std::io::{BufWriter, Write, stdout};

use analyzer::ledger::{ChoiceError, Groups, LedgerOfCalls, Slow};
use analyzer::{CallRow, ChildKey, LatencyRange, Ledger, Request};
#[cfg(feature = "bpf")]
use analyzer::{Report, ledger::ledger_of_rows};
use anyhow::{Context, Result};
use image::Image;
use model::{FunctionId, NoOffCpu};

use crate::args::Format;
use crate::calls::{self, Opened};
use crate::exit::{Exit, failure};
use crate::explain_config::{ExplainConfig, SlowCalls};
#[cfg(feature = "bpf")]
use crate::messages;
use crate::printable::{NamesFor, Printable};
use crate::render::explain::{self as rendered, Branches, Explanation};
use crate::render::image_names::ImageNames;
use crate::render::ledger::LedgerView;
use crate::render::units::grouped;
use crate::report_command::text_width;
use crate::{explain_open, one_call};

/// Typical calls whose branches are compared with those of a slow one.
const TWINS: usize = 8;

/// The recording is decoded twice: for the latencies, which say which calls are slow and which are typical,
/// and for the trees of all calls, whose variance is shared out. Of the trace around a few calls all branches
/// are decoded.
pub(crate) fn run(config: &ExplainConfig) -> Result<Exit> {
    calls::open(&config.calls, Some("explain"), |opened| explain(opened, config.slow, config.format))?;
    Ok(Exit::Done)
}

/// Explains the slowest calls, below a report.
pub(crate) fn slowest(opened: &Opened<'_>) -> Result<()> {
    blank_line()?;
    explain(opened, SlowCalls::USUAL, Format::Text)
}

/// The same of calls whose direct callees the report knows, and whose branches nobody does.
#[cfg(feature = "bpf")]
pub(crate) fn slowest_of_rows(report: &Report, image: &Image, input: &str) -> Result<()> {
    let function = calls::one("explain", &report.functions)?;
    if explain_open::has_open_calls_only(function) {
        messages::note(
            "--explain: no call was seen from entry to end; the report has what open calls were seen to do",
        );
        return Ok(());
    }
    blank_line()?;
    // Of calls that began while no child was probed it is not known where their time went.
    let explained = function.rows.iter().filter(|row| function.has_children_of(row));
    let explained: Vec<CallRow> = explained.copied().collect();
    let groups = Groups::choose(&explained, of_args(SlowCalls::USUAL)).map_err(no_groups)?;
    let ledger = ledger_of_rows(&groups, function);
    let no_off_cpu = report.trace.no_off_cpu;
    let subject = Subject { image, input, function: function.id, slow: SlowCalls::USUAL, groups, no_off_cpu };
    subject.write(&ledger, None, Format::Text)
}

fn blank_line() -> Result<()> {
    writeln!(stdout()).context("cannot write to stdout")
}

fn explain(opened: &Opened<'_>, slow: SlowCalls, format: Format) -> Result<()> {
    let function = opened.one_function("explain")?;
    let report = opened.report(&Request { rows: true, ..opened.request()? })?;
    let of_function = report.functions.first();
    if let Some(open) = of_function.filter(|f| explain_open::has_open_calls_only(f) && !slow.is_one_call()) {
        return explain_open::explain(opened, &report, open, format);
    }
    let rows = of_function.map_or(&[][..], |function| &function.rows);
    let groups = Groups::choose(rows, of_args(slow)).map_err(no_groups)?;

    let mut ledger = LedgerOfCalls::new(&groups, opened.schedule);
    opened.trees(&mut ledger)?;
    let compared = compared(&groups);
    let paths =
        compared.iter().map(|row| one_call::branches(opened.place(), row)).collect::<Result<Vec<_>>>()?;
    let input = opened.config.input.display().to_string();
    let no_off_cpu = report.trace.no_off_cpu;
    let subject = Subject { image: opened.image, input: &input, function, slow, groups, no_off_cpu };
    subject.write(&ledger.finish(), Branches::of(&compared, &paths), format)
}

/// Which calls are explained.
struct Subject<'a> {
    image: &'a Image,
    input: &'a str,
    function: FunctionId,
    slow: SlowCalls,
    groups: Groups,
    no_off_cpu: Option<NoOffCpu>,
}

impl Subject<'_> {
    fn write(&self, ledger: &Ledger<ChildKey>, parting: Option<Branches>, format: Format) -> Result<()> {
        let Some(comparison) = ledger.compare() else { return Err(no_groups(ChoiceError::NoCalls)) };
        let names = NamesFor { names: &ImageNames::new(self.image, true), format };
        let explanation = Explanation {
            names: &names,
            input: self.input,
            function: self.function,
            asked: &asked(self.slow, &self.groups),
            groups: &self.groups,
            ledger: &LedgerView::new(ledger, comparison, |path| rendered::callee(&names, ledger, path)),
            no_off_cpu: self.no_off_cpu,
            parting,
        };
        write(format, &explanation).context("cannot write to stdout")
    }
}

/// A slow call, which is in the middle of the slow ones, and typical calls that are the nearest to the
/// median, of the same caller if there are any.
fn compared(groups: &Groups) -> Vec<CallRow> {
    let Some(slow) = groups.slow.get(groups.slow.len() / 2) else { return Vec::new() };
    let is_its = |row: &&CallRow| (row.caller, row.site) == (slow.caller, slow.site);
    let of_caller: Vec<CallRow> = groups.typical.iter().filter(is_its).take(TWINS).copied().collect();
    let twins =
        if of_caller.is_empty() { groups.typical.iter().take(TWINS).copied().collect() } else { of_caller };
    [vec![*slow], twins].concat()
}

fn no_groups(error: ChoiceError) -> anyhow::Error {
    let exit = match error {
        ChoiceError::NoCalls
        | ChoiceError::NoOthers
        | ChoiceError::NoSlowCalls
        | ChoiceError::NoSuchCall(_) => Exit::Nothing,
        ChoiceError::NotWhole(..) | ChoiceError::TooDeep(_) => Exit::Usage,
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
        Format::Text => rendered::text::write(&mut Printable(&mut out), explanation, text_width())?,
        Format::Json => rendered::json::write(&mut out, explanation)?,
    }
    out.flush()
}
