//! `--preview`: what would be recorded, at which rate, and whether decoding would keep up. For that a tenth
//! of a second is recorded, decoded, and thrown away.

use std::fs;
use std::io::{BufWriter, Write, stdout};
use std::num::NonZero;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use recorder::{Interrupts, Plan, Proc, Summary, Target};
use rustix::time::{ClockId, clock_gettime};

use crate::aim::{Aim, FunctionPlace};
use crate::config::CallsConfig;
use crate::exit::Exit;
use crate::ip_ranges::{Chosen, CodeLeftOut};
use crate::prepared::{Prepared, create_directory_of};
use crate::printable::printable;
use crate::record_config::RecordConfig;
use crate::render::units::{counted, duration, size};
use crate::{calls, messages};

/// So long is tried.
const TRIAL: Duration = Duration::from_millis(100);

/// Records for [`TRIAL`], beside where the recording would be, and says what that showed.
///
/// # Errors
/// Whatever would be one of the recording.
pub(crate) fn run(config: &RecordConfig, interrupts: &Interrupts) -> Result<Exit> {
    let prepared = Prepared::new(config, interrupts)?;
    let (plan, event) = (*prepared.session.plan(), prepared.session.event().to_owned());
    let aim = prepared.aim.clone();
    let path = config.output.with_file_name("perf.data.preview");
    create_directory_of(&path)?;
    let recorded = prepared.record(&path, Some(TRIAL), interrupts);
    let decoding = recorded.is_ok().then(|| decoding(config, &path)).flatten();
    // Nothing is left of it, whatever became of it.
    let _ = fs::remove_file(&path);
    let summary = recorded?;
    let preview = Preview {
        whom: whom(&config.request.target, &Proc::host()),
        aim: &aim,
        event: &event,
        plan,
        summary: &summary,
        window: config.window,
        decoding: decoding.and_then(|tried| match tried {
            Ok(time) => Some(time),
            Err(error) => {
                messages::note(format!("the trial was not decoded: {error:#}"));
                None
            }
        }),
        cores: thread::available_parallelism().map_or(1, NonZero::get),
    };
    preview.write(&mut BufWriter::new(stdout().lock())).context("cannot write to stdout")?;
    Ok(Exit::Done)
}

/// CPU time that the report of a recording takes, without what is done once for each recording; `None`: no
/// function was named.
fn decoding(config: &RecordConfig, recording: &Path) -> Option<Result<Duration>> {
    let calls = CallsConfig {
        input: recording.to_path_buf(),
        workers: 1,
        verbose: false,
        ..config.report.as_ref()?.calls.clone()
    };
    Some(calls::open_for_report(&calls, None, |opened| {
        let begun = cpu_time();
        opened.report(&opened.request()?)?;
        Ok(cpu_time().saturating_sub(begun))
    }))
}

/// What this process has taken so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(time.tv_sec as u64) + Duration::from_nanos(time.tv_nsec as u64)
}

/// What there is to say.
struct Preview<'a> {
    whom: String,
    aim: &'a Aim,
    event: &'a str,
    plan: Plan,
    summary: &'a Summary,
    window: Option<Duration>,
    /// CPU time to decode the trial; `None`: it was not decoded.
    decoding: Option<Duration>,
    /// Cores of this machine.
    cores: usize,
}

/// More of a core is not to be had for decoding.
const MOST_OF_A_CORE: f64 = 0.9;

