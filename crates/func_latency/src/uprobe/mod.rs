//! `--backend uprobe`: calls timed by probes, where there is no Intel PT.
//!
//! ```text
//! functions  wanted functions, and what they call -> where they are probed, and in which processes
//! regions    ... and regions
//! haste      meanwhile this thread goes before others
//! before     probes are placed, calls are counted, and what is timed is chosen
//! unwinding  the frames above a call -> whether its return address may be rewritten
//! ends       how the ends of each function's calls are seen, and what that costs
//! overhead   how often they are called x what a probe costs here -> which children, or refuse
//! window     calls are timed
//! turns      when children are probed, too
//! guard      what that costs meanwhile
//! purpose    what calls are timed for: figures, or hits of triggers
//! follower   who takes calls as they are seen; watched, status: what is told of them on a terminal
//! report     calls -> the same report
//! ways_on    what to do where nothing of use was seen
//! doctor     what this machine lets us probe
//! ```

mod before;
pub(crate) mod doctor;
mod ends;
mod follower;
mod functions;
mod guard;
mod haste;
mod overhead;
mod purpose;
mod regions;
mod report;
mod status;
mod turns;
mod unwinding;
mod watched;
mod ways_on;
mod window;

use std::time::Duration;

use analyzer::{Limits, ProbedAnalysis};
use anyhow::Result;
use bpf::{Ends, LiveCosts, ProbedFunction, Removal, Room, Session};
use model::Schedule;
use recorder::{Interrupts, Pmu, Proc, StartedProgram, Target};

use crate::args::BackendChoice;
use crate::config::ReportConfig;
use crate::exit::{Exit, failure};
use crate::live_code::{Known, LiveCode};
use crate::messages;
use crate::record_config::RecordConfig;
use crate::render::rows::RowsTarget;
use crate::render::units::{counted, duration, percent};
use crate::target::{self, Remarks, Wanted};
use before::{Plan, Ready};
use ends::MeasuredCosts;
use functions::Candidate;
use haste::Haste;
use overhead::{Choice, Expected};
use report::{LiveNames, Seen};
use status::Status;
use watched::Watched;
use window::{Went, Window, WindowSubject};

pub(crate) use follower::{BeginFollower, Follower, Passed};
pub(crate) use guard::GuardCost;
pub(crate) use purpose::{ProbedTriggers, TimedFor};
pub(crate) use turns::Rounds;

/// The ring, if `-m` does not say.
const RING_BYTES: u64 = 16 << 20;

/// Whether probes time the calls: they or a kind of them were asked for, or there is no trace unit and a
/// report was asked for: they say what they cannot do of it.
pub(crate) fn takes(config: &RecordConfig) -> bool {
    config.backend.is_none() && config.ends.is_some() || must_take(config)
}

/// Whether nothing but probes can time the calls: they were asked for, or there is no trace unit.
pub(crate) fn must_take(config: &RecordConfig) -> bool {
    match config.backend {
        Some(backend) => backend == BackendChoice::Uprobe,
        None => {
            let can = config.then.is_of_calls() && config.request.target != Target::WholeCpus;
            can && config.report.is_some() && Pmu::discover("/sys".as_ref()).is_err()
        }
    }
}

/// Records and reports.
///
/// # Errors
/// It makes no recording, nothing can be probed here, or it would cost too much.
pub(crate) fn run(config: &RecordConfig, interrupts: &Interrupts) -> Result<Exit> {
    let is_over = || interrupts.take();
    let purpose = TimedFor::figures(Rounds::Often, &is_over);
    follow(config, interrupts, purpose, Box::new(|_| Ok(Box::new(Watched::new()))))
}

