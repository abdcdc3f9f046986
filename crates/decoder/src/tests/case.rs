//! One file, one rule: code, sideband and packets in; transfers, gaps and times out.
//!
//! A file of `tests/cases` is a comment that states the rule and where it stands, and sections:
//!
//! ```text
//! [recording]      optional: how it was made, see `Setup`
//! [code]           see `code`
//! [sideband]       optional: time, what; then the buffer is a CPU's
//! [trace]          see `trace`
//! [trace of cpu 1] optional: beside that, which is CPU 0's then
//! [events]         expected, see `events`; at the end, how often the clock contradicted itself, if it did
//! ```
//!
//! Each case is decoded in one segment and in one per PSB: the events must be the same.
//! `UPDATE_CASES=1 cargo test -p decoder` writes what came out; read the diff.

use std::path::Path;

use model::{
    AuxBuffer, AuxOffset, AuxOwner, AuxPiece, AuxRecord, Avma, Cpu, CpuModel, FileOffset, Mmap, Ns, Pid,
    PtConfig, Recording, Schedule, Sideband, SidebandRecord, Tid, TscClock,
};

use super::code::{Code, number};
use super::events::Text;
use super::trace::Trace;
use crate::{Context, DecodeOptions, DecodeStats, OwnDecoder, decode_with};

/// How a case's recording was made.
pub(super) struct Setup {
    pub(super) recording: Recording<'static>,
    all_branches: bool,
    /// Events are printed with their times.
    times: bool,
    /// Only this many bytes to a segment, where the outcome depends on it.
    segment_bytes: Option<u64>,
}

impl Default for Setup {
    fn default() -> Self {
        let pt = PtConfig {
            cyc: true,
            mtc_period: None,
            tsc_ctc_ratio: (2, 1),
            max_nonturbo_ratio: 10,
            ..PtConfig::default()
        };
        let recording = Recording {
            pt,
            clock: Some(TscClock { shift: 0, mult: 1, zero: 0 }),
            kernel_symbols: String::new(),
            time_span: Some((Ns(0), Ns(1_000_000))),
            ..Recording::default()
        };
        Self { recording, all_branches: false, times: false, segment_bytes: None }
    }
}

impl Setup {
    fn parse(lines: &[&str]) -> Self {
        let mut setup = Self::default();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let pt = &mut setup.recording.pt;
            match words[..] {
                [] => (),
                ["no", "return", "compression"] => pt.return_compression = false,
                ["no", "cyc"] => pt.cyc = false,
                ["mtc", "period", period] => pt.mtc_period = Some(number(period) as u8),
                ["crystal", ratio] => {
                    let (n, d) = ratio.split_once('/').unwrap_or((ratio, "1"));
                    pt.tsc_ctc_ratio = (number(n) as u32, number(d) as u32);
                }
                ["kernel"] => pt.kernel = true,
                ["ip", "filter", ..] => {
                    pt.has_ip_filter = true;
                    setup.recording.ip_filter = words[2..].join(" ");
                }
                ["cpu", family, model, stepping] => {
                    let [family, model, stepping] = [family, model, stepping].map(|n| number(n) as u32);
                    setup.recording.cpu_model = Some(CpuModel { family, model, stepping });
                }
                ["traced", "cpu", cpu] => {
                    setup.recording.coverage.traced.insert(Cpu(number(cpu) as u32));
                }
                ["all", "branches"] => setup.all_branches = true,
                ["times"] => setup.times = true,
                ["segments", "of", bytes] => setup.segment_bytes = Some(number(bytes)),
                _ => panic!("[recording]: {line:?}"),
            }
        }
        setup
    }
}

/// The section of a second buffer.
const CPU_1: &str = "trace of cpu 1";

/// The sections of a case file, by name.
struct Sections<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Sections<'a> {
    fn of(text: &'a str) -> Self {
        let mut sections = vec![("", vec![])];
        for line in text.lines() {
            let line = line.split_once('#').map_or(line, |(code, _)| code).trim_end();
            match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(name) => sections.push((name, vec![])),
                None => sections.last_mut().unwrap().1.push(line),
            }
        }
        let known = ["", "recording", "code", "sideband", "trace", CPU_1, "events"];
        sections.iter().for_each(|(name, _)| assert!(known.contains(name), "no section [{name}]"));
        Self(sections)
    }

    fn get(&self, name: &str) -> Option<&[&'a str]> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, lines)| &lines[..])
    }

    /// Lines that are not empty.
    fn lines(&self, name: &str) -> Vec<&'a str> {
        let lines = self.get(name).unwrap_or_default();
        lines.iter().copied().filter(|line| !line.trim().is_empty()).collect()
    }
}

