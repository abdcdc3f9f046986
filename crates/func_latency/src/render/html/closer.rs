//! A closer look at slow calls, as a page has it: the ledger that tells more work from slower work, and the
//! function's lines, slow calls beside typical ones.
//!
//! The ledger's cells are text, made as those of `explain` are. The lines are numbers: their rows are those
//! of [`annotate`], and the page does the shares.

use analyzer::ledger::Difference;
use model::FunctionId;
use serde::Serialize;

use crate::listing::instructions::Listing;
use crate::listing::lines::Line;
use crate::listing::{Spent, Whole};
use crate::render::View;
use crate::render::annotate::rows::{AnnotateRow, CodeRow, rows};
use crate::render::annotate::{self, Groups};
use crate::render::explain::ExplainedGroup;
use crate::render::ledger::split::{cells, sentence};
use crate::render::ledger::text::cause;
use crate::render::ledger::{LedgerView, difference, mean_within};
use crate::render::names::callee_name;
use crate::render::units::{counted, duration};

/// Rows of the ledger that are listed one by one.
const ROWS: usize = 20;

/// What a closer look at the calls of a function found.
#[derive(Debug)]
pub struct Closer {
    /// What makes the slow calls slow, in words; `None`: there are no slow and typical calls.
    pub asked: Option<String>,
    /// The slow calls against the typical ones, or why there are none.
    pub part: Result<ExplainedGroup, String>,
    /// More instructions are told from slower ones.
    pub is_split: bool,
    /// What slow calls, typical ones and all others did at each instruction, and on each line, where lines
    /// are known; or why that is not known.
    pub code: Result<(Listing, Option<Vec<Line>>), &'static str>,
}

/// Slow calls against typical ones.
#[derive(Serialize)]
pub(super) struct Ledger {
    /// Why there is none.
    unknown: Option<String>,
    /// Which calls are compared, and what the cause is, in words.
    sentences: Vec<String>,
    /// Cells in the order of [`Self::titles`]; the last row is the sum.
    rows: Vec<Vec<String>>,
    titles: Vec<&'static str>,
    notes: Vec<&'static str>,
}

/// The function's lines, or its instructions.
#[derive(Serialize)]
pub(super) struct Lines {
    /// Why there are none.
    unknown: Option<&'static str>,
    /// What makes the slow calls slow, in words; null: slow and typical calls are not told apart.
    asked: Option<String>,
    /// `line` or `instruction`.
    what: &'static str,
    /// Slow calls, typical ones, and all others.
    groups: Vec<CloserGroup>,
    rows: Vec<LineRow>,
    notes: Vec<String>,
}

/// A group of calls.
#[derive(Serialize)]
struct CloserGroup {
    calls: u64,
    latency_ns: u64,
    self_ns: u64,
    self_error_ns: u64,
    inside_ns: u64,
    elsewhere_ns: u64,
}

#[derive(Serialize)]
struct LineRow {
    name: String,
    depth: usize,
    /// Callees with most time; empty: there are none.
    calls: String,
    /// By group: executions (null: not known), own time, and time in what it calls. Empty: it is no code.
    of: Vec<(Option<u64>, u64, u64)>,
}

impl Closer {
    /// The ledger and the lines of a function.
    pub(super) fn pack(&self, view: &View<'_>, function: FunctionId) -> (Ledger, Lines) {
        let ledger = match &self.part {
            Ok(part) => self.ledger(part),
            Err(why) => Ledger::unknown(why.clone()),
        };
        let lines = match &self.code {
            Ok((listing, lines)) => self.lines(view, function, listing, lines.as_deref()),
            Err(why) => Lines::unknown(why),
        };
        (ledger, lines)
    }

    fn ledger(&self, part: &ExplainedGroup) -> Ledger {
        let mut notes = Vec::new();
        let rows = &part.ledger.comparison.rows;
        if !self.is_split {
            notes.push(
                "More instructions are not told from slower ones: time off the CPU is not known, or code \
                 outside of an IP filter is not counted, or the decoder does not count.",
            );
        } else if rows.iter().any(|row| row.split.is_some_and(|split| split.lower_frequency_ns.is_none())) {
            notes.push("Without CYC packets a lower frequency is among the slower instructions.");
        }
        let mut titles = vec!["where", "ns"];
        if self.is_split {
            titles.extend([
                "more instructions",
                "slower instructions",
                "lower frequency",
                "instructions",
                "cycles each",
            ]);
        }
        titles.push("line");
        let rows = ledger_rows(&part.ledger, titles.len());
        Ledger { unknown: None, sentences: self.sentences(part), rows, titles, notes }
    }

