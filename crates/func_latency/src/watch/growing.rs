//! A recording that grows, and its analysis, which goes on from part to part.
//!
//! ```text
//!   part      sideband, trace -> schedule, image, continuation -> sums of the calls that have ended
//!   part      ...                                              -> sums
//!   the end   what is open                                     -> sums;  all sums together -> report
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use analyzer::{
    Analysis, CallSums, FunctionReport, LatencyRange, PausedAnalysis, Report, Request, Surroundings,
};
use anyhow::Result;
use decoder::{Continuation, DecodeOptions, Grown};
use image::{Image, KernelSymbols};
use model::{
    AuxBuffer, AuxOwner, CodeSource, FunctionId, FunctionLookup, Ns, Pid, Recording, Schedule, Sideband,
    SidebandRecord, Tid,
};

use super::display::SeenCalls;
use super::ns;
use super::triggers::{Hit, Noticing, Triggers};
use crate::config::CallsConfig;
use crate::exit::{Exit, failure};
use crate::target::{self, Remarks, Wanted};
use crate::{host, messages};

/// One part of a recording that grows.
pub(crate) struct Part<'a> {
    /// The trace that is needed: from the end of the decoded part up to the newest.
    pub(crate) buffers: Vec<AuxBuffer<'a>>,
    /// The records that are new, in any order.
    pub(crate) sideband: Vec<SidebandRecord>,
    /// Up to when everything is there; `None`: the recording is whole.
    pub(crate) until: Option<Ns>,
    /// First and last time of its records.
    pub(crate) span: Option<(Ns, Ns)>,
}

/// What came of a part.
#[derive(Default)]
pub(crate) struct Gain {
    /// The calls that have ended.
    pub(crate) calls: CallSums,
    /// Time lost in it, of all threads.
    pub(crate) lost_ns: u64,
    /// What there is to be captured, by time.
    pub(crate) hits: Vec<Hit>,
    /// Hits that are not among them: there were too many.
    pub(crate) left_out_hits: u64,
    /// The slowest calls that have ended, if they are wanted.
    pub(crate) slowest: Vec<Hit>,
}

/// What is known so far.
pub(crate) struct Growing {
    config: CallsConfig,
    /// The recording without its trace and sideband.
    frame: Recording<'static>,
    /// They name what calls waited for in the kernel.
    kernel_symbols: KernelSymbols,
    /// How long a part of a segment waits for the rest of it; `None`: until the recording is whole.
    patience: Option<Duration>,
    /// The records that say which code is where.
    code_records: Vec<SidebandRecord>,
    /// Records from after the time up to which everything is there.
    early: Vec<SidebandRecord>,
    schedule: Schedule,
    code: Option<Code>,
    analysis: Option<PausedAnalysis>,
    continuation: Continuation,
    total: CallSums,
    lost_ns: u64,
    /// `None`: nothing is captured.
    triggers: Option<Triggers>,
    has_told_of_code: bool,
    /// Functions of `--on` that were said not to be found.
    told_of_on: BTreeSet<String>,
    /// The buffers that are known, by perf's number: those without trace in a part, too.
    buffers: BTreeMap<u32, AuxOwner>,
}

/// The code that runs, and the functions in it that are watched.
struct Code {
    image: Image,
    wanted: Vec<Wanted>,
    request: Request,
    /// The functions of `--on` that are found, with their names.
    on: Vec<(FunctionId, String)>,
    /// The names of `--on` for which any was found.
    found_on: BTreeSet<String>,
}

impl Growing {
    /// `recording` has the properties that all parts share. Its sideband and trace are not looked at.
    pub(crate) fn new(config: CallsConfig, recording: &Recording<'_>, patience: Option<Duration>) -> Self {
        Self {
            config,
            frame: frame(recording),
            kernel_symbols: KernelSymbols::parse(&recording.kernel_symbols),
            patience,
            code_records: Vec::new(),
            early: Vec::new(),
            schedule: Schedule::growing(true, true),
            code: None,
            analysis: None,
            continuation: Continuation::default(),
            total: CallSums::default(),
            lost_ns: 0,
            triggers: None,
            has_told_of_code: false,
            told_of_on: BTreeSet::new(),
            buffers: BTreeMap::new(),
        }
    }

    /// Takes the clocks of a recording that is there as a whole, so that times are those of its report.
    pub(crate) fn of_whole(mut self, whole: &Recording<'_>) -> Self {
        self.continuation.of_whole(whole);
        self
    }

    /// Says what a recording that is there as a whole has: context switches, and records of them (or samples
    /// alone). A hole in its trace is damage.
    pub(crate) fn with_switches(self, has_switches: bool, has_switch_records: bool) -> Self {
        let frame = Recording { leaves_out: false, ..self.frame };
        Self { schedule: Schedule::growing(has_switches, has_switch_records), frame, ..self }
    }

