//! Outside: holds what was recorded against what the module has logged and the target has counted.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use decoder::DecodeOptions;
use model::{AuxOffset, EventSink, Gap, GapCause, Pid, SpaceId, Tid, TraceEvent};
use serde_json::Value;
use tracegen::truth::verify::perf_script::{self, Branches};
use tracegen::truth::verify::{EventVerifier, KernelText};
use tracegen::truth::{File, Kind};
use truth_tests::{Opened, pipeline};

use crate::case::{Case, Losses, Recorder, Start};
use crate::paths::Vm;
use crate::switches::Trace;
use crate::untraced::OneCpu;
use crate::{counts, crystal, log, switches};

/// What a case has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// Events of the decoder that are the log's, all of them.
    pub events: u64,
    /// How many of them are gaps.
    pub gaps: u64,
    /// Times that a thread was off its CPU, as the scheduler says, too; of our own recordings.
    pub off_cpu: Option<u64>,
    /// Functions of which the report has the target's own counts.
    pub counted: usize,
}

/// Checks a case.
///
/// # Errors
/// What does not hold.
pub fn check(vm: &Vm, case: &Case) -> Result<Checked> {
    let end = fs::read_to_string(vm.of_case(case.name, "end")).context("it did not run")?;
    if end != "exit status: 0" {
        let said = fs::read_to_string(vm.of_case(case.name, "err")).unwrap_or_default();
        bail!("the command ended with {end}\n{said}");
    }
    let data = vm.data(case);
    if case.recorder == Recorder::Perf {
        crystal::tell(&data, ratio(vm)?)?;
    }
    let file = pipeline::open(&data)?;
    let opened = Opened::new(&file)?;
    let clock = opened.recording.clock.context("the recording has no clock")?;
    let truth = log::convert(&vm.of_case(case.name, "log"), clock, &vm.of_case(case.name, "truth"))?;
    let (events, gaps) = same_events(&opened, &truth)?;
    let switches = Trace::load(&vm.of_case(case.name, "switches"))?;
    let off_cpu = match case.recorder {
        Recorder::FuncLatency => Some(switches::same_as_traced(&opened, &truth, &switches)?),
        // It writes some records twice.
        Recorder::Perf => None,
    };
    if matches!(case.losses, Losses::None | Losses::Overflows) {
        perf_agrees(&data, &truth)?;
        perf_reports(&data, case.counted)?;
    }
    let counted: Vec<&str> = case.counted.iter().flat_map(|function| ["-f", function]).collect();
    let report = report(vm, &data, if counted.is_empty() { &["-f", "main"] } else { &counted })?;
    if case.recorder == Recorder::FuncLatency && case.start != Start::ByRecorder {
        same_as_live(vm, case, &data)?;
    }
    same_losses(&report, case.losses, &gaps, &truth)?;
    // What ran before a thread was attached to is not in the log either.
    if let Some(cpu) = case.traced_cpu() {
        let one = OneCpu { cpu, switches: &switches, opened: &opened, truth: &truth };
        one.same_stays(&report)?;
        one.same_calls(case.counted, &vm.of_case(case.name, "log"), &data)?;
    } else if !matches!(case.losses, Losses::None | Losses::Births) {
        counts::same_but_for_losses(&opened, case.counted, &truth, &data)?;
    } else if case.start == Start::Runs || case.losses == Losses::Births {
        counts::same_as_logged(&report, case.counted, &truth, &data)?;
    } else {
        let printed = fs::read_to_string(vm.of_case(case.name, "out"))?;
        counts::same_as_printed(&report, case.counted, &printed)?;
    }
    let gaps = gaps.0.values().map(|gaps| gaps.len() as u64).sum();
    Ok(Checked { events, gaps, off_cpu, counted: case.counted.len() })
}

/// `167:1`.
fn ratio(vm: &Vm) -> Result<u32> {
    let text = fs::read_to_string(vm.of_run("ratio"))?;
    text.split(':').next().and_then(|ticks| ticks.parse().ok()).with_context(|| format!("ratio {text}"))
}

/// Passes events on, and counts them.
struct Counted<'a> {
    verifier: EventVerifier<'a>,
    events: u64,
    gaps: Gaps,
}

/// Gaps, by the name of their cause.
#[derive(Debug, Default)]
struct Gaps(BTreeMap<&'static str, Vec<AuxOffset>>);

impl Gaps {
    /// A loss is a gap in each stay of a thread on its CPU while it lasts.
    fn count(&self, cause: GapCause) -> u64 {
        self.0.get(cause.name()).map_or(0, Vec::len) as u64
    }

    /// All gaps of a loss are at one place of the trace.
    fn losses(&self, cause: GapCause) -> u64 {
        let mut places = self.0.get(cause.name()).cloned().unwrap_or_default();
        places.sort_unstable();
        places.dedup();
        places.len() as u64
    }
}

impl EventSink for Counted<'_> {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        // The log has nothing of a stay on an untraced CPU, which comes alone: `untraced` has them.
        if let [TraceEvent::Gap(Gap { cause: GapCause::UntracedCpu, .. })] = events {
            return;
        }
        self.events += events.len() as u64;
        for event in events {
            if let TraceEvent::Gap(gap) = event {
                self.gaps.0.entry(gap.cause.name()).or_default().push(gap.at);
            }
        }
        self.verifier.events(pid, tid, space, events);
    }
}