/// Runs `tests/cases/NAME.case`.
#[track_caller]
pub(super) fn check(name: &str) {
    let path = directory().join(format!("{name}.case"));
    let text = std::fs::read_to_string(&path).unwrap();
    let sections = Sections::of(&text);
    let setup = Setup::parse(&sections.lines("recording"));
    let code = Code::assemble(&sections.lines("code"));
    let assemble = |name| Trace::assemble(&sections.lines(name), &code);
    let mut traces = vec![assemble("trace")];
    traces.extend(sections.get(CPU_1).map(|_| assemble(CPU_1)));
    let schedule = sections.get("sideband").map(|_| schedule(&sections.lines("sideband")));
    let whole = setup.segment_bytes.unwrap_or(1 << 20);
    let small: Vec<Trace> = traces.iter().map(Trace::in_small_pieces).collect();
    let mut ways = vec![
        ("in one segment", &traces, whole, OwnDecoder::default()),
        ("cut at every PSB", &traces, setup.segment_bytes.unwrap_or(1), OwnDecoder::default()),
        ("with a memo of two lines", &traces, whole, OwnDecoder::with_memo(1)),
    ];
    if setup.segment_bytes.is_none() {
        // No PSB is whole in one piece, so that there is nowhere to cut.
        ways.push(("in pieces of five bytes", &small, whole, OwnDecoder::default()));
    }
    let outcome = |(way, traces, bytes, decoder): (_, &Vec<Trace>, _, OwnDecoder)| {
        let mut text = Text::new(&code, schedule.is_some(), setup.times);
        let stats = run(&setup, &code, traces, schedule.as_ref(), bytes, decoder, &mut text);
        let mut lines = text.into_lines();
        if stats.clock_errors > 0 {
            lines.push(format!("clock contradictions: {}", stats.clock_errors));
        }
        (way, lines)
    };
    let outcomes: Vec<_> = ways.into_iter().map(outcome).collect();
    let expected = sections.lines("events");
    if std::env::var_os("UPDATE_CASES").is_some() && outcomes[0].1 != expected {
        let kept = text.split_once("[events]\n").map_or(&text[..], |(before, _)| before);
        std::fs::write(&path, format!("{kept}[events]\n{}\n", outcomes[0].1.join("\n"))).unwrap();
        return;
    }
    for (way, outcome) in &outcomes {
        assert!(*outcome == expected, "{name}, {way}:\n{}", diff(&expected, outcome));
    }
}

pub(super) fn directory() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// Both, side by side as far as they agree, then the expected lines and those that came.
fn diff(expected: &[&str], outcome: &[String]) -> String {
    let same = expected.iter().zip(outcome).take_while(|(e, o)| *e == *o).count();
    let mut text: Vec<String> = expected[..same].iter().map(|line| format!("    {line}")).collect();
    text.extend(expected[same..].iter().map(|line| format!("  - {line}")));
    text.extend(outcome[same..].iter().map(|line| format!("  + {line}")));
    text.join("\n")
}

/// `time switch-in TID`, `time switch-out TID`, `time exit TID`, `time map PID`, `time lost COUNT`; of
/// another CPU: `TID@CPU`.
fn schedule(lines: &[&str]) -> Schedule {
    let records: Vec<_> = lines
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [time, what, id] = words[..] else { panic!("[sideband]: {line:?}") };
            let (id, cpu) = id.split_once('@').unwrap_or((id, "0"));
            let id = number(id) as i32;
            let switch = |out| Sideband::Switch { out, preempted: false };
            let (tid, body) = match what {
                "switch-in" => (id, switch(false)),
                "switch-out" => (id, switch(true)),
                "exit" => (id, Sideband::Exit { pid: Pid(7), tid: Tid(id) }),
                "lost" => (id, Sideband::Lost { count: 1 }),
                "map" => (id, Sideband::from(mapping(Pid(id)))),
                _ => panic!("[sideband]: {line:?}"),
            };
            SidebandRecord {
                time: Some(Ns(number(time))),
                cpu: Some(Cpu(number(cpu) as u32)),
                pid: Some(Pid(7)),
                tid: Some(Tid(tid)),
                file_offset: 0,
                body,
            }
        })
        .collect();
    Schedule::new(&records)
}

fn mapping(pid: Pid) -> Mmap {
    Mmap {
        pid,
        start: Avma(0x1000),
        len: 0x1000,
        file_offset: FileOffset(0),
        path: String::new(),
        build_id: None,
        inode: None,
        executable: true,
        kernel: false,
    }
}

/// Decodes a trace: of thread 7, or with sideband of CPU 0, and those of further CPUs.
pub(super) fn run(
    setup: &Setup,
    code: &Code,
    traces: &[Trace],
    schedule: Option<&Schedule>,
    segment_bytes: u64,
    decoder: OwnDecoder,
    sink: &mut dyn model::EventSink,
) -> DecodeStats {
    let buffers = traces.iter().zip(0..).map(|(trace, index)| {
        let piece = |(at, bytes)| AuxPiece { offset: AuxOffset(at), bytes, file_offset: 0 };
        let record = |(at, size, flags)| AuxRecord { offset: AuxOffset(at), size, flags, time: None };
        let until = trace.truncations.iter().map(|end| (0, *end, AuxRecord::TRUNCATED));
        // By offset, as those of a recording.
        let from = trace.starts.iter().map(|start| (*start, 0, 0));
        AuxBuffer {
            index,
            owner: if schedule.is_some() { AuxOwner::Cpu(Cpu(index)) } else { AuxOwner::Thread(Tid(7)) },
            pieces: trace.pieces.iter().map(|(at, bytes)| piece((*at, bytes))).collect(),
            records: until.chain(from).map(record).collect(),
        }
    });
    let none = Schedule::default();
    let recording = Recording { buffers: buffers.collect(), ..setup.recording.clone() };
    let options =
        DecodeOptions { segment_bytes, all_branches: setup.all_branches, ..DecodeOptions::default() };
    let context = Context::new(&recording, schedule.unwrap_or(&none), code, setup.all_branches);
    decode_with(Box::new(decoder), &context, &options, &|_| (), sink).stats
}
