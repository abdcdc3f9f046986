//! `dump`: each item of a recording on a line, stable for diffing. Nothing is collected: lines are written as
//! they are found.

mod branches;
mod packets;
mod sideband;

use std::io::{BufWriter, Write, stdout};

use anyhow::{Context, Result};
use model::{Recording, Schedule};

use crate::config::{DumpConfig, DumpKind};
use crate::exit::Exit;
use crate::filter::TidSet;
use crate::printable::Printable;
use crate::{recording, threads};

/// Prints what the configuration says to stdout.
///
/// # Errors
/// The recording cannot be read, or stdout not be written.
pub fn run(config: &DumpConfig) -> Result<Exit> {
    let decoder = config.decoder.decoder()?;
    let file = recording::open(&config.input)?;
    let mut out = Printable(BufWriter::with_capacity(1 << 16, stdout().lock()));
    match config.what {
        DumpKind::Packets => {
            let recording = recording::read(&file)?;
            check_threads(&recording, config)?;
            packets::dump(&mut out, &recording, config)
        }
        DumpKind::Branches => {
            let recording = recording::read_decodable(&file)?;
            recording::warn_of_damage(&recording);
            if config.window.is_some() {
                recording::check_times(&recording, "--ti")?;
            }
            check_threads(&recording, config)?;
            branches::dump(&mut out, &recording, config, decoder)
        }
        // Also of recordings without trace.
        DumpKind::Sideband => sideband::dump(&mut out, &file, config)?,
    }
    .and_then(|()| out.flush())
    .context("cannot write to stdout")?;
    Ok(Exit::Done)
}

/// # Errors
/// None of the threads that were asked for is there.
fn check_threads(recording: &Recording<'_>, config: &DumpConfig) -> Result<()> {
    if config.tids == TidSet::default() {
        return Ok(());
    }
    threads::check(&config.tids, &threads::known(recording, &Schedule::new(&recording.sideband)))
}
