//! `explain`: why the slow calls of a function were slow.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufWriter, Write, stdout};

use analyzer::branch_path::BranchPath;
use analyzer::ledger::{ChoiceError, Clusters, Groups, LedgerOfCalls};
use analyzer::{CallId, CallRow, ChildKey, Ledger, Request};
#[cfg(feature = "bpf")]
use analyzer::{Report, ledger::ledger_of_rows};
use anyhow::{Context, Result};
use image::Image;
use model::{FunctionId, NoOffCpu};

use crate::args::Format;
use crate::calls::{self, Opened};
use crate::exit::{Exit, failure};
use crate::explain_config::{ExplainConfig, SlowCalls};
use crate::filter::CallNumber;
#[cfg(feature = "bpf")]
use crate::messages;
use crate::printable::Printable;
use crate::render::explain::{self as rendered, Branches, ExplainedGroup, Explanation};
use crate::render::image_names::ImageNames;
use crate::render::ledger::text::cause;
use crate::render::printable_names::NamesFor;
use crate::terminal::text_width;
use crate::{explain_open, one_call};

/// Typical calls with branches that are compared with those of a slow one.
const TWINS: usize = 8;

/// The recording is decoded twice: for the latencies, which say which calls are slow and which are typical,
/// and for the trees of all calls, to share out their variance. Of the trace around a few calls all branches
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

/// Explains the slowest calls of a report that knows their direct callees, but not their branches.
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
    let groups = Groups::choose(&explained, SlowCalls::USUAL.choice()).map_err(no_groups)?;
    let (ledger, clusters) = ledger_of_rows(&groups, function);
    let no_off_cpu = report.trace.no_off_cpu;
    let subject = ExplainedCalls {
        image,
        input,
        function: function.id,
        slow: SlowCalls::USUAL,
        groups: &groups,
        no_off_cpu,
    };
    subject.write(&ledger, &clusters, |_| Ok(None), Format::Text)
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
    let groups = Groups::choose(rows, slow.choice()).map_err(no_groups)?;

    let mut ledger = LedgerOfCalls::new(&groups, opened.schedule);
    opened.counted_trees(&mut ledger, opened.counters_of_work())?;
    let (ledger, clusters) = ledger.finish();
    let input = opened.config.input.display().to_string();
    let no_off_cpu = report.trace.no_off_cpu;
    let subject =
        ExplainedCalls { image: opened.image, input: &input, function, slow, groups: &groups, no_off_cpu };
    let mut known = BTreeMap::new();
    subject.write(&ledger, &clusters, |calls| branches(opened, calls, &groups.typical, &mut known), format)
}

/// Why a call was slow, in a sentence; `Err`: why that is not known.
pub(crate) fn cause_of(opened: &Opened<'_>, rows: &[CallRow], id: CallId) -> Result<Result<String, String>> {
    let groups = match Groups::choose(rows, SlowCalls::One(CallNumber(id)).choice()) {
        Ok(groups) => groups,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut ledger = LedgerOfCalls::new(&groups, opened.schedule);
    opened.counted_trees(&mut ledger, opened.counters_of_work())?;
    let (ledger, _) = ledger.finish();
    let names = NamesFor { names: &ImageNames::new(opened.image, true), format: Format::Text };
    let part = ExplainedGroup::new(&names, &groups.slow, groups.outlying, &ledger, None);
    let cause = part.and_then(|part| cause(&part.ledger));
    Ok(cause.map(|(what, of)| format!("{what} ({of})")).ok_or_else(|| "nothing in it stands out".to_owned()))
}

/// The branches of one of these slow calls against those of typical ones; `known`: of calls that were opened
/// before.
fn branches(
    opened: &Opened<'_>,
    slow: &[CallRow],
    typical: &[CallRow],
    known: &mut BTreeMap<CallId, Option<BranchPath>>,
) -> Result<Option<Branches>> {
    let compared = compared(slow, typical);
    for row in &compared {
        if let Entry::Vacant(unknown) = known.entry(row.id) {
            unknown.insert(one_call::branches(opened.place(), row)?);
        }
    }
    let paths: Vec<Option<&BranchPath>> =
        compared.iter().map(|row| known.get(&row.id).and_then(Option::as_ref)).collect();
    Ok(Branches::of(&compared, &paths))
}

/// Which calls are explained.
struct ExplainedCalls<'a> {
    image: &'a Image,
    input: &'a str,
    function: FunctionId,
    slow: SlowCalls,
    groups: &'a Groups,
    no_off_cpu: Option<NoOffCpu>,
}

impl ExplainedCalls<'_> {
    /// `branches` opens one of some slow calls.
    fn write(
        &self,
        ledger: &Ledger<ChildKey>,
        clusters: &Clusters<ChildKey>,
        mut branches: impl FnMut(&[CallRow]) -> Result<Option<Branches>>,
        format: Format,
    ) -> Result<()> {
        let names = NamesFor { names: &ImageNames::new(self.image, true), format };
        let part = |calls: &[CallRow], outlying, ledger: &Ledger<ChildKey>, branches| {
            let part = ExplainedGroup::new(&names, calls, outlying, ledger, branches);
            part.ok_or_else(|| no_groups(ChoiceError::NoCalls))
        };
        let of_clusters = clusters.clusters.iter().enumerate().map(|(at, cluster)| {
            let is_listed = at < rendered::CLUSTERS;
            let branches = if is_listed { branches(&cluster.calls)? } else { None };
            part(&cluster.calls, cluster.outlying, &cluster.ledger, branches)
        });
        let of_clusters: Vec<ExplainedGroup> = of_clusters.collect::<Result<_>>()?;
        let of_most = match of_clusters.first() {
            Some(cluster) => cluster.branches.clone(),
            None => branches(&self.groups.slow)?,
        };
        let explanation = Explanation {
            names: &names,
            input: self.input,
            function: self.function,
            asked: &self.slow.in_words(self.groups),
            groups: self.groups,
            whole: &part(&self.groups.slow, self.groups.outlying, ledger, of_most)?,
            clusters: &of_clusters,
            others: &clusters.others,
            no_off_cpu: self.no_off_cpu,
        };
        write(format, &explanation).context("cannot write to stdout")
    }
}

/// A slow call, which is in the middle of the slow ones, and typical calls that are the nearest to the
/// median, of the same caller if there are any.
fn compared(slow: &[CallRow], typical: &[CallRow]) -> Vec<CallRow> {
    let Some(slow) = slow.get(slow.len() / 2) else { return Vec::new() };
    let is_its = |row: &&CallRow| row.from == slow.from;
    let of_caller: Vec<CallRow> = typical.iter().filter(is_its).take(TWINS).copied().collect();
    let twins = if of_caller.is_empty() { typical.iter().take(TWINS).copied().collect() } else { of_caller };
    [vec![*slow], twins].concat()
}

pub(crate) fn no_groups(error: ChoiceError) -> anyhow::Error {
    let exit = match error {
        ChoiceError::NoCalls
        | ChoiceError::NoOthers
        | ChoiceError::NoSlowCalls
        | ChoiceError::NoSuchCall(_) => Exit::Nothing,
        ChoiceError::NotWhole(..) | ChoiceError::TooDeep(_) => Exit::Usage,
    };
    failure(exit, error.to_string())
}

fn write(format: Format, explanation: &Explanation<'_>) -> std::io::Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    match format {
        Format::Text => rendered::text::write(&mut Printable(&mut out), explanation, text_width())?,
        Format::Json => rendered::json::write(&mut out, explanation)?,
    }
    out.flush()
}
