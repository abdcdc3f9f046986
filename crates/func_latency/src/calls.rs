//! What the commands that follow calls share: a recording with its code, the request, and the decoding.

use std::collections::BTreeSet;
use std::path::PathBuf;

use analyzer::{
    Analysis, Ancestor, CountersAsked, LatencyRange, Report, Request, RunDigest, RunDigester, StartWindow,
    Surroundings, TreeSink,
};
use anyhow::Result;
use decoder::{DecodeOptions, Decoded, SegmentDecoder};
use image::{Image, ImageOptions, Problem, ProblemKind};
use model::{DigestSink, EventSink, FunctionId, IpFilter, Pid, Recording, Schedule, Tid, TscClock};

use crate::args::{DecoderChoice, Weight};
use crate::config::CallsConfig;
use crate::exit::{Exit, failure};
use crate::filter::{NsRange, TidSet};
use crate::one_call::CallPlace;
use crate::progress::Progress;
use crate::render::Names;
use crate::render::rows::{Labels, Origin};
use crate::render::units::{counted, size};
use crate::stored_trace::StoredTrace;
use crate::target::{self, Remarks, Wanted};
use crate::{host, kernel_code, messages, recording, recording_id, regions, threads};

/// A recording with its code, and the request.
pub(crate) struct Opened<'a> {
    pub(crate) config: &'a CallsConfig,
    pub(crate) recording: &'a Recording<'a>,
    pub(crate) schedule: &'a Schedule,
    pub(crate) image: &'a Image,
    /// What makes a report less than whole: it is said there, or else on stderr.
    pub(crate) problems: Vec<String>,
    /// The functions of `-f`.
    pub(crate) wanted: Vec<Wanted>,
    /// What was decoded of it already: its trace is not read then.
    pub(crate) stored: Option<&'a dyn StoredTrace>,
}

/// Opens the recording that is asked about, finds the functions, and gives both to `work`. `timed` names what
/// needs times, if something does.
///
/// # Errors
/// Those of `work`; the recording cannot be read or has no times, there is no such function or decoder.
pub(crate) fn open<T>(
    config: &CallsConfig,
    timed: Option<&str>,
    work: impl FnOnce(&Opened<'_>) -> Result<T>,
) -> Result<T> {
    open_for_report(config, timed, |opened| {
        opened.problems.iter().for_each(messages::warn);
        work(opened)
    })
}

/// Opens a recording for a report. The report lists the recording's problems; they go to stderr only if there
/// is no report.
///
/// # Errors
/// Those of [`open`].
pub(crate) fn open_for_report<T>(
    config: &CallsConfig,
    timed: Option<&str>,
    work: impl FnOnce(&Opened<'_>) -> Result<T>,
) -> Result<T> {
    // What is not there is said before the recording is read.
    config.decoder.decoder()?;
    let file = recording::open(&config.input)?;
    let recording = recording::read_decodable(&file)?;
    if let Some(what) = timed.or(config.needs_times()) {
        recording::check_times(&recording, what)?;
    }
    let options = ImageOptions {
        binary: config.object.as_ref().map(PathBuf::from),
        ..host::image_options(&recording, config.symfs.as_deref(), &config.kernel)
    };
    let (mut image, schedule) = recording::load_with(&recording, &options);
    let mut problems = problems(&recording, &image);
    kernel_code::check(config, &recording, &image)?;
    let added = regions::add(&mut image, config, Remarks::Now);
    let wanted = added.and_then(|()| target::wanted(&image, config, Remarks::Now));
    let wanted = wanted.inspect_err(|_| problems.iter().for_each(messages::warn))?;
    problems.extend(kernel_code::limit(&recording, &image, wanted.iter().map(|wanted| wanted.function.id)));
    work(&Opened {
        config,
        recording: &recording,
        schedule: &schedule,
        image: &image,
        problems,
        wanted,
        stored: None,
    })
}

/// What makes a report less than whole.
fn problems(recording: &Recording<'_>, image: &Image) -> Vec<String> {
    let mut problems: Vec<String> = recording::damage(recording).into_iter().collect();
    let filter = IpFilter::parse(&recording.ip_filter);
    for Problem { object, what, kind } in image.problems() {
        let is_traced = object.and_then(|id| filter.has_file(image.object_name(id))) != Some(false);
        match kind {
            // As the user wants it.
            ProblemKind::Substitute => messages::note(what),
            // Of a library outside of the IP filter no code is needed.
            ProblemKind::Unusable if !is_traced => (),
            _ => problems.push(what),
        }
    }
    if recording.pt.kernel && recording.pt.user && !image.has_kernel_text() {
        messages::note(
            "the kernel was traced, and its code is not here: its time is that of the system calls and interrupts \
             (--kcore or --vmlinux give the code)",
        );
    }
    if recording.coverage.is_partial() {
        let what = "there were CPUs of which the recording has neither trace nor switches: a call in which its thread was \
                    there and came back looks as if it had slept, and its latency may be wrong";
        problems.push(what.to_owned());
    }
    let switchers = image.stack_switchers();
    if !switchers.is_empty() {
        let names: Vec<&str> = switchers.iter().map(|id| image.object_basename(*id)).collect();
        problems.push(format!(
            "{} may switch stacks (swapcontext or Go): a switch into a function that is also open cannot be told \
             from unwinding",
            names.join(", ")
        ));
    }
    problems
}

/// The only one, for a `command` that takes one function.
///
/// # Errors
/// There are more.
pub(crate) fn one<'t, T>(command: &str, functions: &'t [T]) -> Result<&'t T> {
    match functions {
        [one] => Ok(one),
        more => {
            let message = format!("{command} takes one function, and {} are named", more.len());
            Err(failure(Exit::Usage, message))
        }
    }
}

