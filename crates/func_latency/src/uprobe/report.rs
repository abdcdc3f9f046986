//! From probed calls to the same report.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use analyzer::{ProbedAnalysis, ProbedParts, Report, Request, StackNames, Surroundings};
use anyhow::Result;
use bpf::{EndCosts, Ends};
use image::{Image, KernelSymbols};
use model::{Avma, ClockOffsets, CodeSource, FunctionId, FunctionLookup, Ns, Pid, ProbeCost, Schedule};
use recorder::{Proc, Target};

use crate::config::ReportConfig;
use crate::exit::Exit;
use crate::filter::NsRange;
use crate::live_code::LiveCode;
use crate::render::Names as _;
use crate::render::image_names::ImageNames;
use crate::render::rows::{self, Origin, RowsTarget};
use crate::render::units::{counted, duration};
use crate::render::{PROBES, View};
use crate::report_command::{with_rows, write_report};
use crate::target::{self, Wanted};
use crate::uncalled::{leave_out_uncalled, seen, uncalled};
use crate::{explain_command, host, messages, remedy};

use super::functions::Candidate;
use super::ways_on;

/// What is asked of the analysis.
pub(super) fn request(config: &ReportConfig, target: &Target, code: &LiveCode, wanted: &[Wanted]) -> Request {
    let NsRange { min, max } = config.calls.latency_ns;
    let starts = |w: crate::filter::TimeWindow| analyzer::StartWindow {
        start: w.from,
        min_ns: 0,
        max_ns: w.to.since(w.from),
    };
    let request = Request {
        functions: wanted.iter().map(|w| w.function.id).collect(),
        ancestor: None,
        latency: analyzer::LatencyRange { min_ns: min, max_ns: max },
        starts: config.calls.window.map(starts),
        tids: if let Target::Threads(tids) = target { tids.clone() } else { Vec::new() },
        rows: false,
        row_children: false,
        stack_switches: !code.image.stack_switchers().is_empty(),
        counters: None,
    };
    let request = with_rows(config, request);
    // What is explained by rows needs them.
    Request {
        rows: request.rows || config.rows.is_some() || config.explain,
        row_children: request.row_children || config.explain,
        ..request
    }
}

/// An analysis of the calls of these functions.
pub(super) fn analysis<'a>(
    request: &Request,
    code: &'a LiveCode,
    schedule: &'a Schedule,
    chosen: &[Candidate],
    costs: &EndCosts,
    names: &'a LiveNames<'a>,
) -> ProbedAnalysis<'a> {
    let around = Surroundings {
        code: &code.image,
        functions: &code.image,
        schedule,
        window: (Ns(0), Ns(0)),
        scheduler: None,
        no_times: None,
        has_ip_filter: false,
        has_compressed_returns: false,
        traces_whole_cpus: false,
        is_part: false,
        buffers: &[],
    };
    let ids = chosen.iter().map(|candidate| candidate.id);
    let functions = ids.zip(probe_costs(chosen, costs)).collect();
    let threads = if request.tids.is_empty() { code.threads() } else { request.tids.clone() };
    ProbedAnalysis::new(request, functions, &threads, around, names)
}

/// What probes cost, function by function.
pub(super) fn probe_costs(candidates: &[Candidate], costs: &EndCosts) -> Vec<ProbeCost> {
    candidates.iter().map(|candidate| costs.of(&candidate.probed.points).probes).collect()
}

/// What runs now: the kernel's functions are read when one is asked for.
pub(super) struct LiveNames<'a> {
    kernel: OnceCell<KernelSymbols>,
    image: &'a Image,
}

impl<'a> LiveNames<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self { kernel: OnceCell::new(), image }
    }
}

impl StackNames for LiveNames<'_> {
    fn kernel(&self, address: Avma) -> Option<&str> {
        self.kernel.get_or_init(|| KernelSymbols::read("/proc/kallsyms".as_ref())).name(address)
    }

    fn user(&self, pid: Pid, time: Ns, address: Avma) -> FunctionId {
        self.image.function_at(self.image.space(pid, time), address).id
    }
}

/// What there is to report.
pub(super) struct Seen {
    /// The figures.
    pub(super) report: Report,
    /// What its rows are made of, if tables are written.
    pub(super) parts: ProbedParts,
    /// What is to be added to its times to get real time.
    pub(super) realtime_offset_ns: i64,
    /// Switches of threads that the kernel did not tell.
    pub(super) missed_switches: u64,
}

/// Writes rows and report, and says how it went.
///
/// # Errors
/// A file or stdout cannot be written.
pub(super) fn write(
    config: &ReportConfig,
    code: &LiveCode,
    chosen: &[Candidate],
    wanted: Vec<Wanted>,
    seen: Seen,
    costs: &EndCosts,
) -> Result<Exit> {
    let Seen { mut report, parts, realtime_offset_ns, missed_switches } = seen;
    let is_region = |id| code.image.region(id).is_some();
    let violations = if config.check { analyzer::check_with(&report, is_region) } else { Vec::new() };
    let wanted = leave_out_uncalled(&mut report, wanted);
    let threads = code.thread_names(&Proc::host());
    let names = ImageNames::new(&code.image, config.srcline).with_threads(threads);
    // What was measured is there once: where a file cannot be written after all, the report still is.
    let origin = Origin {
        host: host::name(),
        recording: config.rows.as_ref().and_then(|rows| partition(rows, &report, realtime_offset_ns)),
        realtime_offset_ns: Some(realtime_offset_ns),
        labels: config.labels.clone(),
    };
    let rows =
        config.rows.as_ref().map_or(Ok(()), |to| rows::write_file(to, (&report, &parts), &names, &origin));
    let inlined = target::inlined(&code.image, &wanted);
    let view = View {
        report: &report,
        names: &names,
        input: &format!("uprobes in {}", processes(chosen)),
        aux_bytes: 0,
        decoder: PROBES,
        // Its times are those of that clock.
        clock_offsets: ClockOffsets { monotonic_ns: Some(0), realtime_ns: Some(realtime_offset_ns) },
        sched_apart_ns: None,
        inlined: &inlined,
        only: &config.calls.only(),
        problems: &limits(code, chosen, costs, missed_switches),
        srcline: config.srcline,
        unfold: config.unfold,
        table_rows: config.table_rows,
        by: None,
        code_blocks: &[],
    };
    rows.and(write_report(config, &view, &[], &[]))?;
    if config.explain {
        explain_command::slowest_of_rows(&report, &code.image, view.input)?;
    }
    for violation in &violations {
        messages::inconsistent(violation, violation.function.map(|id| names.function(id)));
    }
    ways_on(&report, chosen, &wanted, code, &inlined);
    Ok(if violations.is_empty() { verdict(config, &report, &names) } else { Exit::Inconsistent })
}

