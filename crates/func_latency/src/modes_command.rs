//! `modes`: the ways that calls of a function go.

use std::io::{BufWriter, Write, stdout};

use analyzer::modes::ModesOfCalls;
use anyhow::{Context, Result};

use crate::args::Format;
use crate::exit::{Exit, failure};
use crate::explain_config::ModesConfig;
use crate::printable::Printable;
use crate::render::modes::{self, View};
use crate::report_command::text_width;
use crate::{messages, tree_commands};

pub(crate) fn run(config: &ModesConfig) -> Result<Exit> {
    tree_commands::with(&config.calls, |opened, wanted, names| {
        let [function] = wanted else {
            let message = format!("modes takes one function, and -f names {}", wanted.len());
            return Err(failure(Exit::Usage, message));
        };
        let mut found = ModesOfCalls::default();
        opened.trees(wanted, &mut found)?;
        let found = found.finish();
        if found.calls() == 0 {
            messages::warn("no call was seen from its entry to its end");
            return Ok(Exit::Nothing);
        }
        let input = config.calls.input.display().to_string();
        let view = View { names, input: &input, function: function.function.id, modes: &found };
        let mut out = BufWriter::new(stdout().lock());
        let written = match config.format {
            Format::Text => modes::write_text(&mut Printable(&mut out), &view, text_width()),
            Format::Json => modes::write_json(&mut out, &view),
        };
        written.and_then(|()| out.flush()).context("cannot write to stdout")?;
        Ok(Exit::Done)
    })
}
