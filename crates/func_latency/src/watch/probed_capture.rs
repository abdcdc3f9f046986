//! Captures of what probes have seen: the call with its children, waits and wakers, and the calls around it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use image::Image;
use model::Ns;

use super::captures::{Capturer, Limits, begun, calls_shown};
use super::noticed::Noticed;
use super::triggers::Hit;
use crate::bundle_dir::{BundleDir, CALL_TEXT, CALLS_AROUND, CAPTURE, Capture};
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
        let (from, shown) = self.write_calls(&directory, (from, to))?;
        let name = explain_open::name_to_ask(self.image, names, function);
        let mut capture = begun(place, hit, name, (from, to));
        capture.id = call.map(|(row, _)| row.id.to_string());
        capture.bytes = std::fs::metadata(directory.beside().join(CALLS_AROUND))?.len();
        capture.cause = shown;
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
    /// Writes the calls of a span; returns from when on they are all there, and how many they are, in words.
    fn write_calls(&self, directory: &BundleDir<'_>, span: (Ns, Ns)) -> Result<(Ns, String)> {
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
        let mut latencies_ns = Vec::new();
        for call in calls {
            rows.sink().row(call.function, &call.row, call.waited_for.as_ref());
            latencies_ns.extend(call.row.end.status.counted().then_some(call.row.latency_ns));
        }
        rows.finish()?;
        Ok((from, calls_shown(latencies_ns.into_iter())))
    }

    /// `at 81231456789 ns`, by the clock of all times, and in seconds since 1970.
    fn real_time(&self, time: Ns) -> String {
        let since_1970_ns = i128::from(time.0) + i128::from(self.realtime_offset_ns);
        format!("at {} ns ({:.6} s since 1970)", time.0, since_1970_ns as f64 / 1e9)
    }
}
