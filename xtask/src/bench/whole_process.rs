//! Whole programs, from opening the file to the printed result: `func_latency report` and `perf script`.

use std::path::Path;
use std::process::Command;

use super::cases::{Case, Extent};
use super::measure::{Measured, measure};
use super::runs::Runs;
use crate::layout;
use crate::process::Result;

/// Fields that PT_PERF asks `perf script` for.
const PT_PERF_FIELDS: &str = "-F-event,-period,+addr,-comm,+flags,-dso";

pub(super) const HEADER: &str = "\
| recording, function | report, s | 2 workers, s | two reports at once, s | scaling | `perf script` e, s | cr, s | \
e / report | cr / report | peak, MB | not files, MB | ... 2 workers |
|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// Measures all programs on a recording: a row of the table.
pub(super) fn row(case: &Case, data: &Path) -> Result<String> {
    let one = runs("report -w 1", || measure(&mut report(case, data, "1")))?;
    let two = runs("report -w 2", || measure(&mut report(case, data, "2")))?;
    let both = runs("two reports -w 1 at once", || two_at_once(case, data))?;
    let perf = match case.extent {
        Extent::Quick | Extent::Full => Some([perf_runs(data, "e")?, perf_runs(data, "cr")?]),
        Extent::Report => None,
    };
    let cells = |of: fn(&Runs<Measured>, f64) -> String| match &perf {
        Some([errors, calls]) => [errors, calls].map(|runs| of(runs, one.median())),
        None => ["-".to_owned(), "-".to_owned()],
    };
    let [errors, calls] = cells(|runs, _| runs.cell());
    let [errors_ratio, calls_ratio] = cells(|runs, seconds| format!("{:.1}", runs.median() / seconds));
    Ok(format!(
        "| {}, `{}` | {} | {} | {} | {:.2} | {errors} | {calls} | {errors_ratio} | {calls_ratio} | {:.0} | {:.0} | {:.0} |\n",
        case.name,
        case.function,
        one.cell(),
        two.cell(),
        both.cell(),
        both.median() / 2.0 / two.median(),
        one.last.peak_kb as f64 / 1e3,
        one.last.anonymous_kb as f64 / 1e3,
        two.last.anonymous_kb as f64 / 1e3,
    ))
}

fn perf_runs(data: &Path, what: &str) -> Result<Runs<Measured>> {
    runs(&format!("perf script --itrace={what}"), || measure(&mut perf_script(data, what)))
}

fn runs(what: &str, mut once: impl FnMut() -> Result<Measured>) -> Result<Runs<Measured>> {
    let runs = Runs::of(|| once().map(|measured| (measured.wall.as_secs_f64(), measured)))?;
    let Measured { peak_kb, anonymous_kb, output_bytes, .. } = runs.last;
    let [peak, anonymous] = [peak_kb, anonymous_kb].map(|kb| kb as f64 / 1e3);
    println!(
        "  {what}: {} s, peak {peak:.0} MB resident, {anonymous:.0} MB of it not files; {:.1} MB printed",
        runs.cell(),
        output_bytes as f64 / 1e6
    );
    Ok(runs)
}

fn report(case: &Case, data: &Path, workers: &str) -> Command {
    let mut command = Command::new(layout::target().join("release").join("func_latency"));
    command.arg("report").arg("-i").arg(data).args(["-f", case.function, "-w", workers]);
    command
}

/// What two independent processes take, each with one worker: what two workers of one process can be at best.
fn two_at_once(case: &Case, data: &Path) -> Result<Measured> {
    let [mut first, mut second] = [report(case, data, "1"), report(case, data, "1")];
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| measure(&mut first));
        let second = measure(&mut second);
        (other.join().unwrap_or_else(|_| Err("measuring panicked".to_owned())), second)
    });
    let (first, second) = (first?, second?);
    Ok(if first.wall > second.wall { first } else { second })
}

fn perf_script(data: &Path, what: &str) -> Command {
    let mut command = Command::new("perf");
    command.args(["script", "--ns", PT_PERF_FIELDS]).arg(format!("--itrace={what}")).arg("-i").arg(data);
    command
}