    fn sentences(&self, part: &ExplainedGroup) -> Vec<String> {
        let comparison = &part.ledger.comparison;
        let mean = |sum, error, calls| mean_within(sum, error, calls);
        let (sums, errors, calls) = (comparison.sums_ns, comparison.errors_ns, comparison.calls);
        let asked = self.asked.as_deref().unwrap_or_default();
        let mut sentences = vec![format!(
            "{} ({asked}), mean {}, against {}, mean {}",
            counted(calls.0, "slow call"),
            mean(sums.0, errors.0, calls.0),
            counted(calls.1, "typical one"),
            mean(sums.1, errors.1, calls.1),
        )];
        if !part.outlying.is_so() {
            let no_cause = "No cause: the slow calls are no outliers. The rows say where they differ from typical \
                            ones, which may be chance.";
            sentences.push(no_cause.to_owned());
        } else if let Some((what, of)) = cause(&part.ledger) {
            sentences.push(format!("Cause: {what} ({of})"));
            let nature = part.ledger.cause.as_ref().and_then(|cause| cause.nature);
            sentences.extend(nature.map(|nature| sentence(&nature, part.is_only_slower())));
        }
        sentences
    }

    fn lines(
        &self,
        view: &View<'_>,
        function: FunctionId,
        listing: &Listing,
        lines: Option<&[Line]>,
    ) -> Lines {
        let listed = annotate::AnnotateView {
            names: view.names,
            input: view.input,
            function,
            listing,
            lines,
            source: None,
            groups: Groups::All,
        };
        let row = |row: &AnnotateRow<'_>| match row {
            AnnotateRow::Heading(name) => LineRow::text(name.clone()),
            AnnotateRow::LeftOut(rows) => LineRow::text(listed.left_out(*rows)),
            AnnotateRow::Code(code) => LineRow::of(code),
        };
        let mut notes = vec![listed.exactness()];
        if listing.nowhere.iter().any(|spent| spent.inside_ns > 0) {
            let ns = listing.nowhere.iter().map(|spent| spent.inside_ns).fold(0, u64::saturating_add);
            let callees = listing.nowhere_callees.keys();
            let callees: Vec<String> =
                callees.map(|(kind, function)| callee_name(view.names, *kind, *function)).collect();
            notes.push(format!("At no known place: {} in {}.", duration(ns), callees.join(", ")));
        }
        Lines {
            unknown: None,
            asked: self.asked.clone(),
            what: listed.row_kind(),
            groups: listing.groups.iter().map(CloserGroup::of).collect(),
            rows: rows(&listed).iter().map(row).collect(),
            notes,
        }
    }
}

/// The rows of a ledger, those beyond [`ROWS`] as one, and their sum.
fn ledger_rows(view: &LedgerView, columns: usize) -> Vec<Vec<String>> {
    let comparison = &view.comparison;
    let mut by_size: Vec<_> = comparison.rows.iter().zip(&view.callees).collect();
    by_size.sort_by_key(|(row, _)| std::cmp::Reverse(row.difference.ns.unsigned_abs()));
    let row = |name: String, of: Difference, middle: Vec<String>, line: String| {
        let mut cells = vec![name, difference(of)];
        cells.extend(middle);
        cells.resize_with(columns - 1, String::new);
        cells.push(line);
        cells
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (of, callee) in by_size.iter().take(ROWS) {
        let parts = of.split.as_ref().map(|split| cells(split, comparison.calls).to_vec());
        let none = || vec!["–".to_owned(); columns - 3];
        let parts = parts.unwrap_or_else(none);
        rows.push(row(callee.name.clone(), of.difference, parts, callee.short_place()));
    }
    let others = by_size.get(ROWS..).unwrap_or_default();
    if !others.is_empty() {
        let mut rest = Difference::default();
        for (of, _) in others {
            rest.ns = rest.ns.saturating_add(of.difference.ns);
            rest.error_ns = rest.error_ns.saturating_add(of.difference.error_ns);
        }
        let name = format!("[{}]", counted(others.len() as u64, "other row"));
        rows.push(row(name, rest, Vec::new(), String::new()));
    }
    let name = "[difference]".to_owned();
    rows.push(row(name, comparison.difference, Vec::new(), String::new()));
    rows
}

impl Ledger {
    fn unknown(why: String) -> Self {
        let (sentences, rows, titles, notes) = Default::default();
        Self { unknown: Some(why), sentences, rows, titles, notes }
    }
}

impl Lines {
    fn unknown(why: &'static str) -> Self {
        let (groups, rows, notes) = Default::default();
        Self { unknown: Some(why), asked: None, what: "line", groups, rows, notes }
    }
}

impl CloserGroup {
    fn of(whole: &Whole) -> Self {
        let Whole { calls, latency_ns, own_ns, own_error_ns, inside_ns, elsewhere_ns, .. } = *whole;
        Self { calls, latency_ns, self_ns: own_ns, self_error_ns: own_error_ns, inside_ns, elsewhere_ns }
    }
}

impl LineRow {
    /// A row that is no code.
    fn text(name: String) -> Self {
        Self { name, depth: 0, calls: String::new(), of: Vec::new() }
    }

    fn of(code: &CodeRow<'_>) -> Self {
        let of = |spent: &Spent| (code.is_own.then_some(spent.executions), spent.own_ns, spent.inside_ns);
        Self {
            name: code.name.clone(),
            depth: code.depth,
            calls: code.calls.clone(),
            of: code.spent.iter().map(of).collect(),
        }
    }
}
