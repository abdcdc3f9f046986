//! The captures: which hits get one, when their trace is there, how they are written, and which stay.
//!
//! ```text
//!   hit       |--call--|                         within the rate, and slower than the captures that are kept
//!   waits     |--before--|--call--|--after--|    until everything up to its end is decoded
//!   written   .bundle-XXXX/ -> TIME-ID/          whole under its name, or not at all
//!   kept      the slowest, by number and bytes
//! ```

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use analyzer::{CallRow, Request};
use anyhow::{Context as _, Result, ensure};
use model::{Ns, Recording};
use perfdata::{Source, write_excerpt};

use super::extent::excerpt;
use super::growing::Growing;
use super::triggers::Hit;
use crate::bundle_dir::{BundleDir, CAPTURE, CAPTURE_SCHEMA, Capture, OBJECTS, RECORDING};
use crate::calls::{self, Opened};
use crate::config::CallsConfig;
use crate::filter::{NsRange, TidSet};
use crate::render::image_names::ImageNames;
use crate::render::screen::figures::capture_name;
use crate::render::units::{counted, duration, size};
use crate::trigger_words::Rate;
use crate::{explain_command, explain_open, messages};

/// Where captures go, and how many.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) directory: PathBuf,
    pub(super) before_ns: u64,
    pub(super) after_ns: u64,
    pub(super) rate: Rate,
    pub(super) keep: usize,
    pub(super) keep_bytes: u64,
}

/// Hits that wait for their trace; more are left out as if the rate did not allow them.
const WAITING_MAX: usize = 1 << 10;

/// The trace that there is.
pub(super) struct CaptureTrace<'a> {
    /// The files that have it, in order.
    pub(super) files: Vec<Source<'a>>,
    /// What is in each of them; records besides the trace are not needed.
    pub(super) recordings: Vec<&'a Recording<'a>>,
    /// What is older is gone; `None`: nothing is.
    pub(super) begins: Option<Ns>,
}

/// The captures of a watch.
pub(super) struct Captures {
    limits: Limits,
    calls: CallsConfig,
    waiting: Vec<Hit>,
    kept: Vec<Kept>,
    /// When the last ones ended, for the rate.
    recent: VecDeque<Ns>,
    counts: Counts,
}

/// What became of hits.
#[derive(Default)]
struct Counts {
    hits: u64,
    beyond_rate: u64,
    less_slow: u64,
    made: u64,
    failed: u64,
}

/// A capture that is there.
struct Kept {
    path: PathBuf,
    latency_ns: Option<u64>,
    is_asked: bool,
    at: Ns,
    bytes: u64,
}

impl Captures {
    pub(super) fn new(limits: Limits, calls: CallsConfig) -> Self {
        let (waiting, kept, recent, counts) = (Vec::new(), Vec::new(), VecDeque::new(), Counts::default());
        Self { limits, calls, waiting, kept, recent, counts }
    }

    /// Takes hits, in the order of their ends, as far as the limits allow.
    pub(super) fn take(&mut self, hits: Vec<Hit>) {
        for hit in hits {
            self.counts.hits += 1;
            let Rate { number, per } = self.limits.rate;
            let end = hit.span.1;
            while self.recent.front().is_some_and(|at| at.0.saturating_add(per.0) <= end.0) {
                self.recent.pop_front();
            }
            let is_same = |known: &&mut Hit| (known.span, &known.name) == (hit.span, &hit.name);
            if let Some(known) = self.waiting.iter_mut().find(is_same) {
                known.is_asked |= hit.is_asked;
            } else if hit.is_asked && self.waiting.len() < WAITING_MAX {
                self.waiting.push(hit);
            } else if self.recent.len() >= number as usize || self.waiting.len() >= WAITING_MAX {
                self.counts.beyond_rate += 1;
            } else if self.is_least(&hit) {
                self.counts.less_slow += 1;
            } else {
                self.recent.push_back(end);
                self.waiting.push(hit);
            }
        }
    }

    /// Counts hits that were not looked at, because there were too many.
    pub(super) fn leave_out(&mut self, hits: u64) {
        self.counts.hits += hits;
        self.counts.beyond_rate += hits;
    }

    /// It would be the first to be removed.
    fn is_least(&self, hit: &Hit) -> bool {
        let is_slower = |kept: &Kept| {
            kept.is_asked
                || kept.latency_ns > hit.latency_ns
                || kept.latency_ns == hit.latency_ns && hit.latency_ns.is_some()
        };
        !hit.is_asked && self.kept.len() >= self.limits.keep && self.kept.iter().all(is_slower)
    }

