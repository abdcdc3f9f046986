//! `--backend uprobe`: calls timed by probes, where there is no Intel PT.
//!
//! ```text
//! functions  wanted functions, and what they call -> where they are probed, and in which processes
//! overhead   how often they are called x what a probe costs here -> which children, or refuse
//! (bpf)      calls
//! report     calls -> the same report
//! doctor     what this machine lets us probe
//! ```

pub(crate) mod doctor;
mod functions;
mod overhead;
mod report;

pub(crate) use overhead::ProbeLimits;

use std::cell::Cell;
use std::time::Duration;

use analyzer::Limits;
use anyhow::Result;
use bpf::{Costs, ProbedFunction, Room, Session};
use model::Schedule;
use recorder::{Interrupts, Proc, Target};

use crate::config::ReportConfig;
use crate::exit::{Exit, failure};
use crate::live_code::{Known, LiveCode};
use crate::messages;
use crate::record_config::RecordConfig;
use crate::render::units::{counted, duration};
use crate::target::{self, Remarks};
use functions::Candidate;
use overhead::Moment;
use report::{Kernel, Seen};

/// The ring, if `-m` does not say.
const RING_BYTES: u64 = 16 << 20;

/// Records and reports.
///
/// # Errors
/// Nothing can be probed here, or it would cost too much.
pub(crate) fn run(config: &RecordConfig, report: &ReportConfig, interrupts: &Interrupts) -> Result<Exit> {
    let proc = Proc::host();
    check(config, report, &proc)?;
    let object = report.calls.object.as_deref();
    // To read the symbols of a large program takes a while, and there is nothing to clean up yet.
    let code = match interrupts.let_kill_during(|| LiveCode::of(&config.request.target, &proc, object)) {
        Known::Code(code) => code,
        Known::TooMuch | Known::NotReadable => {
            let message = "what the process has mapped may not be read: run as its user with CAP_SYS_PTRACE, or as root";
            return Err(failure(Exit::NotPossible, message));
        }
    };
    let wanted = target::wanted(&code.image, &report.calls, Remarks::Now)?;
    let mut candidates = functions::wanted(&code, &wanted, &proc)?;
    if config.probing.most_probes > 0 {
        candidates.extend(functions::children(&code, &candidates, &proc));
    }
    let costs = Costs::measure()?;
    let room = Room { threads: room_for_threads(code.threads().len()), ring_bytes: ring_bytes(config)? };
    let moment = {
        let mut session = Session::open(probed(&candidates), room)?;
        Moment::of(&mut session, &config.request.target.processes(&proc))?
    };
    let (chosen, cost) = overhead::choose(candidates, wanted.len(), &moment, &costs, config.probing)?;
    messages::note(cost);
    let mut session = Session::open(probed(&chosen), room)?;
    // Ctrl-C before the window, too, ends it.
    let is_placed = Cell::new(false);
    let is_over = || {
        if !is_placed.replace(true) && config.verbose {
            messages::note(format!("{} placed", counted(number_of_probes(&chosen), "probe")));
        }
        interrupts.take() || !lives(&config.request.target, &proc)
    };
    let request = report::request(report, &config.request.target, &code, &wanted);
    let schedule = Schedule::default();
    let kernel = Kernel::default();
    let mut analysis = report::analysis(&request, &code, &schedule, &chosen, &costs, &kernel);
    let window = config.window.unwrap_or(Duration::from_secs(1));
    let summary = session.record(window, &is_over, &mut analysis)?;
    tell(config, &summary);
    let limits =
        Limits { capped_stacks: summary.too_deep, stack_switches: summary.odd_returns, ..Limits::default() };
    let seen = Seen {
        report: analysis.finish(summary.window, limits),
        realtime_offset_ns: summary.realtime_offset_ns,
    };
    report::write(report, &code, &chosen, wanted, seen, &costs)
}

/// What this backend cannot do is refused, not left out.
fn check(config: &RecordConfig, report: &ReportConfig, proc: &Proc) -> Result<()> {
    let refused = |message: &str| Err(failure(Exit::NotPossible, message));
    config.request.target.check(proc)?;
    if !config.request.target.runs_already() {
        return refused("uprobes are for what runs already: start the program, and name it with -p PID");
    }
    if config.request.cpus.is_some() || config.request.follow {
        return refused(
            "uprobes do not take -C or --follow: all threads of the processes of -p are probed, on every CPU",
        );
    }
    if report.calls.ancestor.is_some() {
        return refused("-a needs Intel PT: uprobes see only the function itself");
    }
    if report.flamegraph.is_some() {
        return refused("-F needs Intel PT: uprobes see no call trees");
    }
    if config.bundle.is_some() {
        return refused("--bundle: uprobes make no recording; --format json and --rows keep what they see");
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

/// Threads come and go: twice as many as there are, and some.
fn room_for_threads(there_are: usize) -> usize {
    2 * there_are + 256
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

fn tell(config: &RecordConfig, summary: &bpf::Summary) {
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
