//! Control transfers and gaps: `tid time ~error kind from -> to`; without times `tid - ~- kind from -> to`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use decoder::{Context, DecodeOptions, SegmentDecoder};
use image::Image;
use model::{
    AsyncCause, Avma, BranchEvent, EndKind, EventSink, EventTime, FunctionId, FunctionLookup, Gap, GapCause,
    Pid, Recording, SpaceId, Tid, TraceEvent, Transfer,
};

use crate::config::DumpConfig;
use crate::printable::printable;
use crate::progress::Progress;
use crate::{exit, messages, recording};

pub(super) fn dump(
    out: &mut dyn Write,
    recording: &Recording<'_>,
    config: &DumpConfig,
    decoder: Box<dyn SegmentDecoder>,
) -> io::Result<()> {
    let (image, schedule) = recording::load(recording, config.symfs.as_deref(), &config.kernel);
    for problem in image.problems() {
        messages::warn(problem.what);
    }
    let options = DecodeOptions { workers: config.workers, all_branches: true, ..DecodeOptions::default() };
    let progress = Progress::new("decoding", recording::aux_bytes(recording));
    let mut lines = BranchLines {
        out,
        config,
        names: SymbolNames::new(&image, recording.no_times.is_none()),
        line: String::new(),
        result: Ok(()),
    };
    let report = |done| progress.at(done);
    let context = Context::new(recording, &schedule, &image, true);
    decoder::decode_with(decoder, &context, &options, &report, &mut lines);
    lines.result
}

/// Writes each event as it comes.
struct BranchLines<'a> {
    out: &'a mut dyn Write,
    config: &'a DumpConfig,
    names: SymbolNames<'a>,
    line: String,
    /// The first error; nothing is written behind it.
    result: io::Result<()>,
}

impl EventSink for BranchLines<'_> {
    fn events(&mut self, _pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        if self.result.is_err() || !self.config.tids.contains(tid) {
            return;
        }
        for event in events {
            if !self.config.window.is_none_or(|w| w.contains(event.time().point)) {
                continue;
            }
            self.line.clear();
            self.names.event(&mut self.line, tid, space, event);
            self.result = self.out.write_all(self.line.as_bytes());
            if let Err(error) = &self.result {
                // Without a reader, decoding on is in vain.
                exit::leave_if_reader_is_gone(error);
                return;
            }
        }
    }
}

/// Addresses as symbol and offset.
struct SymbolNames<'a> {
    image: &'a Image,
    /// Name and linked address of the functions met: at most all there are.
    known: HashMap<FunctionId, (String, u64)>,
    /// Times are known.
    has_times: bool,
}

impl<'a> SymbolNames<'a> {
    fn new(image: &'a Image, has_times: bool) -> Self {
        Self { image, known: HashMap::new(), has_times }
    }

    fn event(&mut self, line: &mut String, tid: Tid, space: SpaceId, event: &TraceEvent) {
        let _ = write!(line, "{} ", tid.0);
        self.time(line, event.time());
        line.push(' ');
        match event {
            TraceEvent::Branch(branch) => self.branch(line, space, branch),
            TraceEvent::Gap(gap) => self.gap(line, gap),
        }
        line.push('\n');
    }

    fn branch(&mut self, line: &mut String, space: SpaceId, branch: &BranchEvent) {
        match branch.transfer {
            Transfer::Branch { kind, from, to } => {
                line.push_str(kind.name());
                self.address(line, space, from.ip, from.function);
                line.push_str(" ->");
                self.address(line, space, to.ip, to.function);
            }
            Transfer::Start { to, after_gap } => {
                line.push_str(if after_gap { "resume ->" } else { "start ->" });
                self.address(line, space, to.ip, to.function);
            }
            Transfer::End { kind, from, to } => {
                line.push_str("end ");
                let _ = match kind {
                    EndKind::Syscall => line.write_str("syscall"),
                    EndKind::Async(cause) => asynchronous(line, cause),
                    EndKind::Branch(kind) => line.write_str(kind.name()),
                    EndKind::FallThrough => line.write_str("fall-through"),
                    EndKind::Skipped => line.write_str("skipped"),
                };
                self.address(line, space, from.ip, from.function);
                if let Some(to) = to {
                    let function = self.image.function_at(space, to).id;
                    line.push_str(" ->");
                    self.address(line, space, to, function);
                }
            }
        }
    }

    fn gap(&mut self, line: &mut String, gap: &Gap) {
        let _ = write!(line, "gap {}", gap.cause.name());
        match gap.cause {
            GapCause::MissingCode { object } => {
                let _ = write!(line, " {}", printable(self.image.object_name(object)));
            }
            GapCause::Desync { ip }
            | GapCause::UnmappedCode { ip }
            | GapCause::NarrowCode { ip }
            | GapCause::UnknownInstruction { ip } => {
                let _ = write!(line, " at {ip}");
            }
            _ => (),
        }
        line.push_str(" to ");
        self.time(line, gap.to);
        let _ = write!(line, ", {} bytes at {}", gap.bytes, gap.at);
    }

    /// `1234 ~5`, or `- ~-` where no time is known.
    fn time(&self, line: &mut String, time: EventTime) {
        let _ = match self.has_times {
            true => write!(line, "{} ~{}", time.point.0, time.error_ns()),
            false => line.write_str("- ~-"),
        };
    }

    /// ` 0x401136 main+0x10`; without a symbol only the address.
    fn address(&mut self, line: &mut String, space: SpaceId, ip: Avma, function: FunctionId) {
        let _ = write!(line, " {ip}");
        if function == FunctionId::UNKNOWN {
            return;
        }
        let image = self.image;
        let (name, entry) = self.known.entry(function).or_insert_with(|| {
            (
                printable(&image.function_name(function)),
                image.function_entry(function).map_or(0, |svma| svma.0),
            )
        });
        let _ = write!(line, " {name}");
        if let Some((_, svma)) = image.place(space, ip) {
            // A cold part can lie in front of its function.
            let _ = match svma.0.checked_sub(*entry) {
                Some(offset) => write!(line, "+{offset:#x}"),
                None => write!(line, "-{:#x}", *entry - svma.0),
            };
        }
    }
}

/// What interrupted the code, with its vector, as far as the trace says.
fn asynchronous(line: &mut String, cause: AsyncCause) -> std::fmt::Result {
    match cause {
        AsyncCause::Unknown => line.write_str("async"),
        AsyncCause::Interrupt(vector) => write!(line, "interrupt {vector}"),
        AsyncCause::Fault(vector) => write!(line, "fault {vector}"),
        AsyncCause::Other => line.write_str("event"),
    }
}