/// Times calls, which the follower that `begin` makes takes while they are seen, and reports, if that is the
/// purpose. A signal kills this process while symbols are read.
///
/// # Errors
/// It makes no recording, nothing can be probed here, or it would cost too much.
pub(crate) fn follow(
    config: &RecordConfig,
    interrupts: &Interrupts,
    purpose: TimedFor<'_>,
    begin: BeginFollower<'_>,
) -> Result<Exit> {
    let Some(report) = config.report.as_ref().filter(|_| config.then.is_of_calls()) else {
        let message =
            "--backend uprobe makes no recording: it reports what -f FUNC -p PID names, without `record`";
        return Err(failure(Exit::Usage, message));
    };
    refuse_outputs(report)?;
    announce(config);
    let proc = Proc::host();
    check(config, report, &proc)?;
    report.check_outputs()?;
    let (target, program) = target_of(config)?;
    let status = Status::new();
    let haste = Haste::begin();
    let costs = MeasuredCosts::begin(config.ends);
    status.say("reading symbols");
    let mut code = read_code(&target, &proc, report.calls.object.as_deref(), interrupts)?;
    status.clear();
    crate::regions::add(&mut code.image, &report.calls, Remarks::Now)?;
    let (wanted, mut candidates) = candidates(config, report, &purpose, &code, &proc)?;
    let is_timed = |candidate: &&Candidate| candidate.probed.points.ends != Ends::AtEntry;
    let timed = candidates.iter().take(wanted.len()).filter(is_timed).count();
    status.say("measuring what a probe costs");
    let (costs, costs_removal) = costs.wait()?;
    let live_costs = LiveCosts::begin(config.ends, costs);
    let room = Room { threads: room_for_threads(code.threads().len()), ring_bytes: ring_bytes(config)? };
    let session = Session::open(probed(&candidates), room, config.sched.then_some(config.waker_stack))?;
    let plan = Plan {
        session: &session,
        candidates: &mut candidates,
        asked: wanted.len(),
        costs: &costs,
        code: &code,
        proc: &proc,
        limits: config.probing,
        is_started: program.is_some(),
    };
    let ready = plan.carry_out(&target.processes(&proc), costs_removal, &status)?;
    let schedule = Schedule::default();
    let names = LiveNames::new(&code.image);
    let request = report::request(report, &target, &code, &wanted);
    let mut analysis = report::analysis(&request, &code, &schedule, &candidates, &costs, &names);
    if !config.sched {
        analysis = analysis.without_scheduler();
    }
    if matches!(report.rows, Some(RowsTarget::Tables(_))) {
        analysis = analysis.keeping_parts();
    }
    let chosen = chosen(&candidates, wanted.len(), &ready.choice);
    let timed = Timed {
        config,
        target: &target,
        proc: &proc,
        candidates: &candidates,
        purpose,
        haste: &haste,
        subject: WindowSubject { code: &code, wanted: &wanted, timed, status: &status },
    };
    let went = timed.pass(ready, program, live_costs, &mut analysis, begin)?;
    let (summary, removal) = (went.summary, went.removal);
    if purpose.triggers.is_some() {
        wait_for(removal, &status);
        return Ok(Exit::Done);
    }
    let limits =
        Limits { capped_stacks: summary.too_deep, stack_switches: summary.odd_returns, ..Limits::default() };
    let (report_of_calls, parts) = analysis.finish_with_parts(summary.window, limits);
    let seen = Seen {
        report: report_of_calls,
        parts,
        realtime_offset_ns: summary.realtime_offset_ns,
        missed_switches: summary.missed_switches,
    };
    let costs = went.costs.unwrap_or(costs);
    let exit = report::write(report, &code, &chosen, wanted, seen, &costs)?;
    wait_for(removal, &status);
    Ok(exit)
}

/// What is probed, of the functions that are asked for those that are timed first, and what they call.
///
/// # Errors
/// A function is not found, or cannot be probed.
fn candidates(
    config: &RecordConfig,
    report: &ReportConfig,
    purpose: &TimedFor<'_>,
    code: &LiveCode,
    proc: &Proc,
) -> Result<(Vec<Wanted>, Vec<Candidate>)> {
    let mut wanted = target::wanted(&code.image, &report.calls, Remarks::Now)?;
    let mut candidates = match report.calls.regions.is_empty() {
        true => functions::wanted(code, &wanted, config.ends, proc)?,
        false => regions::wanted(code, &wanted, proc)?,
    };
    if let Some(triggers) = &purpose.triggers {
        let on = triggers.entered(&code.image, &report.calls, &wanted)?;
        candidates.extend(functions::wanted(code, &on, Some(Ends::AtEntry), proc)?);
        wanted.extend(on);
    } else if config.probing.most_probes > 0 {
        candidates.extend(functions::children(code, &candidates, config.ends, proc));
    }
    Ok((wanted, candidates))
}

/// Refuses outputs that probes have nothing for.
fn refuse_outputs(report: &ReportConfig) -> Result<()> {
    if report.summary.is_some() {
        let message = "--summary: what probes time is scaled from slices of the window, and does not add up: \
                       it needs a recording of Intel PT";
        return Err(failure(Exit::Usage, message));
    }
    Ok(())
}

