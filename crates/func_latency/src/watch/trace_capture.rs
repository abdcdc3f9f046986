//! Captures of trace: what is kept of it, and why its call was slow.

use std::fs;
use std::path::Path;

use analyzer::{CallRow, Request};
use anyhow::{Context as _, Result, ensure};
use model::{Ns, Recording};
use perfdata::{Excerpt, Source, write_excerpt};
use recorder::Copied;

use super::captures::{Capturer, Limits, begun, calls_shown};
use super::display::SeenCalls as _;
use super::extent::excerpt;
use super::growing::Growing;
use super::triggers::Hit;
use crate::bundle_dir::{BundleDir, CAPTURE, Capture, OBJECTS, RECORDING};
use crate::calls::{self, Opened};
use crate::config::CallsConfig;
use crate::filter::{NsRange, TidSet};
use crate::render::image_names::ImageNames;
use crate::{explain_command, explain_open};

/// The trace that captures are made of.
pub(super) struct CaptureTrace<'a> {
    /// The files that have it, in order.
    pub(super) files: Vec<Source<'a>>,
    /// What is in each of them; records besides the trace are not needed.
    pub(super) recordings: Vec<&'a Recording<'a>>,
    /// What is older is gone; `None`: nothing is.
    pub(super) begins: Option<Ns>,
    /// What was copied of rings that are overwritten, which a capture has as a whole; `None`: all trace is
    /// there.
    pub(super) copies: Option<CopiedRings>,
}

/// What rings that are overwritten had.
pub(super) struct CopiedRings {
    pub(super) copied: Copied,
    /// Records that no file has ([`Excerpt::untold`]).
    pub(super) untold: Vec<u8>,
}

impl CaptureTrace<'_> {
    /// What a capture has from a time to a time.
    fn excerpt(&self, from: Ns, to: Ns) -> Excerpt {
        match &self.copies {
            Some(CopiedRings { copied, untold }) => {
                let (trace, untold) = (copied.trace.clone(), untold.clone());
                Excerpt { from, to, trace, is_of_copies: true, untold }
            }
            None => excerpt(&self.recordings, from, to),
        }
    }

    /// The time of its first record.
    fn first_time(&self) -> Ns {
        let first = self.recordings.iter().find_map(|recording| recording.time_span);
        self.begins.or(first.map(|(first, _)| first)).unwrap_or_default()
    }
}

/// Writes captures of trace.
pub(super) struct TraceCapturer<'a> {
    pub(super) growing: &'a Growing,
    pub(super) trace: &'a CaptureTrace<'a>,
    /// How calls are looked at.
    pub(super) calls: &'a CallsConfig,
}

impl Capturer for TraceCapturer<'_> {
    fn write(&self, limits: &Limits, place: &Path, hit: &Hit) -> Result<Capture> {
        let Self { growing, trace, .. } = self;
        let image = growing.image().context("no code is known yet")?;
        let function = hit.function.or_else(|| growing.wanted().first().map(|wanted| wanted.function.id));
        let function = function.context("no function is known yet")?;
        let is_gone = trace.copies.is_none() && trace.begins.is_some_and(|begins| begins > hit.span.1);
        ensure!(!is_gone, "its trace is gone: --spool has room for more");
        let asked_from = Ns(hit.span.0.0.saturating_sub(limits.before_ns));
        // How far back a ring goes is not known.
        let from = if trace.copies.is_some() { trace.first_time() } else { asked_from };
        let from = from.max(trace.begins.unwrap_or_default());
        let asked_to = Ns(hit.span.1.0.saturating_add(limits.after_ns));
        let to = trace.copies.as_ref().map_or(asked_to, |copies| copies.copied.until);
        let directory = BundleDir::new(place)?;
        let excerpt = trace.excerpt(from, to);
        directory.write_by(RECORDING.as_ref(), |out| Ok(write_excerpt(&trace.files, &excerpt, out)?))?;
        let mut bundles = vec![image.bundle()];
        if trace.recordings.iter().any(|recording| recording.pt.kernel) {
            bundles.push(image.bundle_of_kernel());
        }
        let objects_bytes = directory.write_objects(&bundles)?;
        let recording_bytes = fs::metadata(directory.beside().join(RECORDING))?.len();
        let name = explain_open::name_to_ask(image, &ImageNames::new(image, false), function);
        let mut capture = begun(place, hit, name, (from, to));
        capture.bytes = objects_bytes + recording_bytes;
        if let Err(error) = self.explain(&directory, hit, &mut capture) {
            // The trace is what cannot be had again.
            capture.cause = format!("no cause: {error:#}");
        }
        let text = serde_json::to_vec_pretty(&capture)?;
        directory.write(CAPTURE.as_ref(), &text)?;
        directory.take_place()?;
        Ok(capture)
    }
}

impl TraceCapturer<'_> {
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
                let whole = rows.iter().filter(|row| row.end.status.counted());
                capture.cause = match hit.latency_ns {
                    Some(_) => "not known: the capture does not show the call as a whole".to_owned(),
                    None => calls_shown(whole.map(|row| row.latency_ns)),
                };
                return Ok(());
            };
            capture.id = Some(call.id.to_string());
            capture.start_ns = Some(call.start_ns.0);
            capture.latency_ns = Some(call.latency_ns);
            capture.cause = cause(opened, rows, call)?;
            Ok(())
        })
    }
}

/// The call that was hit, or the innermost one in which something happened.
fn call_of<'r>(rows: &'r [CallRow], hit: &Hit) -> Option<&'r CallRow> {
    let tid = hit.tid?;
    let of_thread = rows.iter().filter(|row| row.id.tid == tid);
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
