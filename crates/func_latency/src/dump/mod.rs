//! `dump`: what is in a recording, one line each, stable for diffing.  Nothing is collected: lines are written as
//! they are found.

mod branches;
mod packets;
mod sideband;

use std::io::{BufWriter, Write, stdout};

use anyhow::{Context, Result};

use crate::config::{DumpConfig, DumpKind};
use crate::exit::Exit;
use crate::printable::Printable;
use crate::recording;

/// Prints what the configuration says to stdout.
///
/// # Errors
/// The recording cannot be read, or stdout not be written.
pub fn run(config: &DumpConfig) -> Result<Exit> {
    let decoder = config.decoder.decoder()?;
    let file = recording::open(&config.input)?;
    let mut out = Printable(BufWriter::with_capacity(1 << 16, stdout().lock()));
    match config.what {
        DumpKind::Packets => packets::dump(&mut out, &recording::read(&file)?, config),
        DumpKind::Branches => branches::dump(&mut out, &recording::read_timed(&file)?, config, decoder),
        // Also of recordings without trace.
        DumpKind::Sideband => sideband::dump(&mut out, &file, config)?,
    }
    .and_then(|()| out.flush())
    .context("cannot write to stdout")?;
    Ok(Exit::Done)
}
