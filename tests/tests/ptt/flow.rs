//! Our transfers as `ptxed` prints them: the address of each instruction, and what happened between.
//!
//! ```text
//! 0000000000100000     an instruction
//! [disabled]           tracing ended
//! [interrupt]          control went elsewhere in front of an instruction
//! [overflow]  [error]  a gap
//! ```

use std::iter;

use decoder::DecodeOptions;
use iced_x86::{Decoder, DecoderOptions};
use model::{
    AuxBuffer, AuxOffset, AuxOwner, AuxPiece, Avma, BranchEvent, BranchKind, CodeSource, CpuModel, EndKind,
    EventSink, FileOffset, FunctionAt, FunctionId, FunctionKind, FunctionLookup, GapCause, NoCode, NoTimes,
    Ns, ObjectId, Pid, PtConfig, Recording, Schedule, SpaceId, Svma, Tid, TraceEvent, Transfer,
};

use crate::program::Program;
use crate::trace::Trace;

/// How the trace is decoded.
pub(crate) struct Setup {
    cpu: Option<CpuModel>,
    /// The IP filter's range.
    filter: Option<(u64, u64)>,
    /// Instructions and events are not listed.
    quiet: bool,
    /// Instructions are counted.
    counts: bool,
    /// Events have their addresses.
    addresses: bool,
}

impl Setup {
    /// With `ptxed`'s options, on a processor of this family and model.
    pub(crate) fn of(words: &[&str], cpu: Option<(u32, u32)>) -> Self {
        let option = |name| {
            let at = words.iter().position(|word| *word == name)?;
            u64::from_str_radix(words.get(at + 1)?.trim_start_matches("0x"), 16).ok()
        };
        let filter = option("--filter:addr0_a").zip(option("--filter:addr0_b"));
        let has = |name| words.contains(&name);
        Self {
            cpu: cpu.map(|(family, model)| CpuModel { family, model, stepping: 0 }),
            filter,
            quiet: has("--quiet"),
            addresses: has("--event:ip"),
            counts: has("--stat:insn") || has("--stat") && !has("--stat:blocks"),
        }
    }

    /// perf's text of the filter, whose last address belongs to it.
    fn ip_filter(&self) -> String {
        self.filter
            .map_or(String::new(), |(first, last)| format!("filter {first:#x}/{:#x}@code", last - first + 1))
    }
}

/// What we decode.
pub(crate) fn lines(program: &Program, trace: &Trace, setup: &Setup) -> Vec<String> {
    let pieces = vec![AuxPiece { offset: AuxOffset(0), bytes: &trace.bytes, file_offset: 0 }];
    let recording = Recording {
        buffers: vec![AuxBuffer { index: 0, owner: AuxOwner::Thread(Tid(1)), pieces, records: vec![] }],
        pt: PtConfig { cyc: true, has_ip_filter: setup.filter.is_some(), ..PtConfig::default() },
        no_times: Some(NoTimes::NoTscPackets),
        ip_filter: setup.ip_filter(),
        cpu_model: setup.cpu,
        time_span: Some((Ns(0), Ns(1_000_000))),
        ..Recording::default()
    };
    let options = DecodeOptions { all_branches: true, ..DecodeOptions::default() };
    let mut seen = Seen::default();
    decoder::decode(&recording, &Schedule::default(), program, program, &options, &|_| (), &mut seen);
    let mut run = Run { program, addresses: setup.addresses, at: None, lines: vec![] };
    let next = seen.0.iter().skip(1).map(Some).chain(iter::once(None));
    seen.0.iter().zip(next).for_each(|(event, next)| run.event(event, next));
    let instructions = run.lines.iter().filter(|line| !line.starts_with('[')).count();
    let listed = if setup.quiet { vec![] } else { run.lines };
    listed.into_iter().chain(setup.counts.then(|| format!("insn: {instructions}."))).collect()
}

/// All events.
#[derive(Default)]
struct Seen(Vec<TraceEvent>);

impl EventSink for Seen {
    fn events(&mut self, _: Pid, _: Tid, _: SpaceId, events: &[TraceEvent]) {
        self.0.extend(events);
    }
}

/// Execution, told from its transfers.
struct Run<'a> {
    program: &'a Program,
    addresses: bool,
    /// The next instruction; `None` while tracing is off.
    at: Option<u64>,
    lines: Vec<String>,
}