impl<'a> Opened<'a> {
    pub(crate) fn surroundings(&self) -> Surroundings<'a> {
        Surroundings::of(self.recording, self.schedule, self.image)
    }

    /// Where rows of this recording are from.
    pub(crate) fn origin(&self, labels: &Labels) -> Origin {
        Origin {
            host: self.recording.hostname.clone(),
            recording: Some(recording_id::of(self.recording)),
            realtime_offset_ns: self.recording.clock_offsets.realtime_ns,
            labels: labels.clone(),
        }
    }

    /// The only function of `-f`, for a `command` that takes one.
    ///
    /// # Errors
    /// There are more.
    pub(crate) fn one_function(&self, command: &str) -> Result<FunctionId> {
        Ok(one(command, &self.wanted)?.function.id)
    }

    /// The names of the functions of `-f`.
    pub(crate) fn names(&self, names: &dyn Names) -> Vec<String> {
        self.wanted.iter().map(|wanted| names.function(wanted.function.id)).collect()
    }

    /// Which calls are asked for; without rows.
    ///
    /// # Errors
    /// There is no such ancestor or thread.
    pub(crate) fn request(&self) -> Result<Request> {
        let Self { config, image, wanted, .. } = self;
        let range = |r: NsRange| LatencyRange { min_ns: r.min, max_ns: r.max };
        let ancestor = match &config.ancestor {
            Some(ancestor) => Some(Ancestor {
                function: target::ancestor(image, config, &ancestor.function, Remarks::Now)?.id,
                latency: range(ancestor.latency_ns),
            }),
            None => None,
        };
        Ok(Request {
            functions: wanted.iter().map(|w| w.function.id).collect(),
            ancestor,
            latency: range(config.latency_ns),
            starts: config.window.map(|w| StartWindow {
                start: w.from,
                min_ns: 0,
                max_ns: w.to.since(w.from),
            }),
            tids: self.tids()?,
            rows: false,
            row_children: false,
            stack_switches: !image.stack_switchers().is_empty(),
            counters: None,
        })
    }

    /// What counters of this recording are known.
    pub(crate) fn counters(&self) -> CountersAsked {
        let Recording { pt, clock, .. } = &self.recording;
        let tsc_khz = clock.and_then(TscClock::khz);
        CountersAsked {
            kernel: pt.kernel && self.image.has_kernel_text(),
            bus_khz: tsc_khz.and_then(|khz| khz.checked_div(pt.max_nonturbo_ratio.into())),
        }
    }

    /// The counters that tell more work from slower work; `None`: running time is not that of the code that
    /// is counted, as time off the CPU, outside of an IP filter or in missing code is in it, or the decoder
    /// does not count.
    pub(crate) fn counters_of_work(&self) -> Option<CountersAsked> {
        let pt = &self.recording.pt;
        let is_missing = |problem: Problem| problem.object.is_some() && problem.kind == ProblemKind::Unusable;
        // With compressed returns no call of missing code is seen whole.
        let calls_missing = !pt.return_compression && self.image.problems().into_iter().any(is_missing);
        let is_all_code = !pt.has_ip_filter && !calls_missing && self.surroundings().no_off_cpu().is_none();
        let does_count = self.config.decoder == DecoderChoice::Own;
        (is_all_code && does_count).then(|| self.counters())
    }

    /// The threads of `-p` and `-T`; empty: all.
    fn tids(&self) -> Result<Vec<Tid>> {
        let Self { config, recording, schedule, .. } = self;
        if config.pids.is_empty() && config.tids == TidSet::default() {
            return Ok(Vec::new());
        }
        let known = threads::known(recording, schedule);
        let process = |tid: &Tid| schedule.thread(*tid).map_or(Pid(tid.0), |life| life.pid);
        let of_process = |tid: &Tid| config.pids.is_empty() || config.pids.contains(&process(tid));
        let chosen: Vec<Tid> =
            known.iter().copied().filter(|tid| config.tids.contains(*tid) && of_process(tid)).collect();
        if chosen.is_empty() {
            if config.tids == TidSet::default() {
                let processes = BTreeSet::from_iter(known.iter().map(|tid| Tid(process(tid).0)));
                let processes = Vec::from_iter(processes);
                return Err(threads::none_of("-p: no such process", &processes));
            }
            let options = if config.pids.is_empty() { "-T" } else { "-p and -T" };
            return Err(threads::none_of(&format!("{options}: no such thread"), &known));
        }
        threads::warn_of_missing(&config.tids, &known);
        Ok(chosen)
    }

    /// Where one call of it is opened.
    pub(crate) fn place(&self) -> CallPlace<'a> {
        let Self { config, recording, schedule, image, .. } = *self;
        CallPlace { recording, schedule, image, workers: config.workers, decoder: config.decoder }
    }

    /// Refuses a weight that is not known.
    ///
    /// # Errors
    /// It is CPU time, and the recording does not tell it from time off the CPU.
    pub(crate) fn check_weight(&self, weight: Weight) -> Result<()> {
        match self.surroundings().no_off_cpu().filter(|_| weight == Weight::Cpu) {
            Some(why) => Err(failure(Exit::BadInput, format!("CPU time is not known: {why}"))),
            None => Ok(()),
        }
    }

    /// Decodes the recording for an analysis. The decoder's workers do a part of that: what they digest.
    ///
    /// # Errors
    /// The decoder is not there, or a file was cut meanwhile.
    pub(crate) fn analyse(
        &self,
        digester: Option<RunDigester<'_>>,
        analysis: &mut dyn DigestSink<RunDigest>,
    ) -> Result<()> {
        self.decode_by(|decoder, context, options, progress| match self.stored {
            None => {
                decoder::decode_digested(decoder, context, options, progress, digester.as_ref(), analysis)
            }
            Some(stored) => {
                let segments = decoder::with_missing(context, &stored.segments());
                let digester = digester.as_ref();
                let parts = decoder::StoredParts { segments: &segments, outputs: stored };
                decoder::join_stored(decoder, context, options, parts, progress, digester, analysis)
            }
        })?;
        self.stored.map_or(Ok(()), StoredTrace::check_read)
    }

    /// Decodes all of it.
    ///
    /// # Errors
    /// The decoder is not there, or a file was cut meanwhile.
    pub(crate) fn decode(&self, sink: &mut dyn EventSink) -> Result<()> {
        self.decode_by(|decoder, context, options, progress| {
            decoder::decode_with(decoder, context, options, progress, sink)
        })
    }

    fn decode_by(
        &self,
        decode: impl FnOnce(
            Box<dyn SegmentDecoder>,
            &decoder::Context<'_>,
            &DecodeOptions,
            &dyn Fn(u64),
        ) -> Decoded,
    ) -> Result<()> {
        let Self { config, recording, schedule, image, .. } = *self;
        let options = DecodeOptions { workers: config.workers, ..DecodeOptions::default() };
        let progress = Progress::new("decoding", recording::aux_bytes(recording));
        let context = decoder::Context::new(recording, schedule, image, false);
        let decoded = decode(config.decoder.decoder()?, &context, &options, &|done| progress.at(done));
        drop(progress);
        self.tell(decoded);
        recording::check_uncut()
    }

    /// Says how a decode went.
    pub(crate) fn tell(&self, Decoded { stats, diagnosis }: Decoded) {
        if stats.kernel_desyncs > 0 {
            let places = counted(stats.kernel_desyncs, "place");
            messages::warn(format!(
                "the kernel's code is not what ran at {places}: from there to the return to user code it was skipped"
            ));
        }
        if self.config.verbose {
            messages::note(format!(
                "{} of trace in {}, {}, {}, {}; {}",
                size(stats.bytes),
                counted(stats.segments, "segment"),
                counted(stats.events, "event"),
                counted(stats.overflows, "overflow"),
                counted(stats.clock_errors, "clock contradiction"),
                counted(self.config.workers as u64, "worker")
            ));
            diagnosis.into_iter().for_each(messages::note);
        }
    }

    /// The report on a request.
    ///
    /// # Errors
    /// The decoder is not there.
    pub(crate) fn report(&self, request: &Request) -> Result<Report> {
        let mut analysis = Analysis::new(request, self.surroundings());
        self.analyse(analysis.digester(), &mut analysis)?;
        Ok(analysis.finish())
    }

    /// Gives the trees of the wanted functions' calls, or of all, to `sink`; the report on them.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub(crate) fn trees(&self, sink: &mut dyn TreeSink) -> Result<Report> {
        self.counted_trees(sink, None)
    }

    /// [`Self::trees`], with what their nodes executed, if that is asked for.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub(crate) fn counted_trees(
        &self,
        sink: &mut dyn TreeSink,
        counters: Option<CountersAsked>,
    ) -> Result<Report> {
        let request = Request { counters, ..self.request()? };
        let mut analysis = Analysis::with_trees(&request, self.surroundings(), sink);
        self.decode(&mut analysis)?;
        Ok(analysis.finish())
    }
}
