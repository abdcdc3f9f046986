//! Decodes a recording once with one decoder, in this process, and prints how long that took and what came
//! out.
//!
//! ```text
//! bench walk | ours | branches | libipt | libipt-time FILE
//! bench report FILE FUNCTION WORKERS [counters]
//! ```
//!
//! Opening the recording and loading its objects is not in the time, and its bytes are in memory before.
//! Output, for `cargo xtask bench`, which starts a process for each run, so that all caches start empty and
//! the peak of memory is that decoder's:
//!
//! ```text
//! ns 104000000         the first thread on the CPU, so that a busy machine does less harm: with one worker
//!                      that is all, with more what only one thread can do
//! peak_kb 120000       most memory that was resident, the mapped recording and objects with it
//! NAME COUNT           what the decoder gave
//! ```

#[cfg(feature = "libipt")]
mod libipt_blocks;
mod opened;
mod ours;
mod report;
mod serial;
mod stopwatch;
mod walk;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use opened::Opened;
use serial::Parallel;
use stopwatch::Stopwatch;

/// What a decoder gave: names and numbers.
type Counts = Vec<(&'static str, u64)>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (decoder, path, of_report) = match words[..] {
        ["report", path, function, workers] => {
            ("report", path, (function, workers.parse().context("WORKERS")?, false))
        }
        ["report", path, function, workers, "counters"] => {
            ("report", path, (function, workers.parse().context("WORKERS")?, true))
        }
        [decoder, path] => (decoder, path, ("", 1, false)),
        _ => bail!(
            "usage: bench walk|ours|branches|libipt|libipt-time FILE, or bench report FILE FUNCTION WORKERS \
             [counters]"
        ),
    };
    let file = perfdata::File::open(Path::new(path))?;
    let opened = Opened::new(&file)?;
    opened.touch();
    let mut watch = Stopwatch::start();
    let counts = match decoder {
        "walk" => walk::walk(&opened),
        "ours" => ours::decode(&opened, false),
        "branches" => ours::decode(&opened, true),
        "report" => {
            let (function, workers, counts) = of_report;
            let parallel = Parallel::new();
            let counts = report::report(&opened, function, workers, counts, &parallel)?;
            if workers > 1 {
                watch.leave_out(parallel.ns());
            }
            counts
        }
        #[cfg(feature = "libipt")]
        "libipt" => libipt_blocks::decode(&opened, false)?,
        #[cfg(feature = "libipt")]
        "libipt-time" => libipt_blocks::decode(&opened, true)?,
        other => bail!("do not know the decoder `{other}`, or was built without it"),
    };
    let mut text = format!("ns {}\npeak_kb {}\n", watch.ns(), peak_kb());
    for (name, count) in counts {
        text += &format!("{name} {count}\n");
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// `VmHWM` of this process; 0 if the kernel does not say.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