/// Says by which means calls are timed, where the user must know.
fn announce(config: &RecordConfig) {
    if config.ends == Some(Ends::ByReturnAddress) {
        messages::warn(
            "--uretprobe: return addresses are rewritten; an exception that is thrown through a probed function ends the program, \
             and so may whatever else walks or changes its stack",
        );
    }
    if config.backend.is_none() && config.ends.is_none() {
        messages::note(
            "no Intel PT here: calls are timed by uprobes (func_latency doctor says what Intel PT needs)",
        );
    }
}

/// Reads the symbols of a running program. That takes a while for a large one; an interrupt may end us, as
/// there is nothing to clean up yet.
fn read_code(
    target: &Target,
    proc: &Proc,
    object: Option<&str>,
    interrupts: &Interrupts,
) -> Result<Box<LiveCode>> {
    match interrupts.let_kill_during(|| LiveCode::of(target, proc, object)) {
        Known::Code(code) => Ok(code),
        Known::TooMuch | Known::NotReadable => {
            let message = "what the process has mapped may not be read: run as its user with CAP_SYS_PTRACE, or as root";
            Err(failure(Exit::NotPossible, message))
        }
    }
}

/// A run with its probes placed.
struct Timed<'a> {
    config: &'a RecordConfig,
    target: &'a Target,
    proc: &'a Proc,
    /// The first ones were asked for.
    candidates: &'a [Candidate],
    purpose: TimedFor<'a>,
    haste: &'a Haste,
    subject: WindowSubject<'a>,
}

impl Timed<'_> {
    /// Passes the window, and says what there is to say of it.
    fn pass(
        &self,
        ready: Ready,
        mut program: Option<StartedProgram>,
        costs: LiveCosts,
        analysis: &mut ProbedAnalysis<'_>,
        begin: BeginFollower<'_>,
    ) -> Result<Went> {
        let Ready { mut run, choice, placed_in, removing, mut guard, cpu } = ready;
        let WindowSubject { wanted, status, .. } = self.subject;
        run.time(!choice.children.is_empty())?;
        guard.begin_slice(!choice.children.is_empty());
        status.clear();
        if self.config.verbose {
            let chosen = chosen(self.candidates, wanted.len(), &choice);
            messages::note(format!("{} placed", counted(number_of_probes(&chosen), "probe")));
        }
        program.iter_mut().for_each(StartedProgram::go);
        let mut is_over = || {
            let lives = program.as_mut().map_or_else(|| lives(self.target, self.proc), StartedProgram::lives);
            (self.purpose.is_over)() || !lives
        };
        let window = Window {
            run,
            candidates: self.candidates,
            children: &choice.children,
            length: self.config.window,
            placed_in,
            removing,
            guard,
            most_percent: self.config.probing.most(),
            cpu,
            costs,
            purpose: self.purpose,
            haste: self.haste,
            subject: self.subject,
        };
        let went = window.pass(&mut is_over, analysis, begin)?;
        let failed = program.as_mut().and_then(StartedProgram::failed);
        drop(program);
        status.clear();
        failed.into_iter().for_each(messages::program_failed);
        tell(self.config, &went, &choice.expected);
        Ok(went)
    }
}

/// What is probed of the candidates.
fn chosen(candidates: &[Candidate], asked: usize, choice: &Choice) -> Vec<Candidate> {
    let is_chosen = |index: &usize| *index < asked || choice.children.contains(index);
    let candidates = candidates.iter().enumerate().filter(|(index, _)| is_chosen(index));
    candidates.map(|(_, candidate)| candidate.clone()).collect()
}

/// The report is there; we end when the last probe is gone.
fn wait_for(removal: Removal, status: &Status) {
    /// What is hardly noticed.
    const SHORT: Duration = Duration::from_millis(500);
    if !removal.is_done() {
        status.say("removing probes");
    }
    let removed = removal.wait();
    status.clear();
    if removed.time > SHORT {
        messages::note(format!("it took {} to remove the probes", duration(removed.time.as_nanos() as u64)));
    }
}

/// What to probe: a program that is to be started stands at its entry then.
fn target_of(config: &RecordConfig) -> Result<(Target, Option<StartedProgram>)> {
    let Target::Program(words) = &config.request.target else {
        return Ok((config.request.target.clone(), None));
    };
    let program = StartedProgram::at_entry(words, config.request.streams)?;
    Ok((Target::Processes(vec![program.pid()]), Some(program)))
}

