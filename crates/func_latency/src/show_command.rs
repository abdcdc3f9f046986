//! `show`: one call, opened.

use std::io::{BufWriter, Write, stdout};

use analyzer::ledger::ChoiceError;
use analyzer::{CallRow, FunctionReport, Request};
use anyhow::{Context, Result};
use model::FunctionLookup as _;

use crate::args::Format;
use crate::calls::{self, Opened};
use crate::exit::{Exit, failure};
use crate::messages;
use crate::one_call::{self, CallKey, OpenedCall};
use crate::printable::Printable;
use crate::render::image_names::ImageNames;
use crate::render::printable_names::NamesFor;
use crate::render::tree::Below;
use crate::render::units::{counted, size};
use crate::render::{Names, tree};
use crate::row_file;
use crate::tree_config::ShowConfig;

pub(crate) fn run(config: &ShowConfig) -> Result<Exit> {
    calls::open(&config.calls, Some("show"), |opened| show(config, opened))
}

fn show(config: &ShowConfig, opened: &Opened<'_>) -> Result<Exit> {
    let Opened { schedule, image, .. } = *opened;
    let function = opened.one_function("show")?;
    let names = ImageNames::new(image, config.srcline);
    let (key, twin) = match &config.rows {
        Some(rows) => row_file::find(rows, &names.function(function), config.id)?,
        None => {
            let report = opened.report(&Request { rows: true, ..opened.request()? })?;
            let rows = report.functions.first().map_or(&[][..], |f: &FunctionReport| &f.rows);
            of_rows(rows, config)?
        }
    };
    let Some(call) = one_call::open(opened.place(), function, &key, twin)? else {
        let message = format!(
            "the recording has no call {} as the row says: is the row of this recording, and of this version?",
            config.id
        );
        return Err(failure(Exit::Usage, message));
    };
    if config.calls.verbose {
        let OpenedCall { bytes, attempts, .. } = call;
        messages::note(format!("{} of trace decoded, in {}", size(bytes), counted(attempts, "attempt")));
    }
    let names = NamesFor { names: &names, format: config.format };
    let callers = call.tree.callers().iter().filter(|_| image.is_of_kernel(function));
    let below: Vec<Below> =
        callers.map(|id| Below { name: names.function(*id), is_kernel: image.is_of_kernel(*id) }).collect();
    let limits = config.limits;
    let OpenedCall { row, tree, bytes: decoded_bytes, .. } = &call;
    let view = tree::TreeView {
        id: config.id,
        row,
        tree,
        decoded_bytes: *decoded_bytes,
        names: &names,
        schedule,
        limits,
        below: &below,
    };
    let mut out = BufWriter::new(stdout().lock());
    let written = match config.format {
        Format::Text => tree::write_text(&mut Printable(&mut out), &view),
        Format::Json => tree::write_json(&mut out, &view),
    };
    written.and_then(|()| out.flush()).context("cannot write to stdout")?;
    Ok(Exit::Done)
}

/// The call's key, among the rows of its function.
fn of_rows(rows: &[CallRow], config: &ShowConfig) -> Result<(CallKey, usize)> {
    let Some(row) = rows.iter().find(|row| row.id == config.id) else {
        return Err(failure(Exit::Nothing, ChoiceError::NoSuchCall(config.id).to_string()));
    };
    let key = CallKey::of(row);
    let twins = rows.iter().filter(|other| CallKey::of(other) == key && other.id < row.id);
    Ok((key, twins.count()))
}
