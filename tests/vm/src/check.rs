//! Outside: holds what was recorded against what the module has logged and the target has counted.

use std::fmt;
use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use decoder::DecodeOptions;
use model::{EventSink, Gap, GapCause, Pid, SpaceId, Tid, TraceEvent};
use serde_json::Value;
use tracegen::truth::File;
use tracegen::truth::verify::perf_script::{self, Branches};
use tracegen::truth::verify::{EventVerifier, KernelText};
use truth_tests::{Opened, pipeline};

use crate::case::{Case, Losses, Recorder, Start};
use crate::guest::GOOD;
use crate::losses::Gaps;
use crate::paths::Vm;
use crate::switches::Trace;
use crate::untraced::OneCpu;
use crate::{counts, crystal, edges, log, losses, remains, sched, switches};

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

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ok: {} events, {} gaps", self.events, self.gaps)?;
        if let Some(times) = self.off_cpu {
            write!(f, ", {times} times off-CPU")?;
        }
        write!(f, ", {} functions counted", self.counted)
    }
}

/// Checks a case.
///
/// # Errors
/// What does not hold.
pub fn check(vm: &Vm, case: &Case) -> Result<Checked> {
    let end = end_of(vm, case.name)?;
    if end != "exit status: 0" {
        let said = fs::read_to_string(vm.of_case(case.name, "err")).unwrap_or_default();
        bail!("the command ended with {end}\n{said}");
    }
    let data = case.data(vm);
    if case.target == ["edges"] {
        edges::share_pages(&vm.programs().join("edges"))?;
    }
    if case.recorder == Recorder::Perf {
        crystal::tell(&data, crystal::ratio(vm)?)?;
    }
    let file = pipeline::open(&data)?;
    let opened = Opened::new(&file)?;
    let clock = opened.recording.clock.context("the recording has no clock")?;
    // Of whole CPUs other programs are recorded, too: their vDSO is that of the machine, which is not here.
    let is_of_target =
        |tid| !case.is_of_cpus() || opened.schedule.thread(tid).is_some_and(|life| case.runs(&life.name));
    let (logged, truth) = (vm.of_case(case.name, "log"), vm.of_case(case.name, "truth"));
    let truth =
        log::convert_parts(&logged, clock, &truth, &|tid, _| Some(tid).filter(|tid| is_of_target(*tid)))?;
    let (events, gaps) = same_events(&opened, &truth, &is_of_target)?;
    let switches = Trace::load(&vm.of_case(case.name, "switches"))?;
    let off_cpu = match case.recorder {
        Recorder::FuncLatency => Some(switches::same_as_traced(&opened, &truth, &switches)?),
        // It writes some records twice.
        Recorder::Perf => None,
    };
    // Of whole CPUs perf takes kernel threads and other programs for the one that ran before.
    if matches!(case.losses, Losses::None | Losses::Overflows) && !case.is_of_cpus() {
        perf_agrees(&data, &truth, case.sched)?;
        perf_reports(&data, case.counted)?;
    }
    let asked = case.counted.iter().chain(case.untraced);
    let asked: Vec<&str> = asked.flat_map(|function| ["-f", function]).collect();
    let report = report(vm, &data, if asked.is_empty() { &["-f", "main"] } else { &asked })?;
    counts::none(&report, case.untraced)?;
    if case.recorder == Recorder::FuncLatency && case.start != Start::ByRecorder {
        same_as_live(vm, case, &data)?;
    }
    if !case.is_of_cpus() {
        losses::same(&report, case.losses, &gaps, &opened, &truth)?;
    }
    if case.sched {
        sched::same_as_traced(&opened, &truth, &switches)?;
        sched::causes_are_the_targets(&report)?;
    }
    // What ran before a thread was attached to is not in the log either.
    if let Some(cpu) = case.traced_cpu() {
        let one = OneCpu { cpu, switches: &switches, opened: &opened, truth: &truth };
        one.same_stays(&report)?;
        one.same_calls(case.counted, &logged, &data)?;
    } else if !matches!(case.losses, Losses::None | Losses::Births) {
        counts::same_but_for_losses(&opened, case.counted, &truth, &data)?;
    } else if case.start == Start::Runs || case.losses == Losses::Births {
        counts::same_as_logged(&report, case.counted, &truth, &data)?;
    } else {
        let printed = fs::read_to_string(vm.of_case(case.name, "out"))?;
        counts::same_as_printed(&report, case.counted, &printed)?;
    }
    Ok(Checked { events, gaps: gaps.count(), off_cpu, counted: case.counted.len() })
}