impl Run<'_> {
    fn event(&mut self, event: &TraceEvent, next: Option<&TraceEvent>) {
        let TraceEvent::Branch(BranchEvent { at, transfer, .. }) = event else {
            let overflow = matches!(event, TraceEvent::Gap(gap) if gap.cause == GapCause::Overflow);
            self.lines.push(if overflow { "[overflow]" } else { "[error]" }.to_owned());
            self.at = None;
            return;
        };
        // An end and a start by one packet: control went through code that is not traced, or elsewhere at
        // once.
        let goes_on = matches!(next, Some(TraceEvent::Branch(next)) if next.at == *at);
        match *transfer {
            Transfer::Start { to, .. } => self.at = Some(to.ip.0),
            Transfer::Branch { kind: BranchKind::Abort, from, to } => {
                self.run_to(from.ip, false);
                self.happens("interrupt", &[("from", Some(from.ip)), ("to", Some(to.ip))]);
                self.at = Some(to.ip.0);
            }
            Transfer::Branch { from, to, .. } => {
                self.run_to(from.ip, true);
                self.at = Some(to.ip.0);
            }
            Transfer::End { kind, from, to } => {
                let is_async = matches!(kind, EndKind::Async(_));
                self.run_to(from.ip, !is_async);
                match (is_async, goes_on) {
                    (true, true) => self.happens("interrupt", &[("from", Some(from.ip)), ("to", to)]),
                    (true, false) => self.happens("disabled", &[("at", Some(from.ip)), ("ip", to)]),
                    (false, true) => (),
                    (false, false) => self.happens("disabled", &[("ip", to)]),
                }
                self.at = None;
            }
        }
    }

    fn happens(&mut self, name: &str, addresses: &[(&str, Option<Avma>)]) {
        let known =
            addresses.iter().filter(|_| self.addresses).filter_map(|(what, ip)| ip.map(|ip| (what, ip)));
        let known = known.map(|(what, ip)| format!(", {what}: {:016x}", ip.0)).collect::<String>();
        self.lines.push(format!("[{name}{known}]"));
    }

    /// The instructions up to `last`, which runs, too, if it is `included`.
    fn run_to(&mut self, Avma(last): Avma, included: bool) {
        let Some(at) = self.at else { return };
        let code = self.program.code(at).unwrap_or_default();
        let instructions = Decoder::with_ip(64, code, at, DecoderOptions::NONE).into_iter();
        let addresses = instructions.map(|instruction| instruction.ip()).take_while(|ip| *ip < last);
        self.lines.extend(addresses.chain(included.then_some(last)).map(|ip| format!("{ip:016x}")));
    }
}

/// The lines of `ptxed` that are compared, as [`lines`] has them. Its other events are no control flow, and
/// where execution begins the first address says.
pub(crate) fn comparable(line: &str) -> Option<String> {
    let Some(event) = line.strip_prefix('[') else {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "?").collect();
        return (words.first() != Some(&"blocks:")).then(|| words.join(" "));
    };
    // A time may stand before the name.
    let event = event.trim_end_matches(']').rsplit("  ").next()?;
    let name = event.split(',').next()?;
    match name {
        "disabled" | "interrupt" | "overflow" => Some(format!("[{event}]")),
        _ if event.contains(": error:") => Some("[error]".to_owned()),
        _ => None,
    }
}

impl CodeSource for Program {
    fn space(&self, _: Pid, _: Ns) -> SpaceId {
        SpaceId(1)
    }

    fn space_until(&self, _: Pid, _: Ns) -> Ns {
        Ns::MAX
    }

    fn code(&self, _: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
        Program::code(self, ip.0).ok_or(NoCode::Unmapped)
    }

    fn file_place(&self, _: SpaceId, ip: Avma) -> Option<(&str, FileOffset)> {
        Some(("code", FileOffset(ip.0)))
    }
}

/// All code is one function.
impl FunctionLookup for Program {
    fn function_at(&self, _: SpaceId, _: Avma) -> FunctionAt {
        FunctionAt { id: FunctionId(1), at_entry: false }
    }

    fn place(&self, _: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)> {
        Some((ObjectId(0), Svma(ip.0)))
    }

    fn kind(&self, _: FunctionId) -> FunctionKind {
        FunctionKind::Symbol
    }

    fn object(&self, _: FunctionId) -> Option<ObjectId> {
        Some(ObjectId(0))
    }
}