    /// The time from which on the trace is needed, for hits that wait and for the next ones.
    pub(super) fn needs_from(&self, decoded_until: Ns) -> Ns {
        let starts = self.waiting.iter().map(|hit| hit.span.0);
        let first = starts.fold(decoded_until, Ns::min);
        Ns(first.0.saturating_sub(self.limits.before_ns))
    }

    /// Makes the captures that have all of their trace; `until` is when the trace ends, or `None` if no more
    /// comes. `made` gets each of them. One that cannot be made is a warning.
    pub(super) fn make(
        &mut self,
        growing: &Growing,
        trace: &CaptureTrace<'_>,
        until: Option<Ns>,
        made: &mut dyn FnMut(&Capture),
    ) {
        let after_ns = self.limits.after_ns;
        let is_there =
            |hit: &mut Hit| until.is_none_or(|until| hit.span.1.0.saturating_add(after_ns) <= until.0);
        let due: Vec<Hit> = self.waiting.extract_if(.., is_there).collect();
        for hit in due {
            if self.is_least(&hit) {
                self.counts.less_slow += 1;
                continue;
            }
            let place = self.limits.directory.join(capture_name(hit.span.0.0, &hit.name));
            if let Some(capture) = capture_at(&place) {
                made(&capture);
                continue;
            }
            match self.write(&place, growing, trace, &hit) {
                Ok(capture) => {
                    self.counts.made += 1;
                    let at = hit.span.1;
                    let Hit { latency_ns, is_asked, .. } = hit;
                    self.kept.push(Kept {
                        path: place.clone(),
                        latency_ns,
                        is_asked,
                        at,
                        bytes: capture.bytes,
                    });
                    self.remove_least();
                    match self.kept.iter().any(|kept| kept.path == place) {
                        true => made(&capture),
                        false => messages::warn(format!("{} had no room: see --keep", capture.path)),
                    }
                }
                Err(error) => {
                    self.counts.failed += 1;
                    messages::warn(format!(
                        "no capture of {} at {} ns: {error:#}; the watch goes on",
                        hit.name, hit.span.0.0
                    ));
                }
            }
        }
    }

    /// Removes captures down to the limits: first the oldest of no call, then the least slow calls; captures
    /// asked for by hand come last.
    fn remove_least(&mut self) {
        let is_too_much = |kept: &[Kept], limits: &Limits| {
            let bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
            kept.len() > limits.keep || (bytes > limits.keep_bytes && kept.len() > 1)
        };
        while is_too_much(&self.kept, &self.limits) {
            let rank = |at: &usize| self.kept.get(*at).map(|it| (it.is_asked, it.latency_ns, it.at));
            let least = (0..self.kept.len()).min_by_key(rank);
            let Some(least) = least else { return };
            let Kept { path, .. } = self.kept.remove(least);
            // Under a name that no reader takes for a capture: half of one is never seen.
            let gone = path.with_file_name(format!(".removed-{}", std::process::id()));
            // One may be left of a process of this number that was killed.
            let _ = fs::remove_dir_all(&gone);
            let removed = fs::rename(&path, &gone).and_then(|()| fs::remove_dir_all(&gone));
            if let Err(error) = removed {
                messages::warn(format!("cannot remove {}: {error}", path.display()));
            }
        }
    }

    /// Writes one capture.
    fn write(&self, place: &Path, growing: &Growing, trace: &CaptureTrace<'_>, hit: &Hit) -> Result<Capture> {
        let image = growing.image().context("no code is known yet")?;
        let function = hit.function.or_else(|| growing.wanted().first().map(|wanted| wanted.function.id));
        let function = function.context("no function is known yet")?;
        let is_gone = trace.begins.is_some_and(|begins| begins > hit.span.1);
        ensure!(!is_gone, "its trace is gone: --spool has room for more");
        let from =
            Ns(hit.span.0.0.saturating_sub(self.limits.before_ns)).max(trace.begins.unwrap_or_default());
        let to = Ns(hit.span.1.0.saturating_add(self.limits.after_ns));
        let directory = BundleDir::new(place)?;
        let excerpt = excerpt(&trace.recordings, from, to);
        directory.write_by(RECORDING.as_ref(), |out| Ok(write_excerpt(&trace.files, &excerpt, out)?))?;
        let mut bundles = vec![image.bundle()];
        if trace.recordings.iter().any(|recording| recording.pt.kernel) {
            bundles.push(image.bundle_of_kernel());
        }
        let objects_bytes = directory.write_objects(&bundles)?;
        let recording_bytes = fs::metadata(directory.beside().join(RECORDING))?.len();
        let mut capture = Capture {
            schema: CAPTURE_SCHEMA.to_owned(),
            path: place.display().to_string(),
            trigger: hit.trigger.clone(),
            function: explain_open::name_to_ask(image, &ImageNames::new(image, false), function),
            id: None,
            tid: hit.tid.map(|tid| tid.0),
            start_ns: hit.latency_ns.map(|_| hit.span.0.0),
            latency_ns: hit.latency_ns,
            from_ns: from.0,
            to_ns: to.0,
            bytes: objects_bytes + recording_bytes,
            cause: String::new(),
        };
        if let Err(error) = self.explain(&directory, hit, &mut capture) {
            // The trace is what cannot be had again.
            capture.cause = format!("no cause: {error:#}");
        }
        let text = serde_json::to_vec_pretty(&capture)?;
        directory.write(CAPTURE.as_ref(), &text)?;
        directory.take_place()?;
        Ok(capture)
    }

