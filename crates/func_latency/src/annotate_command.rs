//! `annotate`: the lines or instructions of a function, with what its calls did at each.

use std::collections::HashMap;
use std::io::{BufWriter, Write, stdout};

use analyzer::ledger::{Groups, Slow};
use analyzer::{Analysis, CallId, CodeDetail, CodeRequest, OwnCode, Request};
use anyhow::{Context, Result};
use model::{FunctionId, FunctionLookup as _};

use crate::args::Format;
use crate::calls::{self, Opened};
use crate::exit::{Exit, failure};
use crate::explain_command;
use crate::explain_config::{AnnotateConfig, SlowCalls};
use crate::filter::Percentile;
use crate::listing::is_outside_of_filter;
use crate::listing::source_text::SourceText;
use crate::listing::{instructions, lines};
use crate::messages;
use crate::printable::Printable;
use crate::render::annotate::{self as rendered, AnnotateView};
use crate::render::image_names::ImageNames;
use crate::render::printable_names::NamesFor;
use crate::terminal::text_width;

/// The recording is decoded once with the function's own jumps; for `--slow` once more before that, for the
/// latencies, which say which calls are slow.
pub(crate) fn run(config: &AnnotateConfig) -> Result<Exit> {
    calls::open(&config.calls, Some("annotate"), |opened| {
        let function = opened.one_function("annotate")?;
        let request = opened.request()?;
        let chosen = config.slow.map(|slow| ComparedCalls::of(opened, &request, slow)).transpose()?;
        let groups = own_code(opened, &request, chosen.as_ref())?;
        if groups.iter().all(|group| group.calls.count == 0) {
            messages::warn("no call was seen from its entry to its end");
            return Ok(Exit::Nothing);
        }
        check_seen(opened, function, &groups)?;
        let listing = instructions::list(opened.image, listed(opened, function), &groups);
        let lines = lines::lines(opened.image, &listing);
        let by_lines = lines::are_known(&lines) && !(config.instructions && config.format == Format::Text);
        let source = config.source.clone().map(SourceText::below);
        let view = AnnotateView {
            names: &NamesFor { names: &ImageNames::new(opened.image, true), format: config.format },
            input: &config.calls.input.display().to_string(),
            function,
            listing: &listing,
            lines: by_lines.then_some(&lines),
            source: source.as_ref(),
            groups: match &chosen {
                None => rendered::Groups::All,
                Some(chosen) => rendered::Groups::SlowAndTypical(&chosen.asked),
            },
        };
        let mut out = BufWriter::new(stdout().lock());
        let written = match config.format {
            Format::Text => rendered::text::write(&mut Printable(&mut out), &view, text_width()),
            Format::Json => rendered::json::write(&mut out, &view),
        };
        written.and_then(|()| out.flush()).context("cannot write to stdout")?;
        Ok(Exit::Done)
    })
}

/// The function that is listed: of a region, that which it begins in.
fn listed(opened: &Opened<'_>, function: FunctionId) -> FunctionId {
    opened.image.region(function).and_then(|region| region.functions.first().copied()).unwrap_or(function)
}

/// # Errors
/// Only calls were seen, and not what they executed.
fn check_seen(opened: &Opened<'_>, function: FunctionId, groups: &[OwnCode]) -> Result<()> {
    if !is_outside_of_filter(opened.surroundings().has_ip_filter, groups) {
        return Ok(());
    }
    let name = opened.image.function_name(function);
    let message = format!(
        "the code of {name} is outside of the IP filter of this recording, so what it executed is not known: \
         record with -i -f '{name}', or without -i"
    );
    Err(failure(Exit::NotPossible, message))
}

/// The calls that are compared.
struct ComparedCalls {
    /// The group of each, slow ones first.
    groups: HashMap<CallId, usize>,
    /// What makes the slow ones slow, in words.
    asked: String,
}

impl ComparedCalls {
    fn of(opened: &Opened<'_>, request: &Request, slow: Percentile) -> Result<Self> {
        let report = opened.report(&Request { rows: true, ..request.clone() })?;
        let rows = report.functions.first().map_or(&[][..], |function| &function.rows);
        let groups = Groups::choose(rows, Slow::Percentile(slow.0)).map_err(explain_command::no_groups)?;
        let slow_calls = groups.slow.iter().map(|row| (row.id, 0));
        let typical = groups.typical.iter().map(|row| (row.id, 1));
        let asked = SlowCalls::From(slow).in_words(&groups);
        Ok(Self { groups: slow_calls.chain(typical).collect(), asked })
    }
}

/// What the calls of each group did in their own code.
fn own_code(opened: &Opened<'_>, request: &Request, chosen: Option<&ComparedCalls>) -> Result<Vec<OwnCode>> {
    let code = CodeRequest {
        detail: CodeDetail::Instructions,
        groups: if chosen.is_some() { 2 } else { 1 },
        group_of: Box::new(|row| match chosen {
            None => Some(0),
            Some(chosen) => chosen.groups.get(&row.id).copied(),
        }),
    };
    let mut analysis = Analysis::new(request, opened.surroundings()).with_code(code);
    opened.decode(&mut analysis)?;
    let (_, of_functions) = analysis.finish_with_code();
    Ok(of_functions.into_iter().next().unwrap_or_default())
}
