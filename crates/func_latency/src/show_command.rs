//! `show`: one call, opened.

use std::io::{BufWriter, Write, stdout};

use analyzer::{CallRow, FunctionReport, Request};
use anyhow::{Context, Result};

use crate::args::Format;
use crate::calls::Opened;
use crate::exit::{Exit, failure};
use crate::messages;
use crate::one_call::{self, CallKey, OpenedCall, Place};
use crate::printable::Printable;
use crate::recording;
use crate::render::image_names::ImageNames;
use crate::render::units::{counted, size};
use crate::render::{Names, tree};
use crate::row_file;
use crate::target::{self, Remarks};
use crate::tree_config::ShowConfig;

pub(crate) fn run(config: &ShowConfig) -> Result<Exit> {
    let calls = &config.calls;
    let decoder = calls.decoder.decoder()?;
    let file = recording::open(&calls.input)?;
    let recording = recording::read_timed(&file)?;
    let (image, schedule) = recording::load(&recording, calls.symfs.as_deref(), &calls.kernel);
    let opened = Opened {
        config: calls,
        recording: &recording,
        schedule: &schedule,
        image: &image,
        decoder: &*decoder,
    };
    opened.problems();
    let wanted = target::wanted(&image, calls, Remarks::Now)?;
    let [function] = wanted.as_slice() else {
        let message = format!("an id is of one function, and -f names {}", wanted.len());
        return Err(failure(Exit::Usage, message));
    };
    let names = ImageNames::new(&image, config.srcline);
    let function = function.function.id;
    let (key, twin) = match &config.rows {
        Some(rows) => row_file::find(rows, &names.function(function), config.id)?,
        None => {
            let request = Request { rows: true, ..opened.request(&wanted)? };
            let report = opened.report(&request);
            let rows = report.functions.first().map_or(&[][..], |f: &FunctionReport| &f.rows);
            of_rows(rows, config)?
        }
    };
    let place = Place { recording: &recording, schedule: &schedule, image: &image, workers: calls.workers };
    // What the other one remembers is about the rows: it has left out the calls inside.
    let decoder = calls.decoder.decoder()?;
    let Some(call) = one_call::open(place, &*decoder, function, &key, twin) else {
        let message = format!(
            "the recording has no call {} as the row says: is the row of this recording, and of this version?",
            config.id
        );
        return Err(failure(Exit::Usage, message));
    };
    if calls.verbose {
        let OpenedCall { bytes, attempts, .. } = call;
        messages::note(format!("{} of trace decoded, in {}", size(bytes), counted(attempts, "attempt")));
    }
    let view =
        tree::View { id: config.id, call: &call, names: &names, schedule: &schedule, limits: config.limits };
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
        let message =
            format!("no call {}: {} (report --rows has them)", config.id, counted(rows.len() as u64, "call"));
        return Err(failure(Exit::Nothing, message));
    };
    let key = CallKey::of(row);
    let twins = rows.iter().filter(|other| CallKey::of(other) == key && other.id < row.id);
    Ok((key, twins.count()))
}
