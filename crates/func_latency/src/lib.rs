//! `func_latency`: how long every call of a function took, from Intel Processor Trace.
//!
//! ```text
//! args        the command line as typed (filter: values of its options)
//! config      resolved and checked
//! record_command  record_config -> recorder -> perf.data, and then report_command
//!     prepared        all that comes before the window
//!     aim             what is named, in what runs now
//!     live_code       the code of what runs now: names functions and chooses ranges before the recording
//!     ip_ranges       functions -> ranges of the IP filter
//! preview_command what a recording would be
//! uprobe      the same by probes, where there is no trace unit: functions -> calls -> the same report
//! doctor_command  what this machine lets us record
//! report_command  recording -> image, decoder, analyzer -> render::{text, timeline, json, rows, html}
//!     target      -f, -b, -I, -a: names to functions;  regions: those of --region
//!     inside      what the calls of a page are like inside: a second pass
//!     slow_calls  what slow calls did otherwise, for a page with counters: one more pass
//! top_command     the functions of a recording -> render::top
//! explain_command  slow and typical calls -> analyzer::{ledger, branch_path} -> render::explain
//! modes_command   the ways that calls go -> render::modes
//! annotate_command  what calls did in their own code -> listing -> render::annotate
//! diff_command    the calls of two recordings -> analyzer::ledger -> render::diff
//! stat_command    runs that are repeated -> render::stat
//!     runs_made       records them, one after the other
//!     runs_there      runs that were made before: recordings and rows
//! compare_command  two commands in turns -> render::compare
//! merge_command   summaries of recordings (summary) -> the report of all
//! watch       figures while a program runs: recorder -> pieces -> image, decoder, analyzer -> report
//!     render::{interval, screen}  its lines, and its view of the whole screen
//! show_command    one call's tree -> render::tree     one_call: from the trace around it
//! tree_commands   trees of all calls -> export::{folded, flamegraph, pprof, firefox, perfetto, graph}
//!     calls       what the commands that follow calls share: recording, request, decoding
//!     threads     those of a recording, and those of -T
//! bundle_command  recording and image -> a directory for another machine
//! generated_command  completions and man pages, from args
//! dump        packets, branches, sideband, one per line
//! recording_id    a name for what is in a recording
//! output      files that results go to: none is an input, each is whole or not there
//! remedy      what to do about a loss
//! host        what this machine keeps: caches by build id, its vDSO
//! terminal    its width and colours
//! uncalled    what is said of functions that were not called
//! printable   text from the traced program, made harmless
//! exit        the one place that decides exit codes
//! ```
//!
//! Results go to stdout and depend on nothing but the recording and the options; everything else goes to
//! stderr. Only this crate prints, exits and reads the environment.
//!
//! # As a library
//!
//! The crates below this one are a library. A report is a recording, an image of the code that ran, and an
//! analysis that takes the events which the decoder finds:
//!
//! ```
//! # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
//! # let path = format!("{root}/fuzz/corpus/perfdata/seed-plain");
//! # let symfs = Some(format!("{root}/fuzz/program").into());
//! let file = perfdata::File::open(path)?;
//! let recording = file.recording()?;
//! let options = image::ImageOptions { symfs, ..Default::default() };
//! let image = image::Image::load(&recording.sideband, &options);
//! let schedule = model::Schedule::new(&recording.sideband);
//! let query = image::Query { text: "round_of".to_owned(), object: None };
//! let functions = image.find(&query)?.into_iter().map(|function| function.id).collect();
//! let request = analyzer::Request { functions, ..Default::default() };
//! let around = analyzer::Surroundings::of(&recording, &schedule, &image);
//! let mut analysis = analyzer::Analysis::new(&request, around);
//! decoder::decode(&recording, &schedule, &image, &image, &Default::default(), &|_| (), &mut analysis);
//! for function in analysis.finish().functions {
//!     println!("{} calls took {} ns", function.figures.latency.count, function.figures.latency.sum_ns);
//! #   assert!(function.figures.latency.count > 0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aim;
mod annotate_command;
pub mod args;
mod bundle_command;
mod bundle_dir;
mod calls;
mod compare_command;
pub mod config;
mod decoding;
mod diff_command;
mod diff_groups;
mod doctor_command;
pub mod dump;
pub mod exit;
mod explain_command;
mod explain_config;
mod explain_open;
pub mod export;
pub mod filter;
mod generated_command;
mod host;
pub mod inside;
mod ip_ranges;
mod kernel_code;
mod lines_with;
pub mod listing;
mod live_code;
mod merge_command;
mod messages;
mod modes_command;
pub mod one_call;
mod open_page;
mod output;
mod parts;
mod plan_command;
mod prepared;
mod preview_command;
mod printable;
mod progress;
mod record_command;
mod record_config;
mod recording;
mod recording_id;
mod regions;
mod remedy;
pub mod render;
mod report_command;
mod row_calls;
mod row_file;
mod runs_made;
mod runs_there;
mod sched;
mod shell;
mod shell_line;
mod show_command;
mod slow_calls;
mod stat_command;
mod stored_trace;
mod stripped;
mod summary;
mod target;
mod terminal;
#[cfg(test)]
mod test_rows;
mod threads;
mod top_command;
mod top_config;
mod tree_commands;
pub mod tree_config;
mod trigger_words;
mod uncalled;
#[cfg(feature = "bpf")]
mod uprobe;
#[cfg(not(feature = "bpf"))]
#[path = "without_uprobe.rs"]
mod uprobe;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use args::{Command, CommandLine};
use config::{BundleConfig, DumpConfig, ReportConfig};
use exit::Exit;
use explain_config::{AnnotateConfig, ExplainConfig, ModesConfig};
use top_config::TopConfig;
use tree_config::{ExportConfig, GraphConfig, ShowConfig};