/// How a case or trial ended in the machine.
fn end_of(vm: &Vm, name: &str) -> Result<String> {
    let end = fs::read_to_string(vm.of_case(name, "end")).context("it did not run")?;
    ensure!(!end.is_empty(), "a machine has begun it, and not ended it");
    Ok(end)
}

/// What a trial has seen, in the machine, and outside in what it has left.
///
/// # Errors
/// What does not hold.
pub fn trial(vm: &Vm, name: &str) -> Result<String> {
    let seen = end_of(vm, name)?;
    ensure!(seen.starts_with(GOOD), "{seen}");
    match remains::TRIALS.contains(&name) {
        true => Ok(format!("{seen}; {}", remains::check(vm, name)?)),
        false => Ok(seen),
    }
}

/// Passes events on, and counts them.
struct Counted<'a> {
    is_of_target: &'a dyn Fn(Tid) -> bool,
    verifier: EventVerifier<'a>,
    events: u64,
    gaps: Gaps,
}

impl EventSink for Counted<'_> {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        // The log has nothing of a stay on an untraced CPU, which comes alone: `untraced` has them.
        if let [TraceEvent::Gap(Gap { cause: GapCause::UntracedCpu, .. })] = events {
            return;
        }
        if !(self.is_of_target)(tid) {
            return;
        }
        self.events += events.len() as u64;
        for event in events {
            if let TraceEvent::Gap(gap) = event {
                self.gaps.add(tid, *gap);
            }
        }
        self.verifier.events(pid, tid, space, events);
    }
}

/// Every event of the decoder is the log's, and the other way round, with its true time in its bounds: how
/// many there are, and the gaps among them.
fn same_events(opened: &Opened<'_>, truth: &File, is_of_target: &dyn Fn(Tid) -> bool) -> Result<(u64, Gaps)> {
    let verifier = EventVerifier::new(truth, None, KernelText::There);
    let mut sink = Counted { is_of_target, verifier, events: 0, gaps: Gaps::default() };
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

/// perf's own decoder finds the same branches. Not after damage: it goes on in front of the next PSB, on
/// luck.
fn perf_agrees(data: &Path, truth: &File, has_samples: bool) -> Result<()> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=be", "--ns", "-F", "tid,time,flags,ip,addr"]);
    if has_samples {
        // Those of tracepoints are no branches; where there are call chains, perf puts names beside all
        // addresses.
        perf.args(["-F", "trace:", "-G"]);
    }
    perf.arg("-i").arg(data).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut perf = perf.spawn().context("perf script")?;
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
    const TRACE: [&str; 2] = ["/trace/span_ns", "/trace/aux_bytes"];
    let live = fs::read(vm.of_case(case.name, "report"))?;
    let live: Value = serde_json::from_slice(&live).context("the live report")?;
    let pairs = case.arguments.windows(2).filter(|pair| matches!(pair, ["-f" | "-a", _]));
    let later = report(vm, data, &pairs.flatten().copied().collect::<Vec<_>>())?;
    let parts = match case.is_of_cpus() {
        false => ["/functions", "/loss/by_cause", "/loss/threads"],
        // What other programs have mapped is not all here: more of their time is lost, of which shares of the
        // CPU are told.
        true => ["/functions/0/calls", "/functions/0/latency_ns", "/functions/0/off_cpu_ns"],
    };
    for part in parts.iter().chain(&TRACE) {
        let (live, later) = (live.pointer(part), later.pointer(part));
        ensure!(live.is_some() && live == later, "{part}: live {live:?}\nlater {later:?}");
    }
    Ok(())
}
