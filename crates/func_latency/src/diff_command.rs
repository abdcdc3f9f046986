//! `diff`: what makes the calls of a function take longer, or less, in one recording than in another.

use std::collections::HashMap;
use std::io::{BufWriter, Write, stdout};

use analyzer::ledger::{AllCalls, Shift, Side};
use analyzer::{ChildKind, Ledger, Node};
use anyhow::{Context, Result};
use model::FunctionId;

use crate::args::Format;
use crate::calls;
use crate::config::CallsConfig;
use crate::exit::{Exit, failure};
use crate::explain_config::DiffConfig;
use crate::printable::{Printable, printable};
use crate::render::diff::{self, Difference, Recorded};
use crate::render::image_names::ImageNames;
use crate::render::ledger::{Callee, LedgerView};
use crate::render::names::callee_name;
use crate::report_command::text_width;

pub(crate) fn run(config: &DiffConfig) -> Result<Exit> {
    let mut callees = Callees::default();
    let mut ledger = Ledger::default();
    let base = add(&config.base, Side::Base, &mut ledger, &mut callees)?;
    let these = add(&config.these, Side::These, &mut ledger, &mut callees)?;
    let Some(comparison) = ledger.compare() else {
        let without = [&base, &these].into_iter().filter(|recorded| recorded.latencies_ns.is_empty());
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
    let difference = Difference {
        shift: Shift::of(&these.latencies_ns, &base.latencies_ns),
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
    Ok(Exit::Done)
}

/// Callees of both recordings: they have names in common, not ids, and not the places that they are called from.
#[derive(Default)]
struct Callees {
    known: Vec<(ChildKind, String)>,
    places: HashMap<(ChildKind, String), usize>,
}

impl Callees {
    fn place(&mut self, callee: (ChildKind, String)) -> usize {
        let next = self.known.len();
        let place = *self.places.entry(callee.clone()).or_insert(next);
        if place == next {
            self.known.push(callee);
        }
        place
    }
}

/// Adds the calls of a recording to the ledger.
fn add(
    config: &CallsConfig,
    side: Side,
    ledger: &mut Ledger<usize>,
    callees: &mut Callees,
) -> Result<Recorded> {
    let input = config.input.display().to_string();
    let recorded = calls::open(config, |opened| {
        opened.one_function("diff")?;
        let names = ImageNames::new(opened.image, false);
        let mut places: HashMap<(ChildKind, FunctionId), usize> = HashMap::new();
        let mut calls = AllCalls::new(ledger, side, opened.schedule, |node: &Node| {
            let name = || callee_name(&names, node.kind, node.function);
            *places.entry((node.kind, node.function)).or_insert_with(|| callees.place((node.kind, name())))
        });
        opened.trees(&mut calls)?;
        let (latencies_ns, left_out) = calls.finish();
        Ok(Recorded { input: input.clone(), latencies_ns, left_out })
    });
    // What cannot be read is named already.
    recorded.map_err(|error| if format!("{error:#}").contains(&input) { error } else { error.context(input) })
}