/// A name for what these probes have timed, so that tables of several runs can stand below one directory:
/// when the window began, in ns since 1970.
fn partition(rows: &RowsTarget, report: &Report, realtime_offset_ns: i64) -> Option<String> {
    let began = i128::from(report.trace.window.0.0) + i128::from(realtime_offset_ns);
    matches!(rows, RowsTarget::Tables(_)).then(|| format!("u{began:016x}"))
}

fn processes(chosen: &[Candidate]) -> String {
    let pids: BTreeSet<Pid> =
        chosen.iter().flat_map(|candidate| &candidate.probed.places).map(|place| place.pid).collect();
    let names: Vec<String> = pids.iter().map(|pid| pid.0.to_string()).collect();
    let noun = if names.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}", messages::list(&names))
}

/// What a report of probes does not know.
fn limits(code: &LiveCode, chosen: &[Candidate], costs: &EndCosts, missed_switches: u64) -> Vec<String> {
    let wanted = chosen.iter().filter(|candidate| !candidate.probed.is_child);
    let inside: BTreeSet<(u64, u64)> = wanted
        .map(|candidate| costs.of(&candidate.probed.points).probes.returned.inside)
        .map(|inside| (inside.least_ns, inside.most_ns))
        .collect();
    let range = |(least_ns, most_ns)| format!("{} to {}", duration(least_ns), duration(most_ns));
    let inside: Vec<String> = inside.into_iter().map(range).collect();
    let mut limits = vec![format!(
        "timed by uprobes: what the function's own probes add to each latency (measured here, with warm and with cold caches: {}) \
             is subtracted, and what is not known of it is the error; callers are known by return address, and a call that an \
             exception or longjmp unwound is cut, as its end is not seen",
        inside.join(" or ")
    )];
    let children = chosen.iter().filter(|candidate| candidate.probed.is_child).count() as u64;
    limits.push(match children {
        0 => "no child was probed: their time is in *self".to_owned(),
        _ => format!(
            "{} that the code calls directly were probed, as far as they fit (--max-probes, --max-overhead); the time of all else \
             that is called is in *self",
            counted(children, "function")
        ),
    });
    let rewritten =
        chosen.iter().filter(|candidate| candidate.probed.points.ends == Ends::ByReturnAddress).count()
            as u64;
    if rewritten > 0 {
        limits.push(format!(
            "return addresses of {} were rewritten: calls that were running before are not seen to return, nor those nested deeper \
             than 64",
            counted(rewritten, "function")
        ));
    }
    if missed_switches > 0 {
        limits.push(format!(
            "{} the kernel did not tell of a context switch: waiting for a CPU looks like time on it there",
            counted(missed_switches, "time")
        ));
    }
    let switchers = code.image.stack_switchers();
    if !switchers.is_empty() {
        let names: Vec<&str> = switchers.iter().map(|id| code.image.object_basename(*id)).collect();
        limits.push(format!(
            "{} may switch stacks (swapcontext): calls that are switched away from are cut, and return without a known entry",
            names.join(", ")
        ));
    }
    limits
}

/// Says what to do about functions without a seen call of use.
fn ways_on(
    report: &Report,
    chosen: &[Candidate],
    wanted: &[Wanted],
    code: &LiveCode,
    inlined: &[Option<u64>],
) {
    let (proc, span_ns) = (Proc::host(), report.trace.span_ns);
    let without = uncalled(report, wanted);
    if without.len() > EXPLAINED {
        messages::warn(format!("no call of {} was seen in {}", messages::list(&without), duration(span_ns)));
    }
    for ((function, wanted), inlined) in report.functions.iter().zip(wanted).zip(inlined) {
        let id = wanted.function.id;
        let Some(candidate) = chosen.iter().find(|candidate| candidate.id == id) else { continue };
        if seen(&function.calls) {
            ways_on::after_jumps(function, candidate, &code.image).iter().for_each(messages::note);
        } else if without.len() <= EXPLAINED {
            let name = format!("{} ({})", wanted.function.name, wanted.function.object_name);
            messages::warn(ways_on::without_calls(&name, candidate, code, *inlined, span_ns, &proc));
        }
    }
}

/// Functions without calls that are each told why; more are listed.
const EXPLAINED: usize = 3;

fn verdict(config: &ReportConfig, report: &Report, names: &ImageNames<'_>) -> Exit {
    let has_calls = report.functions.iter().any(|function| seen(&function.calls));
    let too_much =
        config.max_loss_percent.and_then(|allowed| remedy::too_much_lost(&report.loss, allowed, names));
    too_much.iter().for_each(messages::warn);
    if too_much.is_some() || !has_calls { Exit::Nothing } else { Exit::Done }
}