impl Preview<'_> {
    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "whom      {}", printable(&self.whom))?;
        for function in &self.aim.functions {
            writeln!(out, "function  {}", printable(&of_function(function)))?;
        }
        match &self.aim.filter {
            None => writeln!(out, "traced    all user code that runs there")?,
            Some(Chosen::Everything { function, why }) => {
                writeln!(
                    out,
                    "traced    all user code that runs there: no filter for {}: {why}",
                    printable(function)
                )?;
            }
            Some(Chosen::Ranges { ranges, left_out }) => {
                writeln!(out, "traced    {}", counted(ranges.len() as u64, "range"))?;
                for range in ranges {
                    let (start, end) = (range.start.0, range.start.0.saturating_add(range.bytes));
                    writeln!(out, "          {}+{start:#x} to {end:#x}", printable(&range.mapped_as))?;
                }
                for CodeLeftOut { part, why } in left_out {
                    writeln!(out, "not       {}: {why}", printable(part))?;
                }
            }
        }
        writeln!(out, "settings  {}", self.event)?;
        writeln!(out, "buffers   {}", self.plan)?;
        writeln!(out, "start-up  {}", duration(ns(self.summary.start_up)))?;
        writeln!(out, "rate      {}", self.rate())?;
        if let Some(time) = self.decoding {
            writeln!(out, "decoding  {}", self.keeps_up(time))?;
        }
        out.flush()
    }

    /// `38.0 ms of CPU time for these 100 ms: one core keeps up`.
    fn keeps_up(&self, time: Duration) -> String {
        let tried = self.summary.window;
        let cores = time.as_secs_f64() / tried.as_secs_f64().max(1e-9) / MOST_OF_A_CORE;
        let needed = match cores.ceil() as usize {
            0 | 1 => "one core keeps up".to_owned(),
            needed if needed <= self.cores => format!("{needed} cores keep up"),
            needed => format!(
                "{needed} cores would keep up, and there are {}: watch would leave some undecoded (-i traces less)",
                self.cores
            ),
        };
        format!("{} of CPU time for these {}: {needed}", duration(ns(time)), duration(ns(tried)))
    }

    /// `at least 1.20 MB/s, as 100 ms showed: at least 12.0 MB in 10.0 s`.
    fn rate(&self) -> String {
        let bytes: u64 = self.summary.losses.iter().map(|losses| losses.trace_bytes).sum();
        let tried_ns = ns(self.summary.window).max(1);
        let in_time = |time: Duration| (u128::from(bytes) * time.as_nanos() / u128::from(tried_ns)) as u64;
        // What was lost has no size.
        let lossy = self.summary.losses.iter().any(recorder::Losses::any);
        let at_least = if lossy { "at least " } else { "" };
        let mut said = format!(
            "{at_least}{}/s, as {} showed",
            size(in_time(Duration::from_secs(1))),
            duration(tried_ns)
        );
        if let Some(window) = self.window {
            said += &format!(": {at_least}{} in {}", size(in_time(window)), duration(ns(window)));
        }
        if lossy {
            said += "; some was lost already: a larger -m, or -i";
        }
        said
    }
}

/// `handle (/usr/bin/server+0x1180, 88 bytes, and a cold part of 12)`.
fn of_function(FunctionPlace { name, object, parts }: &FunctionPlace) -> String {
    let Some(((start, bytes), cold)) = parts.split_first() else {
        return format!("{name} ({object})");
    };
    let cold: u64 = cold.iter().map(|(_, bytes)| bytes).sum();
    let cold = if cold > 0 { format!(", and {cold} in cold parts") } else { String::new() };
    format!("{name} ({object}+{start:#x}, {bytes} bytes{cold})")
}