/// What this backend cannot do is refused, not left out: as wrong usage, if it was asked for.
fn check(config: &RecordConfig, report: &ReportConfig, proc: &Proc) -> Result<()> {
    config.request.target.check(proc)?;
    let request = &config.request;
    let refusals = [
        (
            request.cpus.is_some() || request.target == Target::WholeCpus,
            "uprobes do not take -C: they are in processes, on every CPU; name those with -p or -T",
        ),
        (request.follow, "uprobes do not take --follow: name child processes, too, with -p PID,PID"),
        (report.calls.ancestor.is_some(), "-a needs Intel PT: uprobes see only the function itself"),
        (
            !report.calls.regions.is_empty() && !report.calls.functions.is_empty(),
            "-f and --region at once need Intel PT: uprobes time functions or regions; name either",
        ),
        (
            report.flamegraph.is_some(),
            "-F needs Intel PT: uprobes see no call trees; without it they time the calls of -f",
        ),
        (
            report.counters,
            "--counters and --by need Intel PT: uprobes see when calls begin and end, and no instruction between",
        ),
        (
            config.bundle.is_some(),
            "--bundle: uprobes make no recording; --format json, --rows and --save keep what they see",
        ),
    ];
    if let Some((_, message)) = refusals.into_iter().find(|(is_asked_for, _)| *is_asked_for) {
        let exit = if config.backend.is_some() { Exit::Usage } else { Exit::NotPossible };
        return Err(failure(exit, message));
    }
    if config.ip_filter {
        messages::note("-i: probes see nothing but the function in any case");
    }
    Ok(())
}

fn probed(candidates: &[Candidate]) -> Vec<ProbedFunction> {
    candidates.iter().map(|candidate| candidate.probed.clone()).collect()
}

fn number_of_probes(chosen: &[Candidate]) -> u64 {
    let of = |function: &ProbedFunction| (function.points.points.len() * function.places.len()) as u64;
    chosen.iter().map(|candidate| of(&candidate.probed)).sum()
}

/// Threads that there is room for, as they come and go: twice those there are, and 1,024, of 12 KB each.
fn room_for_threads(there_are: usize) -> usize {
    2 * there_are + 1024
}

fn ring_bytes(config: &RecordConfig) -> Result<u32> {
    let bytes = config.request.trace_bytes.unwrap_or(RING_BYTES);
    let size = u32::try_from(bytes).ok().filter(|size| size.is_power_of_two() && *size >= 4096);
    size.ok_or_else(|| {
        failure(Exit::Usage, format!("-m {bytes}: a ring of probes has a power of two of 4K to 2G"))
    })
}

fn lives(target: &Target, proc: &Proc) -> bool {
    target.processes(proc).iter().any(|pid| proc.process_lives(*pid))
}

/// Above this many percent it does not matter how many: the program hardly ran.
const NEARLY_ALL_PERCENT: f64 = 1_000.0;

/// What was announced, and what it was.
fn tell_cost(went: &Went, expected: &Expected) {
    let spent = went.spent;
    let rise = spent.rise_percent.map_or_else(String::new, |(rise, error)| {
        format!("; CPU time for each call is higher by {} % +- {}", percent(rise), percent(error))
    });
    messages::note(format!("{}{rise}", cost_text(spent.percent, expected.announced_percent())));
}

fn cost_text(spent_percent: f64, announced_percent: Option<f64>) -> String {
    let announced = announced_percent
        .map_or_else(String::new, |announced| format!(" ({} % were expected)", percent(announced)));
    match spent_percent > NEARLY_ALL_PERCENT {
        true => format!("probes took nearly all of the CPU time{announced}"),
        false => format!("probes cost {} % more CPU time{announced}", percent(spent_percent)),
    }
}

fn tell(config: &RecordConfig, went: &Went, expected: &Expected) {
    tell_cost(went, expected);
    let summary = &went.summary;
    let window_ns = summary.window.1.since(summary.window.0);
    if config.window.is_some_and(|window| u128::from(window_ns) + 1_000_000 < window.as_nanos()) {
        messages::note(format!("it ended after {}", duration(window_ns)));
    }
    if summary.lost_intervals > 0 {
        messages::warn(format!(
            "{} off the CPU had no room in the ring: reasons and wakers do not have them (what helps: a larger -m)",
            counted(summary.lost_intervals, "time")
        ));
    }
    if summary.no_room > 0 {
        messages::warn(format!(
            "{} were left out: of threads for which there was no room",
            counted(summary.no_room, "call")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_was_expected_where_no_call_was_counted() {
        assert_eq!(cost_text(12.0, Some(10.0)), "probes cost 12.0 % more CPU time (10.0 % were expected)");
        assert_eq!(cost_text(12.0, None), "probes cost 12.0 % more CPU time");
        assert_eq!(cost_text(13_741.0, None), "probes took nearly all of the CPU time");
    }
}