/// Runs the command with the process's arguments.
#[must_use]
pub fn run() -> ExitCode {
    run_words(std::env::args_os()).into()
}

/// Runs the command with these arguments, of which the first is the program's name.
#[must_use]
pub fn run_words<W: Into<OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Exit {
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    let command_line = match args::parse(&words) {
        Ok(command_line) => command_line,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // There is no reader to be told that help could not be printed.
            let _ = error.print();
            return exit;
        }
    };
    // Where the system refuses, a file that is cut ends us, as it would have before.
    let _ = files::survive_cut_files();
    let dispatched = dispatch(command_line, &words);
    // A file that was cut explains any other error.
    match recording::check_uncut().and(dispatched) {
        Ok(exit) => exit,
        Err(error) => match exit::of_error(&error) {
            Some(exit) => {
                messages::error(&error);
                if let Some(advice) = exit::advice(&error) {
                    messages::note(advice);
                }
                exit
            }
            None => Exit::Done,
        },
    }
}

fn dispatch(mut command_line: CommandLine, words: &[OsString]) -> Result<Exit> {
    command_line.command.as_mut().map_or(Ok(()), bundle_dir::resolve)?;
    match command_line.command {
        Some(Command::Report(args)) if args.part.part.is_some() => parts::make::run(*args, words),
        Some(Command::Report(args)) => match TopConfig::of_report(&args) {
            Some(of_all) => top_command::run(of_all?),
            None => report_command::run(&ReportConfig::new(*args)?),
        },
        Some(Command::Top(args)) => top_command::run(TopConfig::new(*args)?),
        Some(Command::Explain(args)) => explain_command::run(&ExplainConfig::new(*args)?),
        Some(Command::Modes(args)) => modes_command::run(&ModesConfig::new(*args)?),
        Some(Command::Annotate(args)) => annotate_command::run(&AnnotateConfig::new(*args)?),
        Some(Command::Diff(args)) => diff_command::run(*args),
        Some(Command::Show(args)) => show_command::run(&ShowConfig::new(*args)?),
        Some(Command::Export(args)) => tree_commands::export(&ExportConfig::new(*args)?),
        Some(Command::Graph(args)) => tree_commands::graph(&GraphConfig::new(*args)?),
        Some(Command::Bundle(args)) => bundle_command::run(&BundleConfig::new(args)?),
        Some(Command::Stat(args)) => stat_command::run(*args),
        Some(Command::Compare(args)) => compare_command::run(*args),
        Some(Command::Plan(args)) => plan_command::run(args),
        Some(Command::Merge(args)) => merge_command::run(&args),
        Some(Command::Watch(args)) => watch::run(*args),
        Some(Command::Dump(args)) => dump::run(&DumpConfig::new(args)?),
        Some(Command::Record(args)) => record_command::record(*args),
        Some(Command::Doctor) => doctor_command::run(),
        Some(Command::Completions(args)) => generated_command::completions(&args),
        Some(Command::Man(args)) => generated_command::man(&args),
        None => record_command::run(command_line.record),
    }
}
