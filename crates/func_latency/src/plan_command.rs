//! `plan`: the parts that a recording is best analysed in.

use std::io::{self, BufWriter, Write, stdout};

use anyhow::{Context, Result};
use decoder::{DecodeOptions, ShareRange, shares};
use model::{AuxOwner, Recording};
use serde_json::{Value, json};

use crate::args::{Format, PlanArgs};
use crate::config::input_path;
use crate::exit::Exit;
use crate::printable::Printable;
use crate::render::units::{counted, size};
use crate::{recording, recording_id};

/// Of the plan as JSON.
pub(crate) const SCHEMA: &str = "func_latency.plan/1";

/// A smaller part costs more than it saves. Besides its trace it takes the sideband, the objects and the
/// clock's rate, up to 0.1 s of a processor: as much as some 4 MB of trace.
const PART_BYTES_MIN: u64 = 8 << 20;

pub(crate) fn run(args: PlanArgs) -> Result<Exit> {
    let input = input_path(args.input);
    let file = recording::open(&input)?;
    let recording = recording::read_decodable(&file)?;
    recording::warn_of_damage(&recording);
    let bytes = recording::aux_bytes(&recording);
    let most = u32::try_from(bytes / PART_BYTES_MIN).unwrap_or(u32::MAX).max(1);
    let plan = Plan {
        input: input.display().to_string(),
        recording: &recording,
        bytes,
        asked: args.parts,
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

struct Plan<'a> {
    input: String,
    recording: &'a Recording<'a>,
    /// Of trace.
    bytes: u64,
    /// Parts that are wanted.
    asked: u32,
    parts: Vec<Vec<ShareRange>>,
}

impl Plan<'_> {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let buffers = counted(self.recording.buffers.len() as u64, "buffer");
        let parts = counted(self.parts.len() as u64, "part");
        writeln!(out, "{}: {} of trace in {buffers}: {parts}", self.input, size(self.bytes))?;
        if (self.parts.len() as u64) < u64::from(self.asked) {
            let least = size(PART_BYTES_MIN);
            writeln!(out, "  {} are asked for; parts below {least} cost more than they save", self.asked)?;
        }
        writeln!(out, "{:>6} {:>12}  {:<16} {:>14} {:>14}", "part", "bytes", "buffer", "from", "to")?;
        for (number, ranges) in (1..).zip(&self.parts) {
            for range in ranges {
                let &ShareRange { buffer, from, to, bytes } = range;
                let (from, to) = (from.to_string(), to.to_string());
                writeln!(out, "{number:>6} {bytes:>12}  {:<16} {from:>14} {to:>14}", self.owner(buffer))?;
            }
            if ranges.is_empty() {
                writeln!(out, "{number:>6} {:>12}", 0)?;
            }
        }
        Ok(())
    }

    fn owner(&self, buffer: usize) -> String {
        match self.recording.buffers.get(buffer).map(|buffer| buffer.owner) {
            Some(AuxOwner::Cpu(cpu)) => format!("CPU {}", cpu.0),
            Some(AuxOwner::Thread(tid)) => format!("thread {}", tid.0),
            None => String::new(),
        }
    }

    fn json(&self) -> Value {
        let range = |range: &ShareRange| {
            let &ShareRange { buffer, from, to, bytes } = range;
            let known = self.recording.buffers.get(buffer);
            let (cpu, tid) = match known.map(|known| known.owner) {
                Some(AuxOwner::Cpu(cpu)) => (Some(cpu.0), None),
                Some(AuxOwner::Thread(tid)) => (None, Some(tid.0)),
                None => (None, None),
            };
            let index = known.map(|known| known.index);
            json!({"buffer": index, "cpu": cpu, "tid": tid, "from": from.0, "to": to.0, "bytes": bytes})
        };
        let part = |(number, ranges): (u32, &Vec<ShareRange>)| {
            let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
            let ranges: Vec<Value> = ranges.iter().map(range).collect();
            json!({"part": number, "bytes": bytes, "ranges": ranges})
        };
        json!({
            "schema": SCHEMA,
            "input": self.input,
            "recording": recording_id::of(self.recording),
            "aux_bytes": self.bytes,
            "asked": self.asked,
            "parts": (1..).zip(&self.parts).map(part).collect::<Vec<Value>>(),
        })
    }
}
