//! The parts of a recording ([`crate::plan_command`]), as text and JSON.

use std::io::{self, Write};

use decoder::ShareRange;
use model::{AuxOwner, Recording};
use serde_json::{Value, json};

use super::units::{counted, size};

/// Of the plan as JSON.
pub(crate) const SCHEMA: &str = "func_latency.plan/1";

/// The parts of a recording.
pub(crate) struct PartsPlan<'a> {
    /// Name of the recording's file.
    pub(crate) input: &'a str,
    /// The recording, and its name.
    pub(crate) recording: (&'a Recording<'a>, &'a str),
    /// Of trace.
    pub(crate) bytes: u64,
    /// Parts that are wanted.
    pub(crate) asked: u32,
    /// A smaller part is not worth it.
    pub(crate) part_bytes_min: u64,
    /// What each has.
    pub(crate) parts: Vec<Vec<ShareRange>>,
}

impl PartsPlan<'_> {
    /// Writes a line for each range.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let buffers = counted(self.recording.0.buffers.len() as u64, "buffer");
        let parts = counted(self.parts.len() as u64, "part");
        writeln!(out, "{}: {} of trace in {buffers}: {parts}", self.input, size(self.bytes))?;
        if (self.parts.len() as u64) < u64::from(self.asked) {
            let least = size(self.part_bytes_min);
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
        match self.recording.0.buffers.get(buffer).map(|buffer| buffer.owner) {
            Some(AuxOwner::Cpu(cpu)) => format!("CPU {}", cpu.0),
            Some(AuxOwner::Thread(tid)) => format!("thread {}", tid.0),
            None => String::new(),
        }
    }

    /// The plan as JSON.
    pub(crate) fn json(&self) -> Value {
        let range = |range: &ShareRange| {
            let &ShareRange { buffer, from, to, bytes } = range;
            let known = self.recording.0.buffers.get(buffer);
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
            "recording": self.recording.1,
            "aux_bytes": self.bytes,
            "asked": self.asked,
            "parts": (1..).zip(&self.parts).map(part).collect::<Vec<Value>>(),
        })
    }
}
