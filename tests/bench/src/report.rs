//! The report on one function: decoding and analysis.

use analyzer::{Analysis, CountersAsked, Request, Surroundings};
use anyhow::Result;
use decoder::{Context, DecodeOptions, OwnDecoder};
use image::Query;

use crate::Counts;
use crate::opened::Opened;
use crate::serial::{Parallel, Watched};

/// Decodes all that the report on `function` needs, and does its sums; `parallel` adds up what this thread
/// did of that as one of the workers. `counts`: with what calls execute.
pub(crate) fn report(
    opened: &Opened<'_>,
    function: &str,
    workers: usize,
    counts: bool,
    parallel: &Parallel,
) -> Result<Counts> {
    let Opened { recording, schedule, image } = opened;
    let found = image.find(&Query { text: function.to_owned(), ..Query::default() })?;
    let functions = found.iter().map(|found| found.id).collect();
    let counters = counts.then_some(CountersAsked { kernel: false, bus_khz: None });
    let request = Request { functions, counters, ..Request::default() };
    let mut analysis = Analysis::new(&request, Surroundings::of(recording, schedule, image));
    let options = DecodeOptions { workers, ..DecodeOptions::default() };
    let digester = analysis.digester().map(|digester| Watched(digester, parallel.clone()));
    let context = Context::new(recording, schedule, image, false);
    let decoder = Box::new(Watched(OwnDecoder::default(), parallel.clone()));
    let digester = digester.as_ref();
    decoder::decode_digested(decoder, &context, &options, &|_| (), digester, &mut analysis);
    let report = analysis.finish();
    let calls = report.functions.iter().map(|function| function.figures.latency.count).sum();
    let mut counts = vec![("calls", calls)];
    if let Some(counters) = report.functions.first().and_then(|function| function.figures.counters.as_ref()) {
        counts.push(("instructions", counters.sum.executed.instructions));
        counts.extend(counters.sum.cycles.map(|cycles| ("cycles", cycles.count)));
        counts.extend(counters.sum.cycles.map(|cycles| ("cycles_error", cycles.error)));
    }
    Ok(counts)
}