    /// Names kernel functions by the symbols of this machine's kernel: those of a recording that grows come
    /// at its end.
    pub(crate) fn with_kernel_of_this_machine(self) -> Self {
        Self { kernel_symbols: KernelSymbols::read("/proc/kallsyms".as_ref()), ..self }
    }

    /// Looks for hits to capture; `None`: there are none.
    pub(crate) fn with_triggers(self, triggers: Option<Triggers>) -> Self {
        Self { triggers, ..self }
    }

    /// The first byte that is still needed of the buffer with this number of perf's; `None`: all are.
    pub(crate) fn needed_from(&self, buffer: u32) -> Option<model::AuxOffset> {
        self.continuation.needed_from(buffer)
    }

    /// Up to when the recording is decoded.
    pub(crate) fn decoded_until(&self) -> Ns {
        self.continuation.until()
    }

    /// The figures of these calls.
    pub(crate) fn figures(&self, calls: &CallSums) -> Vec<FunctionReport> {
        let told_by = analyzer::ToldBy::of(&self.schedule);
        calls.figures(self.schedule.has_switches(), told_by)
    }

    /// Takes a part without its trace.
    ///
    /// # Errors
    /// The functions are not found in a whole recording.
    pub(crate) fn take_records(&mut self, part: Part<'_>) -> Result<()> {
        let spans = self.frame.time_span.into_iter().chain(part.span);
        self.frame.time_span = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        self.add_sideband(part.sideband, part.until)
    }

    /// Forgets what is known of threads before `time`, where nothing is decoded.
    pub(crate) fn forget_before(&mut self, time: Ns) {
        let ended = self.schedule.ended_before(time);
        self.schedule.forget_before(time, &BTreeSet::new());
        self.schedule.forget_threads(&ended);
    }

    /// Decodes what has come.
    ///
    /// # Errors
    /// The functions are not found in a whole recording.
    pub(crate) fn add(&mut self, part: Part<'_>) -> Result<Gain> {
        let Part { buffers, until, .. } = part;
        self.take_records(Part { buffers: Vec::new(), ..part })?;
        if self.code.is_none() {
            return Ok(Gain::default());
        }
        self.decode(buffers, until)
    }

    /// Takes the records that are complete, and the code that they tell of.
    fn add_sideband(&mut self, new: Vec<SidebandRecord>, until: Option<Ns>) -> Result<()> {
        let mut records = std::mem::take(&mut self.early);
        records.extend(new);
        // Stable: records of one time keep their order.
        records.sort_by_key(|record| record.time);
        let is_complete = |record: &SidebandRecord| until.is_none_or(|until| record.time <= Some(until));
        self.early = records.split_off(records.partition_point(is_complete));
        self.schedule.grow(&records);
        // Not what tells of threads only: they are born and named for ever.
        let is_change = |record: &SidebandRecord| match &record.body {
            Sideband::Mmap(mmap) => mmap.executable,
            Sideband::Comm { exec, .. } => *exec,
            Sideband::Fork { pid, parent_pid, .. } => pid != parent_pid,
            _ => false,
        };
        let is_of_code =
            |record: &SidebandRecord| matches!(record.body, Sideband::Mmap(_)) || is_change(record);
        let changes_code = records.iter().any(is_change);
        self.code_records.extend(records.into_iter().filter(is_of_code));
        if changes_code || self.code.is_none() && until.is_none() {
            return self.load_code(until.is_none());
        }
        if until.is_none() { self.find_on(true) } else { Ok(()) }
    }

    /// Looks for the functions in the code that is mapped now. `is_last`: no more will come.
    fn load_code(&mut self, is_last: bool) -> Result<()> {
        let options = image::ImageOptions {
            binary: self.config.object.as_ref().map(Into::into),
            ..host::image_options(&self.frame, self.config.symfs.as_deref(), &self.config.kernel)
        };
        let image =
            Image::load(&self.code_records, &options).with_kernel_symbols(self.kernel_symbols.clone());
        // As long as nothing was decoded its functions have no numbers that must stay.
        if let Some(code) = self.code.as_mut().filter(|_| self.analysis.is_some()) {
            let time = self.continuation.until();
            if !extends(&image, &code.image, &self.schedule, time) {
                if !std::mem::replace(&mut self.has_told_of_code, true) {
                    messages::warn(
                        "code was mapped in a way that changes the numbers of known functions: it is not followed, \
                         and calls in it are gaps",
                    );
                }
                return Ok(());
            }
            code.image = image;
            self.continuation.forget_code();
            return self.find_on(is_last);
        }
        let remarks = if self.code.is_none() { Remarks::Now } else { Remarks::Later };
        match target::wanted(&image, &self.config, remarks) {
            Ok(wanted) => {
                let request = self.request(&image, &wanted)?;
                self.code = Some(Code { image, wanted, request, on: Vec::new(), found_on: BTreeSet::new() });
                self.find_on(is_last)
            }
            // Its code may come to be mapped.
            Err(error) if is_last && self.code.is_none() => Err(error),
            Err(_) => {
                // Another object has a function of this name now: the one that was found stays.
                let until = self.continuation.until();
                if let Some(code) = &mut self.code
                    && extends(&image, &code.image, &self.schedule, until)
                {
                    code.image = image;
                }
                Ok(())
            }
        }
    }

