//! Decoders alone, without start and report: each run is a process of `tests/bench`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::cases::Case;
use super::runs::Runs;
use crate::layout;
use crate::process::{self, Result};

/// What `tests/bench` printed beside the time.
type Counts = BTreeMap<String, u64>;

pub(super) const HEADER: &str = "\
| recording | MB | branches, M | calls, M | walk, s | ours, s | every branch, s | libipt, s | with time, s | ours, ns a \
branch | ns a call | MB/s | libipt / ours | with time / ours | peak, MB | serial, % |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// Measures all decoders on a recording: a row of the table.
pub(super) fn row(case: &Case, data: &Path) -> Result<String> {
    let [walk, ours, all, libipt, timed] =
        ["walk", "ours", "branches", "libipt", "libipt-time"].map(|decoder| runs(&[decoder], data));
    let [alone, of_three] = ["1", "3"].map(|workers| runs(&["report", case.function, workers], data));
    let (walk, ours, all, libipt, timed) = (walk?, ours?, all?, libipt?, timed?);
    let count = |of: &Runs<Counts>, name: &str| of.last.get(name).copied().unwrap_or(0) as f64;
    let (branches, bytes) = (count(&walk, "branches"), count(&walk, "bytes"));
    let (calls, peak_kb) = (count(&ours, "calls"), count(&ours, "peak_kb"));
    let seconds = ours.median();
    let ns_a_call = if calls > 0.0 { format!("{:.1}", seconds * 1e9 / calls) } else { "-".to_owned() };
    if count(&libipt, "errors") > 0.0 {
        println!("  libipt gave up {} times until the next PSB", count(&libipt, "errors"));
    }
    Ok(format!(
        "| {} | {:.1} | {:.1} | {:.1} | {} | {} | {} | {} | {} | {:.1} | {} | {:.0} | {:.1} | {:.1} | {:.0} | {:.1} |\n",
        case.name,
        bytes / 1e6,
        branches / 1e6,
        calls / 1e6,
        walk.cell(),
        ours.cell(),
        all.cell(),
        libipt.cell(),
        timed.cell(),
        seconds * 1e9 / branches,
        ns_a_call,
        bytes / 1e6 / seconds,
        libipt.median() / seconds,
        timed.median() / seconds,
        peak_kb / 1e3,
        100.0 * of_three?.median() / alone?.median(),
    ))
}

/// Runs what `words` say: decoder, and what it takes besides the recording.
fn runs(words: &[&str], data: &Path) -> Result<Runs<Counts>> {
    let (decoder, arguments) = words.split_first().unwrap_or((&"", &[]));
    let runs = Runs::of(|| {
        let mut bench = Command::new(layout::target().join("release").join("bench"));
        let counts = counts(&process::capture(bench.arg(decoder).arg(data).args(arguments))?);
        Ok((counts.get("ns").copied().unwrap_or(0) as f64 / 1e9, counts))
    })?;
    println!("  {}: {} s", words.join(" "), runs.cell());
    Ok(runs)
}

/// Lines of a name and a number.
fn counts(output: &str) -> Counts {
    let line = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    output.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_decoder_printed() {
        let counts = counts("ns 12\npeak_kb 3\nnoise\n");
        assert_eq!(counts, Counts::from([("ns".to_owned(), 12), ("peak_kb".to_owned(), 3)]));
    }
}