    /// Finds the call in the capture, and why it was slow.
    fn explain(&self, directory: &BundleDir<'_>, hit: &Hit, capture: &mut Capture) -> Result<()> {
        let config = CallsConfig {
            input: directory.beside().join(RECORDING),
            symfs: Some(directory.beside().join(OBJECTS)).filter(|objects| objects.is_dir()),
            functions: vec![capture.function.clone()],
            candidate: None,
            object: None,
            pids: Vec::new(),
            tids: TidSet::default(),
            ancestor: None,
            latency_ns: NsRange::ALL,
            verbose: false,
            ..self.calls.clone()
        };
        calls::open_for_report(&config, None, |opened| {
            let report = opened.report(&Request { rows: true, ..opened.request()? })?;
            let rows = report.functions.first().map_or(&[][..], |function| &function.rows);
            let Some(call) = call_of(rows, hit) else {
                let cause = match hit.latency_ns {
                    Some(_) => "not known: the capture does not show the call as a whole",
                    None => "it is about no call",
                };
                cause.clone_into(&mut capture.cause);
                return Ok(());
            };
            capture.id = Some(call.id.to_string());
            capture.start_ns = Some(call.start_ns.0);
            capture.latency_ns = Some(call.latency_ns);
            capture.cause = cause(opened, rows, call)?;
            Ok(())
        })
    }

    /// Anything was hit.
    pub(super) fn has_hits(&self) -> bool {
        self.counts.hits > 0
    }

    /// Says what became of all hits.
    pub(super) fn summarise(&self) {
        let Counts { hits, beyond_rate, less_slow, made, failed } = self.counts;
        let bytes: u64 = self.kept.iter().map(|kept| kept.bytes).sum();
        let Limits { directory, rate, .. } = &self.limits;
        let mut said = format!(
            "{}, {made} captured, {} kept in {} ({})",
            counted(hits, "hit"),
            self.kept.len(),
            directory.display(),
            size(bytes)
        );
        let without = [
            (beyond_rate, format!("beyond {} in {}", rate.number, duration(rate.per.0))),
            (less_slow, "less slow than those kept".to_owned()),
            (failed, "failed".to_owned()),
        ];
        for (number, why) in without.iter().filter(|(number, _)| *number > 0) {
            said = format!("{said}; {number} {why}");
        }
        messages::note(said);
    }
}

/// The capture that is in a directory: of another watch of the recording, or of another trigger.
fn capture_at(place: &Path) -> Option<Capture> {
    let capture: Capture = serde_json::from_slice(&fs::read(place.join(CAPTURE)).ok()?).ok()?;
    Some(Capture { path: place.display().to_string(), ..capture })
}

/// The call that was hit, or the innermost one in which something happened.
fn call_of<'r>(rows: &'r [CallRow], hit: &Hit) -> Option<&'r CallRow> {
    let tid = hit.tid?;
    let of_thread = rows.iter().filter(|row| row.tid == tid);
    if hit.latency_ns.is_some() {
        let distance = |row: &&CallRow| {
            row.start_ns.0.abs_diff(hit.span.0.0).saturating_add(row.end_ns().abs_diff(hit.span.1.0))
        };
        let overlaps = |row: &&CallRow| row.start_ns <= hit.span.1 && row.end_ns() >= hit.span.0.0;
        return of_thread.filter(overlaps).min_by_key(distance);
    }
    let has_it = |row: &&CallRow| row.start_ns <= hit.span.0 && row.end_ns() > hit.span.0.0;
    of_thread.filter(has_it).max_by_key(|row| row.start_ns)
}

/// The cause of a call, or why it is not known.
fn cause(opened: &Opened<'_>, rows: &[CallRow], call: &CallRow) -> Result<String> {
    let cause = explain_command::cause_of(opened, rows, call.id)?;
    Ok(cause.unwrap_or_else(|why| format!("no cause: {why}")))
}
