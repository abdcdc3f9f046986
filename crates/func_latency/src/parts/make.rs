//! `report --part`: decodes one part of a recording into a file.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use analyzer::{Analysis, RunDigester};
use anyhow::{Context as _, Result};
use decoder::{DecodeOptions, NoOutput, Share};
use model::EventSink as _;

use super::file::{Facts, PartWriter};
use crate::args::{CallsArgs, KernelArgs, PartNumber, QueryArgs, ReportArgs};
use crate::calls::{self, Opened};
use crate::config::{CallsConfig, NO_FUNCTION, input_path};
use crate::exit::{Exit, failure};
use crate::output::{self, OutputAsked};
use crate::progress::Progress;
use crate::{recording, recording_id};

/// Decodes the part; `words` is the command line.
pub(crate) fn run(args: ReportArgs, words: &[OsString]) -> Result<Exit> {
    let (PartNumber(share), to) =
        args.part.part.zip(args.part.part_out).context("--part needs --part-out")?;
    check(&args.query)?;
    let words = words.iter().skip(1).map(|word| word.to_str().map(str::to_owned));
    let words: Option<Vec<String>> = words.collect();
    let words = words
        .ok_or_else(|| failure(Exit::Usage, "--part: an argument is no text (UTF-8): name it otherwise"))?;
    let input = input_path(args.input);
    let asked = asked(&args.query.calls);
    let config = CallsConfig::new(input, args.query.calls)?;
    output::check_apart(&config.inputs(), &[OutputAsked { option: "--part-out", path: &to }])?;
    output::check_writable(&to)?;
    calls::open(&config, None, |opened| {
        let facts = facts(opened, share, asked, words);
        write(opened, share, &to, &facts)?;
        Ok(Exit::Done)
    })
}

/// Refuses what a part has nothing of.
fn check(query: &QueryArgs) -> Result<()> {
    if query.calls.names_nothing() {
        return Err(failure(Exit::Usage, NO_FUNCTION));
    }
    let asked = [
        ("--summary", query.summary.is_some()),
        ("--rows", query.rows.is_some()),
        ("--html", query.html.is_some()),
        ("-F", query.flamegraph.is_some()),
        ("-c", query.code_block),
        ("-l", query.timeline),
        ("--explain", query.explain),
        ("--check", query.check),
        ("--counters", query.counters.counters),
        ("--by", query.counters.metric().is_some()),
        ("--max-loss", query.max_loss.is_some()),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        None => Ok(()),
        Some((option, _)) => {
            let message = format!(
                "{option} is of a whole recording: leave it out, or leave out --part{}",
                if *option == "--summary" { "; `merge --summary FILE` of all parts writes one" } else { "" }
            );
            Err(failure(Exit::Usage, message))
        }
    }
}

/// Which calls are asked for, in full: what does not change them is left out, and where the kernel's code is,
/// as only its kind matters.
pub(super) fn asked(calls: &CallsArgs) -> String {
    let is_asked = |path: &Option<PathBuf>| path.as_ref().map(|_| PathBuf::new());
    let KernelArgs { kcore, vmlinux } = &calls.kernel;
    let kernel = KernelArgs { kcore: is_asked(kcore), vmlinux: is_asked(vmlinux) };
    let calls = CallsArgs { workers: None, verbose: false, symfs: None, kernel, ..calls.clone() };
    format!("{calls:?}")
}

fn facts(opened: &Opened<'_>, share: Share, asked: String, words: Vec<String>) -> Facts {
    Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        recording: recording_id::of(opened.recording),
        code: recording_id::of_code(opened.image),
        asked,
        words,
        of: share.of,
        parts: vec![share.number],
    }
}

fn write(opened: &Opened<'_>, share: Share, to: &Path, facts: &Facts) -> Result<()> {
    let Opened { config, recording, schedule, image, .. } = *opened;
    // The events are those that the analysis of the whole will ask for.
    let analysis = Analysis::new(&opened.request()?, opened.surroundings());
    let (asks_about, digester) = (analysis.asks_about(), analysis.digester().map(RunDigester::for_store));
    let context = decoder::Context {
        asks_about: asks_about.as_ref(),
        ..decoder::Context::new(recording, schedule, image, false)
    };
    let options = DecodeOptions { workers: config.workers, ..DecodeOptions::default() };
    let decoder = config.decoder.decoder()?;
    let progress = Progress::new("decoding", recording::aux_bytes(recording) / u64::from(share.of.max(1)));
    let mut decoded = decoder::Decoded::default();
    output::write_file(to, |out| {
        let mut writer = PartWriter::new(out)?;
        let mut written: io::Result<()> = Ok(());
        let mut take = |segment, output: Result<Vec<u8>, NoOutput>| {
            written = output.map_err(io::Error::other).and_then(|output| writer.add(segment, &output));
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let progress = |done| progress.at(done);
        decoded = decoder::decode_share(
            decoder,
            &context,
            &options,
            share,
            &progress,
            digester.as_ref(),
            &mut take,
        );
        written?;
        writer.finish(facts)
    })?;
    drop(progress);
    opened.tell(decoded);
    Ok(())
}

/// The arguments of a command line that made a part.
pub(super) fn parse(words: &[String]) -> Option<ReportArgs> {
    let words = std::iter::once("func_latency").chain(words.iter().map(String::as_str));
    let command = crate::args::parse(words).ok()?.command?;
    let crate::args::Command::Report(args) = command else { return None };
    Some(*args)
}