    /// Looks for the functions of `--on` that are not found yet, each by itself: one may be in an object that
    /// is never mapped. Live, a name that is not found is a warning, and no reason to lose the report.
    fn find_on(&mut self, is_last: bool) -> Result<()> {
        let names = self.triggers.as_ref().map_or(&[][..], Triggers::names_on);
        let Some(code) = &mut self.code else { return Ok(()) };
        for name in names {
            if code.found_on.contains(name) {
                continue;
            }
            let config =
                CallsConfig { functions: vec![name.clone()], candidate: None, ..self.config.clone() };
            match target::wanted(&code.image, &config, Remarks::Now) {
                Ok(found) => {
                    code.on.extend(found.into_iter().map(|Wanted { function }| (function.id, function.name)));
                    code.found_on.insert(name.clone());
                }
                Err(error) if is_last && !self.frame.leaves_out => return Err(error.context("--on")),
                Err(error) if self.told_of_on.insert(name.clone()) => {
                    messages::warn(format!("--on: {error:#}; it is looked for again when code is mapped"));
                }
                Err(_) => (),
            }
        }
        Ok(())
    }

    fn request(&self, image: &Image, wanted: &[Wanted]) -> Result<Request> {
        let config = &self.config;
        let range = |range: crate::filter::NsRange| LatencyRange { min_ns: range.min, max_ns: range.max };
        let ancestor = match &config.ancestor {
            Some(ancestor) => Some(analyzer::Ancestor {
                function: target::ancestor(image, config, &ancestor.function, Remarks::Now)?.id,
                latency: range(ancestor.latency_ns),
            }),
            None => None,
        };
        Ok(Request {
            functions: wanted.iter().map(|wanted| wanted.function.id).collect(),
            ancestor,
            latency: range(config.latency_ns),
            stack_switches: !image.stack_switchers().is_empty(),
            ..Request::default()
        })
    }

    fn decode(&mut self, buffers: Vec<AuxBuffer<'_>>, until: Option<Ns>) -> Result<Gain> {
        self.buffers.extend(buffers.iter().map(|buffer| (buffer.index, buffer.owner)));
        let Some(code) = &self.code else { return Ok(Gain::default()) };
        let recording = Recording { buffers: with_empty(&self.buffers, buffers), ..self.frame.clone() };
        let around = Surroundings::of(&recording, &self.schedule, &code.image);
        let mut analysis = match self.analysis.take() {
            Some(paused) => paused.resume(around),
            None => Analysis::new(&code.request, around),
        };
        if let Some(triggers) = &mut self.triggers {
            let end = until.or(self.frame.time_span.map(|(_, last)| last)).unwrap_or_default();
            triggers.begin(code.wanted.len(), end);
            analysis = analysis.giving_rows_to(triggers);
        }
        let context = decoder::Context::new(&recording, &self.schedule, &code.image, false);
        let patience_ns = self.patience.map(ns);
        let how = (self.config.workers, DecodeOptions::default().segment_bytes);
        let digester = analysis.digester();
        let mut noticing = Noticing { analysis: &mut analysis, on: &code.on, hits: Vec::new(), left_out: 0 };
        self.continuation.decode_on(
            &context,
            how,
            Grown { until, patience_ns },
            digester.as_ref(),
            &mut noticing,
        );
        let Noticing { hits: entered, left_out, .. } = noticing;
        if until.is_none() {
            analysis.decide_rest();
        }
        let needs_from = self.continuation.needs_schedule_from();
        // The one place that decides which threads are over: all that know threads let go of these.
        let ended = self.continuation.forget_threads(self.schedule.ended_before(needs_from));
        analysis.finish_threads(&ended);
        forget_buffers(&mut self.buffers, &self.continuation, &ended);
        let calls = analysis.take_calls();
        self.total.merge(&calls);
        let lost_ns = analysis.lost_ns();
        let gained_ns = lost_ns.saturating_sub(std::mem::replace(&mut self.lost_ns, lost_ns));
        let undecided = analysis.undecided_threads();
        self.analysis = Some(analysis.pause(needs_from));
        // A frame knows its thread's time off the CPU; the schedule before the next event is not needed any
        // more.
        self.schedule.forget_before(needs_from, &undecided);
        self.schedule.forget_threads(&ended);
        crate::recording::check_uncut()?;
        let hits = self.triggers.as_mut().map_or_else(Vec::new, |triggers| triggers.take_hits(entered));
        let left_out_hits = left_out + self.triggers.as_mut().map_or(0, Triggers::take_left_out);
        let slowest = self.triggers.as_mut().map_or_else(Vec::new, Triggers::take_slowest);
        Ok(Gain { calls, lost_ns: gained_ns, hits, left_out_hits, slowest })
    }

