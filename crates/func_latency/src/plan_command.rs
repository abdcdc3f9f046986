//! `plan`: the parts that a recording is best analysed in.

use std::io::{BufWriter, Write, stdout};

use anyhow::{Context, Result};
use decoder::{DecodeOptions, shares};

use crate::args::{Format, PlanArgs};
use crate::config::input_path;
use crate::exit::Exit;
use crate::printable::Printable;
use crate::render::plan::PartsPlan;
use crate::{recording, recording_id};

/// A smaller part costs more than it saves. Besides its trace it takes the recording's records, the objects
/// and the clock's rate: a hundredth of a second of a processor and more, as much as 1 MB of trace.
const PART_BYTES_MIN: u64 = 8_000_000;

pub(crate) fn run(args: PlanArgs) -> Result<Exit> {
    let input = input_path(args.input);
    let file = recording::open(&input)?;
    let recording = recording::read_decodable(&file)?;
    recording::warn_of_damage(&recording);
    let bytes = recording::aux_bytes(&recording);
    let most = u32::try_from(bytes / PART_BYTES_MIN).unwrap_or(u32::MAX).max(1);
    let plan = PartsPlan {
        input: &input.display().to_string(),
        recording: (&recording, &recording_id::of(&recording)),
        bytes,
        asked: args.parts,
        part_bytes_min: PART_BYTES_MIN,
        parts: shares(&recording, DecodeOptions::default().segment_bytes, args.parts.min(most)),
    };
    recording::check_uncut()?;
    let mut out = BufWriter::new(stdout().lock());
    let written = match args.format {
        Format::Text => plan.write_text(&mut Printable(&mut out)),
        Format::Json => writeln!(out, "{}", plan.json()),
    };
    written.and_then(|()| out.flush()).context("cannot write to stdout")?;
    Ok(Exit::Done)
}