/// Every event of the decoder is the log's, and the other way round, with its true time in its bounds: how many there are, and
/// the gaps among them.
fn same_events(opened: &Opened<'_>, truth: &File) -> Result<(u64, Gaps)> {
    let verifier = EventVerifier::new(truth, None, KernelText::There);
    let mut sink = Counted { verifier, events: 0, gaps: Gaps::default() };
    let options = DecodeOptions { workers: 2, all_branches: true, ..DecodeOptions::default() };
    opened.decode(&options, &mut sink);
    let (events, verdict) = (sink.events, sink.verifier.finish());
    ensure!(verdict.agrees() && verdict.times_agree(), "{verdict}");
    let parts: u64 = verdict.threads.iter().map(|thread| thread.gap_parts).sum();
    let extra = events - verdict.matched() - parts;
    ensure!(extra == 0, "{extra} events of the decoder are not in the log\n{verdict}");
    ensure!(events > 0, "nothing was recorded");
    Ok((events, sink.gaps))
}

/// perf's own decoder finds the same branches.  Not behind damage: it goes on in front of the next PSB, on luck.
fn perf_agrees(data: &Path, truth: &File) -> Result<()> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=be", "--ns", "-F", "tid,time,flags,ip,addr", "-i"]).arg(data);
    let mut perf = perf.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("perf script")?;
    let script = perf.stdout.take().context("perf script has no output")?;
    let agreement = perf_script::compare(truth, BufReader::new(script), Branches::All)?;
    let done = perf.wait()?;
    ensure!(done.success() && agreement.agrees(), "perf script: {done}\n{agreement}");
    Ok(())
}

/// `perf report` takes the file, and finds the functions.
fn perf_reports(data: &Path, functions: &[&str]) -> Result<()> {
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "--itrace=b", "--sort", "sym", "-i"]).arg(data);
    let output = perf.stdin(Stdio::null()).output().context("perf report")?;
    let (found, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let missing = functions.iter().find(|function| !found.contains(&format!("[.] {function}")));
    ensure!(
        output.status.success() && missing.is_none(),
        "perf report: no {missing:?}: {}\n{said}",
        output.status
    );
    Ok(())
}

/// `func_latency report` ends so if it has seen no call: all of them may be lost.
const NO_CALLS: i32 = 1;

/// `func_latency report` with these arguments.
fn report(vm: &Vm, data: &Path, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(vm.func_latency());
    command.args(["report", "--check", "--format", "json", "-i"]).arg(data).args(arguments);
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    ensure!(matches!(code, Some(0 | NO_CALLS)), "{command:?}: {}\n{said}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What the command has reported in the machine is what it reports of the same file outside.
fn same_as_live(vm: &Vm, case: &Case, data: &Path) -> Result<()> {
    let live = fs::read(vm.of_case(case.name, "report"))?;
    let live: Value = serde_json::from_slice(&live).context("the live report")?;
    let pairs = case.arguments.windows(2).filter(|pair| matches!(pair, ["-f" | "-a", _]));
    let later = report(vm, data, &pairs.flatten().copied().collect::<Vec<_>>())?;
    for part in ["/functions", "/loss/by_cause", "/loss/threads", "/trace/span_ns", "/trace/aux_bytes"] {
        let (live, later) = (live.pointer(part), later.pointer(part));
        ensure!(live.is_some() && live == later, "{part}: live {live:?}\nlater {later:?}");
    }
    Ok(())
}

/// The trace has the losses of the log, of the kind that was asked for only, and the report's section of losses has the gaps.
fn same_losses(report: &Value, losses: Losses, gaps: &Gaps, truth: &File) -> Result<()> {
    let logged = |kind| {
        let threads = truth.threads().iter();
        threads.flat_map(|thread| truth.events(thread)).filter(|event| event.kind == kind).count() as u64
    };
    let kinds = [
        ("overflows", Kind::Overflow, GapCause::Overflow, &[Losses::Overflows][..]),
        ("truncated", Kind::Truncated, GapCause::Truncated, &[Losses::Full, Losses::Stalled]),
        ("errors", Kind::Damaged, GapCause::DamagedPacket, &[Losses::Damage]),
    ];
    for (name, kind, cause, of) in kinds {
        let (reported, found, logged) = (report["loss"][name].as_u64(), gaps.losses(cause), logged(kind));
        ensure!(found == logged, "the trace has {found} losses by {name}, the log {logged}");
        let count = gaps.count(cause);
        ensure!(reported == Some(count), "the report has {reported:?} {name}, the trace {count} gaps");
        ensure!((logged > 0) == of.contains(&losses), "{logged} {name} in a case of {losses:?}");
    }
    let causes = report["loss"]["by_cause"].as_array().map_or(&[][..], Vec::as_slice);
    let late = causes.iter().any(|loss| loss["cause"] == GapCause::NotYetAttached.name());
    ensure!(late == (losses == Losses::Births), "threads attached late: {late}, in a case of {losses:?}");
    Ok(())
}
