//! What the commands that follow calls share: a recording with its code, what is asked of it, and the decoding.

use analyzer::{Analysis, Ancestor, LatencyRange, Report, Request, StartWindow, Surroundings, TreeSink};
use anyhow::Result;
use decoder::{DecodeOptions, SegmentDecoder};
use image::Image;
use model::{AuxOwner, EventSink, Pid, Recording, Schedule, Tid};

use crate::config::CallsConfig;
use crate::exit::{Exit, failure};
use crate::filter::{NsRange, TidSet};
use crate::progress::Progress;
use crate::render::units::{counted, size};
use crate::target::{self, Remarks, Wanted};
use crate::{messages, recording};

/// A recording, and what is asked of it.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) config: &'a CallsConfig,
    pub(crate) recording: &'a Recording<'a>,
    pub(crate) schedule: &'a Schedule,
    pub(crate) image: &'a Image,
    pub(crate) decoder: &'a dyn SegmentDecoder,
}

impl<'a> Opened<'a> {
    pub(crate) fn surroundings(&self) -> Surroundings<'a> {
        Surroundings::of(self.recording, self.schedule, self.image)
    }

    /// What makes the report less than whole; said on stderr, too.
    pub(crate) fn problems(&self) -> Vec<String> {
        let Self { recording, image, .. } = self;
        let mut problems: Vec<String> = recording::damage(recording).into_iter().collect();
        for problem in image.problems() {
            messages::warn(&problem.what);
            problems.push(problem.what);
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
            messages::warn(what);
            problems.push(what.to_owned());
        }
        let switchers = image.stack_switchers();
        if !switchers.is_empty() {
            let names: Vec<&str> = switchers.iter().map(|id| image.object_basename(*id)).collect();
            let what = format!(
                "{} may switch stacks (swapcontext or Go): a switch into a function that is also open cannot be told \
                 from unwinding",
                names.join(", ")
            );
            messages::warn(&what);
            problems.push(what);
        }
        problems
    }

    /// Which calls are asked for; without rows.
    ///
    /// # Errors
    /// There is no such ancestor or thread.
    pub(crate) fn request(&self, wanted: &[Wanted]) -> Result<Request> {
        let Self { config, image, .. } = self;
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
        })
    }

    /// The threads of `-p` and `-T`; empty: all.
    fn tids(&self) -> Result<Vec<Tid>> {
        let Self { config, recording, schedule, .. } = self;
        if config.pids.is_empty() && config.tids == TidSet::default() {
            return Ok(Vec::new());
        }
        let owners = recording.buffers.iter().filter_map(|buffer| match buffer.owner {
            AuxOwner::Thread(tid) => Some(tid),
            AuxOwner::Cpu(_) => None,
        });
        let mut known: Vec<Tid> = schedule.threads().map(|(tid, _)| tid).chain(owners).collect();
        known.sort_unstable();
        known.dedup();
        let of_process = |tid: &Tid| {
            config.pids.is_empty()
                || config.pids.contains(&schedule.thread(*tid).map_or(Pid(tid.0), |life| life.pid))
        };
        let chosen: Vec<Tid> =
            known.iter().copied().filter(|tid| config.tids.contains(*tid) && of_process(tid)).collect();
        let list = known.iter().map(|tid| tid.0.to_string()).collect::<Vec<_>>().join(", ");
        if chosen.is_empty() {
            let message = format!("-p or -T: no such thread in the recording, which has {list}");
            return Err(failure(Exit::Nothing, message));
        }
        for range in config.tids.0.iter().filter(|range| !known.iter().any(|tid| range.contains(*tid))) {
            messages::warn(format!("-T {range}: no such thread in the recording, which has {list}"));
        }
        Ok(chosen)
    }

    /// Decodes all of it.
    pub(crate) fn decode(&self, sink: &mut dyn EventSink) {
        self.decode_branches(false, sink);
    }

    /// Decodes all of it; `all_branches`: with the jumps inside of functions.
    pub(crate) fn decode_branches(&self, all_branches: bool, sink: &mut dyn EventSink) {
        let Self { config, recording, schedule, image, decoder } = *self;
        let options = DecodeOptions { workers: config.workers, ..DecodeOptions::default() };
        let progress = Progress::new("decoding", recording::aux_bytes(recording));
        let report = |done| progress.at(done);
        let context = decoder::Context::new(recording, schedule, image, all_branches);
        let stats = decoder::decode_with(decoder, &context, &options, &report, sink);
        drop(progress);
        if stats.kernel_desyncs > 0 {
            let places = counted(stats.kernel_desyncs, "place");
            messages::warn(format!(
                "the kernel's code is not what ran at {places}: from there to the return to user code it was skipped"
            ));
        }
        if config.verbose {
            messages::note(format!(
                "{} of trace in {}, {}, {}, {}; {}",
                size(stats.bytes),
                counted(stats.segments, "segment"),
                counted(stats.events, "event"),
                counted(stats.overflows, "overflow"),
                counted(stats.clock_errors, "clock contradiction"),
                counted(config.workers as u64, "worker")
            ));
            decoder.diagnosis().into_iter().for_each(messages::note);
        }
    }

    /// The report on a request.
    pub(crate) fn report(&self, request: &Request) -> Report {
        let mut analysis = Analysis::new(request, self.surroundings());
        self.decode(&mut analysis);
        analysis.finish()
    }

    /// Gives the trees of the wanted functions' calls, or of all, to `sink`.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub(crate) fn trees(&self, wanted: &[Wanted], sink: &mut dyn TreeSink) -> Result<()> {
        let request = self.request(wanted)?;
        let mut analysis = Analysis::with_trees(&request, self.surroundings(), sink);
        self.decode(&mut analysis);
        let _ = analysis.finish(); // gives out what is still open
        Ok(())
    }
}
