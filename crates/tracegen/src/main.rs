//! `tracegen`: see the library.

use std::ffi::OsString;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use model::Tid;
use tracegen::truth::commands;
use tracegen::truth::verify::perf_script::Branches;
use tracegen::{Options, run};

/// Intel PT recordings of real programs, made in software, with their ground truth.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program under the emulator and log its blocks.
    Log {
        /// Directory to write; an older log in it is removed.
        log: PathBuf,
        /// Program and arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
        /// Where to keep the emulator's plugin [the user's cache directory].
        #[arg(long)]
        cache: Option<PathBuf>,
    },
    /// Make a recording and its ground truth from a log.
    Encode {
        /// Directory of the log.
        log: PathBuf,
        /// The recording to write.
        data: PathBuf,
        /// The ground truth to write.
        truth: PathBuf,
        #[command(flatten)]
        options: Box<Options>,
    },
    /// Print the events of a ground truth.
    Truth {
        /// The ground truth.
        truth: PathBuf,
        /// Only this thread; 0: all.
        #[arg(default_value_t = 0)]
        tid: i32,
        /// At most so many events of each thread.
        #[arg(default_value_t = usize::MAX, hide_default_value = true)]
        max: usize,
    },
    /// Print every call of a function, from the ground truth alone, as JSON.
    Calls {
        /// The ground truth.
        truth: PathBuf,
        /// The recording: it has the mappings.
        data: PathBuf,
        /// SYMBOL, FILE:SYMBOL, 0xADDRESS, or a C++ name that only one mangled symbol contains.
        function: String,
        /// First a line for each call.
        #[arg(long)]
        rows: bool,
    },
    /// Compare `perf script --itrace=be -F tid,time,flags,ip,addr --ns`, from standard input, with the truth.
    Verify {
        /// The ground truth.
        truth: PathBuf,
        /// The text was made with `--itrace=cre`.
        #[arg(long)]
        cr: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tracegen: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// False: the comparison found a difference.
fn run(command: Command) -> anyhow::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut agrees = true;
    match command {
        Command::Log { log, program, cache } => {
            let plugin = run::build_plugin(&cache.unwrap_or_else(run::default_cache))?;
            let (program, arguments) = program.split_first().context("no program")?;
            run::log(&plugin, &log, program, arguments)?;
        }
        Command::Encode { log, data, truth, options } => {
            writeln!(out, "{}", tracegen::encode(&log, &data, &truth, &options)?)?;
        }
        Command::Truth { truth, tid, max } => {
            commands::list(&truth, (tid != 0).then_some(Tid(tid)), max, &mut out)?;
        }
        Command::Calls { truth, data, function, rows } => {
            commands::calls(&truth, &data, &function, rows, &mut out)?;
        }
        Command::Verify { truth, cr } => {
            let which = if cr { Branches::CallsAndReturns } else { Branches::All };
            let script = BufReader::with_capacity(1 << 20, io::stdin().lock());
            agrees = commands::verify(&truth, script, which, &mut out)?;
        }
    }
    out.flush()?;
    Ok(agrees)
}
