//! `modes`: the ways that calls of a function go.

use std::io::{BufWriter, Write, stdout};

use analyzer::branch_path::OwnBranches;
use analyzer::modes::{Modes, ModesOfCalls, Ways};
use analyzer::{CallRow, CallTree, TreeSink, Trees};
use anyhow::{Context, Result};

use crate::args::Format;
use crate::calls::{self, Opened};
use crate::exit::Exit;
use crate::explain_config::ModesConfig;
use crate::printable::Printable;
use crate::render::image_names::ImageNames;
use crate::render::modes::{self, AlikeCalls, ModesView};
use crate::render::printable_names::NamesFor;
use crate::terminal::text_width;
use crate::{messages, one_call};

/// Calls that have their branches looked at, at most: the first, in the order of their ends.
const BRANCHES_OF: usize = 50_000;

/// The recording is decoded twice: for the trees of all calls, which say which way each went, and for the
/// branches that each took in the function's own code.
pub(crate) fn run(config: &ModesConfig) -> Result<Exit> {
    calls::open(&config.calls, Some("modes"), |opened| {
        let function = opened.one_function("modes")?;
        let mut found = WayOfEach::default();
        opened.trees(&mut found)?;
        let WayOfEach { modes: found, calls } = found;
        let found = found.finish();
        if found.calls() == 0 {
            messages::warn("no call was seen from its entry to its end");
            return Ok(Exit::Nothing);
        }
        let kinds = kinds(opened, &found, &calls)?;
        let input = config.calls.input.display().to_string();
        let names = NamesFor { names: &ImageNames::new(opened.image, true), format: config.format };
        let view = ModesView { names: &names, input: &input, function, modes: &found };
        let mut out = BufWriter::new(stdout().lock());
        let written = match config.format {
            Format::Text => modes::write_text(&mut Printable(&mut out), &view, &kinds, text_width()),
            Format::Json => modes::write_json(&mut out, &view, &kinds),
        };
        written.and_then(|()| out.flush()).context("cannot write to stdout")?;
        Ok(Exit::Done)
    })
}

/// Sorts calls by their ways, and keeps which way each went.
#[derive(Default)]
struct WayOfEach {
    modes: ModesOfCalls,
    calls: Vec<(CallRow, Ways)>,
}

impl TreeSink for WayOfEach {
    fn wanted(&self) -> Trees {
        self.modes.wanted()
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        let ways = self.modes.add(call, tree).filter(|_| self.calls.len() < BRANCHES_OF);
        self.calls.extend(ways.map(|ways| (*call, ways)));
    }

    fn too_deep(&mut self, call: &CallRow) {
        self.modes.too_deep(call);
    }
}

/// The kinds of calls of each way, by the branches that they took.
fn kinds(opened: &Opened<'_>, modes: &Modes, calls: &[(CallRow, Ways)]) -> Result<Vec<Vec<AlikeCalls>>> {
    let rows: Vec<CallRow> = calls.iter().map(|(row, _)| *row).collect();
    let branches = one_call::own_branches(opened.place(), &rows)?;
    let mut by_mode: Vec<Vec<(CallRow, &OwnBranches)>> = vec![Vec::new(); modes.modes.len()];
    for ((row, ways), branches) in calls.iter().zip(&branches) {
        let of_mode = modes.of(ways).and_then(|at| by_mode.get_mut(at));
        if let (Some(of_mode), Some(branches)) = (of_mode, branches) {
            of_mode.push((*row, branches));
        }
    }
    Ok(by_mode.iter().map(|calls| AlikeCalls::of_calls(calls)).collect())
}
