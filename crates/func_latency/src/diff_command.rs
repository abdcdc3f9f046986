//! `diff`: what makes the calls of a function take longer, or less, in one recording than in another.

use std::collections::HashMap;
use std::io::{BufWriter, Write, stdout};
use std::path::PathBuf;

use analyzer::ledger::{AllCalls, OffCpuPart, Shift, Side};
use analyzer::samples::RunsComparison;
use analyzer::{ChildKind, CountersAsked, Ledger, Node};
use anyhow::{Context, Result};
use model::FunctionId;

use crate::args::{DiffArgs, Format};
use crate::calls::{self, Opened};
use crate::config::CallsConfig;
use crate::exit::{Exit, failure};
use crate::explain_config::DiffConfig;
use crate::printable::{Printable, printable};
use crate::render::diff::{self, Difference, Recorded};
use crate::render::image_names::ImageNames;
use crate::render::ledger::{Callee, LedgerView};
use crate::render::names::callee_name;
use crate::terminal::text_width;
use crate::{compare_command, diff_groups, runs_there};

/// Rows have no trees: of them there are figures only.
pub(crate) fn run(args: DiffArgs) -> Result<Exit> {
    let DiffArgs { base, these, more, by, fail, calls, format } = args;
    if let Some(by) = by {
        let paths: Vec<PathBuf> = std::iter::once(base).chain(these).chain(more).collect();
        let [base, these] = diff_groups::sides(&paths, &by, &calls.functions)?;
        return compare_command::tell(&base, &these, format, fail.fail_above());
    }
    let these = these.context("there is no B")?;
    if [&base, &these].into_iter().any(|path| runs_there::holds_runs(path)) {
        return compare_command::of_paths([&base, &these], &calls, format, fail.fail_above());
    }
    of_recordings(&DiffConfig::new([base, these], &calls, format, fail.fail_above())?)
}

fn of_recordings(config: &DiffConfig) -> Result<Exit> {
    // Both are opened before either is decoded: what becomes of off-CPU time depends on both.
    let of_both = |base: &Opened<'_>, these: &Opened<'_>| Gathered::of(config, base, these);
    let within_base = |base: &Opened<'_>| {
        Ok(named(&config.these, calls::open(&config.these, Some("diff"), |these| Ok(of_both(base, these)))))
    };
    let Gathered { ledger, callees, base, these } =
        named(&config.base, calls::open(&config.base, Some("diff"), within_base))???;
    let Some(comparison) = ledger.compare() else {
        let without = [&base, &these].into_iter().filter(|recorded| recorded.calls.latencies_ns.is_empty());
        let inputs: Vec<&str> = without.map(|recorded| recorded.input.as_str()).collect();
        let message = format!(
            "no call was seen from entry to end in {}: there is nothing to compare",
            inputs.join(" and in ")
        );
        return Err(failure(Exit::Nothing, message));
    };
    let callee = |path: usize| match ledger.paths().get(path).and_then(|path| callees.known.get(path.key)) {
        Some((kind, name)) => {
            let name = if config.format == Format::Text { printable(name) } else { name.clone() };
            Callee { name, kind: kind.name(), ..Callee::default() }
        }
        None => Callee::default(),
    };
    let figures = RunsComparison::of(&[&these.calls.latencies_ns], &[&base.calls.latencies_ns]);
    let difference = Difference {
        shift: Shift::of(&these.calls.latencies_ns, &base.calls.latencies_ns),
        comparison: &figures,
        fail_above: config.fail_above,
        ledger: &LedgerView::new(&ledger, comparison, callee),
        function: &callee(0).name,
        these: &these,
        base: &base,
    };
    let mut out = BufWriter::new(stdout().lock());
    let written = match config.format {
        Format::Text => diff::write_text(&mut Printable(&mut out), &difference, text_width()),
        Format::Json => diff::write_json(&mut out, &difference),
    };
    written.and_then(|()| out.flush()).context("cannot write to stdout")?;
    Ok(compare_command::verdict(&figures, config.fail_above))
}

/// Callees of both recordings: they have names in common, not ids, and not the places that they are called
/// from.
#[derive(Default)]
struct CommonCallees {
    known: Vec<(ChildKind, String)>,
    places: HashMap<(ChildKind, String), usize>,
}

impl CommonCallees {
    fn place(&mut self, callee: (ChildKind, String)) -> usize {
        let next = self.known.len();
        let place = *self.places.entry(callee.clone()).or_insert(next);
        if place == next {
            self.known.push(callee);
        }
        place
    }
}

/// The calls of both recordings.
struct Gathered {
    ledger: Ledger<usize>,
    callees: CommonCallees,
    base: Recorded,
    these: Recorded,
}

impl Gathered {
    fn of(config: &DiffConfig, base: &Opened<'_>, these: &Opened<'_>) -> Result<Self> {
        let (mut ledger, mut callees) = (Ledger::default(), CommonCallees::default());
        let no_off_cpu = [base, these].map(|opened| opened.surroundings().no_off_cpu());
        let is_apart = no_off_cpu == [None; 2];
        let is_counted = [base, these].iter().all(|opened| opened.counters_of_work().is_some());
        let mut add = |config, opened: &Opened<'_>, side, no_off_cpu| {
            let off_cpu = if is_apart { OffCpuPart::Apart(opened.schedule) } else { OffCpuPart::Inside };
            let counters = opened.counters_of_work().filter(|_| is_counted);
            let added = add(opened, (side, off_cpu), counters, &mut ledger, &mut callees);
            named(config, added.map(|recorded| Recorded { no_off_cpu, ..recorded }))
        };
        let base = add(&config.base, base, Side::Base, no_off_cpu[0])?;
        let these = add(&config.these, these, Side::These, no_off_cpu[1])?;
        Ok(Self { ledger, callees, base, these })
    }
}

/// Adds the calls of a recording to the ledger.
fn add(
    opened: &Opened<'_>,
    (side, off_cpu): (Side, OffCpuPart<'_>),
    counters: Option<CountersAsked>,
    ledger: &mut Ledger<usize>,
    callees: &mut CommonCallees,
) -> Result<Recorded> {
    opened.one_function("diff")?;
    let names = ImageNames::new(opened.image, false);
    let mut places: HashMap<(ChildKind, FunctionId), usize> = HashMap::new();
    let mut calls = AllCalls::new(ledger, side, off_cpu, |node: &Node| {
        let name = || callee_name(&names, node.kind, node.function);
        *places.entry((node.kind, node.function)).or_insert_with(|| callees.place((node.kind, name())))
    });
    opened.counted_trees(&mut calls, counters)?;
    let input = opened.config.input.display().to_string();
    Ok(Recorded { input, calls: calls.finish(), no_off_cpu: None })
}

/// An error with the recording that it is about, if it does not name it.
fn named<T>(config: &CallsConfig, result: Result<T>) -> Result<T> {
    let input = config.input.display().to_string();
    result.map_err(|error| if format!("{error:#}").contains(&input) { error } else { error.context(input) })
}