fn whom(target: &Target, proc: &Proc) -> String {
    match target {
        Target::Processes(_) | Target::Families(_) => {
            let of = |pid: &model::Pid| {
                let name = proc.name(*pid, model::Tid(pid.0)).unwrap_or_default();
                let threads = proc.tasks(*pid).map_or(0, |tids| tids.len() as u64);
                format!("process {} ({name}), {}", pid.0, counted(threads, "thread"))
            };
            target.processes(proc).iter().map(of).collect::<Vec<_>>().join("; ")
        }
        Target::Threads(tids) => counted(tids.len() as u64, "thread"),
        Target::Program(_) => "a program".to_owned(),
        Target::WholeCpus => "whoever runs on these CPUs".to_owned(),
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use model::{AuxOwner, Cpu, FileOffset};
    use recorder::{Ended, IpRange, Layout, Losses, Misplaced};

    use super::*;
    use crate::ip_ranges::Why;

    fn losses(trace_bytes: u64, full: u64) -> Losses {
        let owner = AuxOwner::Cpu(Cpu(0));
        Losses { owner, trace_bytes, full, collisions: 0, partial: 0, lost_records: 0 }
    }

    const PLAN: Plan = Plan {
        layout: Layout::TasksByCpu,
        watched: 0,
        buffers: 1,
        trace_bytes: 1 << 20,
        records_bytes: 1 << 16,
        events: 2,
        sized: false,
    };

    fn summary(losses: Vec<Losses>) -> Summary {
        Summary {
            ended: Ended::InTime,
            window: Duration::from_millis(100),
            start_up: Duration::from_millis(3),
            failed: None,
            file_bytes: 9,
            losses,
            refused_threads: 0,
            missed_threads: 0,
            untraced_cpus: recorder::CpuList::default(),
            sched: recorder::Sched::NotAsked,
        }
    }

    fn preview<'a>(aim: &'a Aim, summary: &'a Summary) -> Preview<'a> {
        Preview {
            whom: "process 7 (x), 1 thread".to_owned(),
            aim,
            event: "intel_pt/pt/u",
            plan: PLAN,
            summary,
            window: Some(Duration::from_secs(10)),
            decoding: Some(Duration::from_millis(91)),
            cores: 2,
        }
    }

    fn text(aim: &Aim, losses: Vec<Losses>) -> String {
        let mut out = Vec::new();
        preview(aim, &summary(losses)).write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_preview_of_everything() {
        let expect = "whom      process 7 (x), 1 thread\n\
                      traced    all user code that runs there\n\
                      settings  intel_pt/pt/u\n\
                      buffers   1 buffer of the traced threads on each CPU, 1024 KB of trace and 64 KB of records each; 2 events\n\
                      start-up  3.00 ms\n\
                      rate      1.20 MB/s, as 100 ms showed: 12.0 MB in 10.0 s\n\
                      decoding  91.0 ms of CPU time for these 100 ms: 2 cores keep up\n";
        assert_eq!(text(&Aim::default(), vec![losses(100_000, 0), losses(20_000, 0)]), expect);
    }

    #[test]
    fn whether_decoding_keeps_up() {
        let said = |ms| {
            let (aim, summary) = (Aim::default(), summary(Vec::new()));
            preview(&aim, &summary).keeps_up(Duration::from_millis(ms))
        };
        assert!(said(0).ends_with(": one core keeps up") && said(90).ends_with(": one core keeps up"));
        assert!(said(180).ends_with(": 2 cores keep up"), "{}", said(180));
        assert!(said(181).contains(": 3 cores would keep up, and there are 2"), "{}", said(181));
    }

    #[test]
    fn a_preview_of_a_function_that_has_no_filter() {
        let why = Misplaced::Mapping(model::Pid(7));
        let filter = Some(Chosen::Everything { function: "f".to_owned(), why });
        let text = text(&Aim { functions: Vec::new(), filter }, vec![losses(100_000, 0)]);
        let says = "traced    all user code that runs there: no filter for f: attaching to process 7";
        assert!(text.contains(says), "{text}");
    }

    #[test]
    fn a_preview_of_ranges_and_of_losses() {
        let aim = Aim {
            functions: vec![FunctionPlace {
                name: "f(int)".to_owned(),
                object: "/bin/x".to_owned(),
                parts: vec![(0x1180, 88), (0x1000, 12)],
            }],
            filter: Some(Chosen::Ranges {
                ranges: vec![IpRange {
                    mapped_as: "/bin/x".to_owned(),
                    file: "/proc/7/root/bin/x".into(),
                    start: FileOffset(0x1180),
                    bytes: 88,
                }],
                left_out: vec![CodeLeftOut { part: "the cold part of f".to_owned(), why: Why::NoRange }],
            }),
        };
        let text = text(&aim, vec![losses(100_000, 1)]);
        let expect = [
            "function  f(int) (/bin/x+0x1180, 88 bytes, and 12 in cold parts)\n",
            "traced    1 range\n          /bin/x+0x1180 to 0x11d8\n",
            "not       the cold part of f: the processor has no more ranges\n",
            "rate      at least 1.00 MB/s, as 100 ms showed: at least 10.0 MB in 10.0 s; some was lost already: a larger -m, or -i\n",
        ];
        for part in expect {
            assert!(text.contains(part), "{part}{text}");
        }
    }
}
