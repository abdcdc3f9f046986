//! `modes`: the ways that calls of a function go.

use std::io::{BufWriter, Write, stdout};

use analyzer::modes::ModesOfCalls;
use anyhow::{Context, Result};

use crate::args::Format;
use crate::exit::Exit;
use crate::explain_config::ModesConfig;
use crate::printable::{NamesFor, Printable};
use crate::render::image_names::ImageNames;
use crate::render::modes::{self, View};
use crate::report_command::text_width;
use crate::{calls, messages};

pub(crate) fn run(config: &ModesConfig) -> Result<Exit> {
    calls::open(&config.calls, Some("modes"), |opened| {
        let function = opened.one_function("modes")?;
        let mut found = ModesOfCalls::default();
        opened.trees(&mut found)?;
        let found = found.finish();
        if found.calls() == 0 {
            messages::warn("no call was seen from its entry to its end");
            return Ok(Exit::Nothing);
        }
        let input = config.calls.input.display().to_string();
        let names = NamesFor { names: &ImageNames::new(opened.image, false), format: config.format };
        let view = View { names: &names, input: &input, function, modes: &found };
        let mut out = BufWriter::new(stdout().lock());
        let written = match config.format {
            Format::Text => modes::write_text(&mut Printable(&mut out), &view, text_width()),
            Format::Json => modes::write_json(&mut out, &view),
        };
        written.and_then(|()| out.flush()).context("cannot write to stdout")?;
        Ok(Exit::Done)
    })
}
