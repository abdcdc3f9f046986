//! Captures of what probes have seen: the call with its children, waits and wakers, and the calls around it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use image::Image;
use model::Ns;

use super::captures::{Capturer, Limits};
use super::noticed::Noticed;
use super::triggers::Hit;
use crate::bundle_dir::{BundleDir, CALL_TEXT, CALLS_AROUND, CAPTURE, CAPTURE_SCHEMA, Capture};
use crate::explain_open;
use crate::host;
use crate::render::image_names::ImageNames;
use crate::render::probed_call;
use crate::render::rows::{Labels, Origin, RowsFile, RowsForm, RowsOutput, RowsTarget};
use crate::target::Wanted;

/// Writes captures of what probes have seen.
pub(super) struct ProbedCapturer<'a> {
    pub(super) noticed: &'a Noticed,
    pub(super) image: &'a Image,
    pub(super) names: &'a ImageNames<'a>,
    pub(super) wanted: &'a [Wanted],
    /// What is to be added to times to get real time.
    pub(super) realtime_offset_ns: i64,
}

impl Capturer for ProbedCapturer<'_> {
    fn write(&self, limits: &Limits, place: &Path, hit: &Hit) -> Result<Capture> {
        let Self { noticed, names, wanted, .. } = *self;
        let function = hit.function.or_else(|| wanted.first().map(|wanted| wanted.function.id));
        let function = function.context("no function is known yet")?;
        let call = noticed.call_of(hit);
        ensure!(call.is_some() || hit.latency_ns.is_none(), "what was inside of it is not known any more");
        let from = Ns(hit.span.0.0.saturating_sub(limits.before_ns));
        let to = Ns(hit.span.1.0.saturating_add(limits.after_ns));
        let directory = BundleDir::new(place)?;
        let from = self.write_calls(&directory, (from, to))?;
        let mut capture = Capture {
            schema: CAPTURE_SCHEMA.to_owned(),
            path: place.display().to_string(),
            trigger: hit.trigger.clone(),
            function: explain_open::name_to_ask(self.image, names, function),
            id: call.map(|(row, _)| row.id.to_string()),
            tid: hit.tid.map(|tid| tid.0),
            start_ns: hit.latency_ns.map(|_| hit.span.0.0),
            latency_ns: hit.latency_ns,
            from_ns: from.0,
            to_ns: to.0,
            bytes: std::fs::metadata(directory.beside().join(CALLS_AROUND))?.len(),
            cause: "it is about no call".to_owned(),
        };
        if let Some((row, parts)) = call {
            let start = self.real_time(row.start_ns);
            let text = probed_call::text(row, parts, names, &start);
            capture.bytes += directory.write(CALL_TEXT.as_ref(), text.as_bytes())?;
            capture.cause = probed_call::largest_part(row, parts, names);
        }
        directory.write(CAPTURE.as_ref(), &serde_json::to_vec_pretty(&capture)?)?;
        directory.take_place()?;
        Ok(capture)
    }
}

impl ProbedCapturer<'_> {
    /// Writes the calls of a span; returns from when on they are all there.
    fn write_calls(&self, directory: &BundleDir<'_>, span: (Ns, Ns)) -> Result<Ns> {
        let path = directory.beside().join(CALLS_AROUND);
        let target = RowsTarget::Lines(RowsFile { path, form: RowsForm::JsonLines });
        let origin = Origin {
            host: host::name(),
            recording: None,
            realtime_offset_ns: Some(self.realtime_offset_ns),
            labels: Labels::default(),
        };
        let mut rows = RowsOutput::new(&target, self.names, &origin, None)?;
        let (from, calls) = self.noticed.calls_in(span);
        calls.for_each(|call| rows.sink().row(call.function, &call.row, call.waited_for.as_ref()));
        rows.finish()?;
        Ok(from)
    }

    /// `at 81231456789 ns`, by the clock of all times, and in seconds since 1970.
    fn real_time(&self, time: Ns) -> String {
        let since_1970_ns = i128::from(time.0) + i128::from(self.realtime_offset_ns);
        format!("at {} ns ({:.6} s since 1970)", time.0, since_1970_ns as f64 / 1e9)
    }
}