    /// The report of everything.
    ///
    /// # Errors
    /// The functions were never found.
    pub(crate) fn finish<T>(
        mut self,
        tell: impl FnOnce(Report, &Image, &Schedule, &[Wanted], &Recording<'_>) -> Result<T>,
    ) -> Result<T> {
        let (Some(code), Some(paused)) = (&self.code, self.analysis.take()) else {
            let message = "nothing was recorded of the functions that are watched";
            return Err(failure(Exit::Nothing, message));
        };
        let buffers = with_empty(&self.buffers, Vec::new());
        let recording = Recording { buffers, ..self.frame.clone() };
        let around = Surroundings::of(&recording, &self.schedule, &code.image);
        let mut summary = paused.resume(around).finish_with_summary();
        self.total.add_to(&mut summary);
        tell(summary.into_report(), &code.image, &self.schedule, &code.wanted, &recording)
    }
}

impl SeenCalls for Growing {
    /// The code that is mapped now.
    fn image(&self) -> Option<&Image> {
        self.code.as_ref().map(|code| &code.image)
    }

    /// Empty as long as their code is not mapped.
    fn wanted(&self) -> &[Wanted] {
        self.code.as_ref().map_or(&[], |code| &code.wanted)
    }

    fn total_figures(&self) -> Vec<FunctionReport> {
        self.figures(&self.total)
    }
}

/// Forgets the buffers that are decoded to their ends, of threads that are over, or have another one: rows of
/// open calls have the number of their thread's.
fn forget_buffers(known: &mut BTreeMap<u32, AuxOwner>, continuation: &Continuation, ended: &[Tid]) {
    let newest: BTreeMap<AuxOwner, u32> = known.iter().map(|(index, owner)| (*owner, *index)).collect();
    known.retain(|index, owner| match *owner {
        AuxOwner::Cpu(_) => true,
        AuxOwner::Thread(tid) => {
            let is_last = newest.get(owner) == Some(index) && !ended.contains(&tid);
            is_last || continuation.goes_on(*index)
        }
    });
}

/// All buffers that are known, by number; those without trace in this part are empty.
fn with_empty<'a>(known: &BTreeMap<u32, AuxOwner>, buffers: Vec<AuxBuffer<'a>>) -> Vec<AuxBuffer<'a>> {
    let empty = |(&index, &owner)| (index, AuxBuffer { index, owner, pieces: vec![], records: vec![] });
    let mut all: BTreeMap<u32, AuxBuffer<'a>> = known.iter().map(empty).collect();
    all.extend(buffers.into_iter().map(|buffer| (buffer.index, buffer)));
    all.into_values().collect()
}

/// What is the same for all parts of a recording.
fn frame(recording: &Recording<'_>) -> Recording<'static> {
    Recording {
        buffers: Vec::new(),
        sideband: Vec::new(),
        coverage: recording.coverage.clone(),
        pt: recording.pt,
        clock: recording.clock,
        no_times: recording.no_times,
        clock_offsets: recording.clock_offsets,
        ip_filter: recording.ip_filter.clone(),
        cpu_model: recording.cpu_model,
        kernel_release: recording.kernel_release.clone(),
        hostname: recording.hostname.clone(),
        kernel_symbols: String::new(),
        sched_apart_ns: recording.sched_apart_ns,
        command_line: recording.command_line.clone(),
        first_pid: recording.first_pid,
        time_span: None,
        leaves_out: true,
        damage: None,
    }
}

/// In `new` all that `old` has keeps its number: objects, functions, and the address spaces at `time`.
fn extends(new: &Image, old: &Image, schedule: &Schedule, time: Ns) -> bool {
    let is_same_object =
        |(one, other): (model::ObjectId, model::ObjectId)| new.object_name(one) == old.object_name(other);
    let are_objects_there = new.objects().count() >= old.objects().count();
    let last = old.functions().last();
    let pids: BTreeMap<Pid, ()> = schedule.threads().map(|(_, life)| (life.pid, ())).collect();
    are_objects_there
        && new.objects().zip(old.objects()).all(is_same_object)
        && last.is_none_or(|id| new.object(id) == old.object(id))
        && pids.keys().all(|pid| new.space(*pid, time) == old.space(*pid, time))
}
