//! `top`: the functions that are in a recording, to choose from.

use std::io::{BufWriter, Write, stdout};

use analyzer::Request;
use anyhow::{Context, Result};

use crate::args::Format;
use crate::exit::Exit;
use crate::printable::{Printable, printable};
use crate::render::image_names::ImageNames;
use crate::render::printable_names::NamesFor;
use crate::render::top::{self, TopView};
use crate::terminal::text_width;
use crate::top_config::TopConfig;
use crate::{calls, messages, record_command};

/// Lists the functions of a recording, which is made first if processes are named and no file.
pub(crate) fn run(config: TopConfig) -> Result<Exit> {
    let TopConfig { calls, record, by, table_rows, format } = config;
    if let Some(record) = record {
        record_command::record(record)?;
    }
    calls::open(&calls, None, |opened| {
        // Sums of each: memory grows with the functions and their different latencies, not with the calls.
        let request = Request { functions: opened.image.functions().collect(), ..opened.request()? };
        let report = opened.report(&request)?;
        let names = NamesFor { names: &ImageNames::new(opened.image, false), format };
        let input = calls.input.display().to_string();
        let view = TopView { report: &report, names: &names, input: &printable(&input), by, table_rows };
        let mut out = BufWriter::new(stdout().lock());
        let written = match format {
            Format::Text => top::write_text(&mut Printable(&mut out), &view, text_width()),
            Format::Json => top::write_json(&mut out, &view),
        };
        written.and_then(|()| out.flush()).context("cannot write to stdout")?;
        if view.is_empty() {
            messages::warn(format!("{input}: no call of any function was seen"));
            return Ok(Exit::Nothing);
        }
        Ok(Exit::Done)
    })
}
