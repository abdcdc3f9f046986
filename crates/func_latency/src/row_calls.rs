//! The calls of a file of rows, function by function.

use std::fs::File;
use std::io::{BufRead, BufReader};

use analyzer::ledger::{Compared, LeftOut};
use analyzer::{SliceKind, Status};
use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use crate::exit::{Exit, failure};
use crate::render::rows::{RowsFile, RowsForm};
use crate::render::runs::Run;

/// What of a row the figures of a run need.
#[derive(Debug, Deserialize)]
struct CallFigures {
    function: String,
    latency_ns: u64,
    error_ns: u64,
    off_cpu_ns: Option<u64>,
    status: String,
    /// What else was probed when it began: [`SliceKind`].
    began: Option<String>,
}

/// What is said of a line that is none of ours.
const NO_ROW: &str = "no row as report --rows writes it";

/// The calls of each function of a file, the functions in the order of their first rows.
///
/// # Errors
/// The file cannot be read, or has a line that is no row.
pub(crate) fn read(file: &RowsFile) -> Result<Vec<(String, Run)>> {
    gather(file).map_err(|error| failure(Exit::BadInput, format!("{}: {error:#}", file.path.display())))
}

fn gather(file: &RowsFile) -> Result<Vec<(String, Run)>> {
    let input = File::open(&file.path)?;
    let mut functions: Vec<(String, FunctionCalls)> = Vec::new();
    let mut take = |row: CallFigures| {
        let known = functions.iter().position(|(function, _)| *function == row.function);
        let at = known.unwrap_or(functions.len());
        if known.is_none() {
            functions.push((row.function.clone(), FunctionCalls::default()));
        }
        functions.get_mut(at).and_then(|(_, calls)| calls.add(&row)).context(NO_ROW)
    };
    match file.form {
        RowsForm::JsonLines => {
            for (number, line) in (1..).zip(BufReader::new(input).lines()) {
                let at = || format!("line {number}");
                let row = serde_json::from_str(&line.with_context(at)?).ok().context(NO_ROW);
                row.and_then(&mut take).with_context(at)?;
            }
        }
        RowsForm::Csv => {
            let mut rows = csv::Reader::from_reader(BufReader::new(input));
            let titles = rows.headers().ok().context(NO_ROW).context("line 1")?;
            if !titles.is_empty() && !titles.iter().any(|title| title == "function") {
                return Err(anyhow!(NO_ROW).context("line 1"));
            }
            for (number, row) in (2..).zip(rows.deserialize()) {
                row.ok().context(NO_ROW).and_then(&mut take).with_context(|| format!("line {number}"))?;
            }
        }
    }
    let name = file.path.display().to_string();
    Ok(functions.into_iter().map(|(function, calls)| (function, calls.run(name.clone()))).collect())
}

/// Calls of a function. Of probed ones, figures are those of calls in which only the function was probed; if
/// there are none, of those in which its children were, too.
#[derive(Default)]
struct FunctionCalls {
    alone: Counted,
    with_children: Counted,
    left_out: LeftOut,
}

/// Calls that count.
#[derive(Default)]
struct Counted {
    /// Latencies and errors.
    calls: Vec<(u64, u64)>,
    off_cpu_sum_ns: u64,
    /// Of a call it is not known.
    off_cpu_unknown: bool,
}

impl FunctionCalls {
    /// Adds one; `None`: it has no status that there is.
    fn add(&mut self, row: &CallFigures) -> Option<()> {
        const STATUSES: [Status; 5] =
            [Status::Complete, Status::Unwound, Status::OpenStart, Status::OpenEnd, Status::Cut];
        let status = STATUSES.into_iter().find(|status| status.name() == row.status)?;
        let counted = match row.began.as_deref().filter(|began| !began.is_empty()) {
            None => &mut self.alone,
            Some(began) if began == SliceKind::Alone.name() => &mut self.alone,
            Some(began) if began == SliceKind::WithChildren.name() => &mut self.with_children,
            Some(_) => return Some(()),
        };
        if self.left_out.compares_status(status) {
            counted.calls.push((row.latency_ns, row.error_ns));
            counted.off_cpu_unknown |= row.off_cpu_ns.is_none();
            counted.off_cpu_sum_ns =
                counted.off_cpu_sum_ns.saturating_add(row.off_cpu_ns.unwrap_or_default());
        }
        Some(())
    }

    fn run(self, name: String) -> Run {
        let counted = if self.alone.calls.is_empty() { self.with_children } else { self.alone };
        let off_cpu_sum_ns = (!counted.off_cpu_unknown).then_some(counted.off_cpu_sum_ns);
        Run { name, calls: Compared::of(&counted.calls, self.left_out), off_cpu_sum_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    fn of(form: RowsForm, text: &str) -> Result<Vec<(String, Run)>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows");
        std::fs::write(&path, text).unwrap();
        read(&RowsFile { path, form })
    }

    const HEADER: &str = "id,function,latency_ns,error_ns,off_cpu_ns,status\n";

    #[test]
    fn calls_that_count_are_told_from_the_others() {
        let csv =
            format!("{HEADER}1-0,f,20,3,5,complete\n1-1,g,7,0,,cut\n1-2,f,30,4,0,unwound\n1-3,f,9,0,0,cut\n");
        let json = r#"{"function":"f","latency_ns":20,"error_ns":3,"off_cpu_ns":5,"status":"complete","more":[]}
{"function":"g","latency_ns":7,"error_ns":0,"off_cpu_ns":null,"status":"cut"}
{"function":"f","latency_ns":30,"error_ns":4,"off_cpu_ns":0,"status":"unwound"}
{"function":"f","latency_ns":9,"error_ns":0,"off_cpu_ns":0,"status":"cut"}
"#;
        for (form, text) in [(RowsForm::Csv, csv.as_str()), (RowsForm::JsonLines, json)] {
            let functions = of(form, text).unwrap();
            let [(f, run), (g, none)] = functions.as_slice() else { panic!("{functions:?}") };
            assert_eq!((f.as_str(), g.as_str()), ("f", "g"));
            assert_eq!((run.calls.latencies_ns.as_slice(), run.calls.error.sum_ns), (&[20, 30][..], 7));
            assert_eq!((run.off_cpu_sum_ns, run.calls.left_out.cut), (Some(5), 1));
            assert_eq!((none.calls.latencies_ns.len(), none.calls.left_out.cut), (0, 1));
        }
        let unknown = of(RowsForm::Csv, &format!("{HEADER}1-0,f,20,3,,complete\n")).unwrap();
        assert_eq!(unknown[0].1.off_cpu_sum_ns, None);
        assert_eq!(of(RowsForm::JsonLines, "").unwrap(), []);
    }

    /// Probes of children are part of what a call takes.
    #[test]
    fn of_probed_calls_those_alone_count() {
        let header = "function,latency_ns,error_ns,off_cpu_ns,status,began\n";
        let latencies = |rows: &str| {
            let functions = of(RowsForm::Csv, &format!("{header}{rows}")).unwrap();
            functions[0].1.calls.latencies_ns.clone()
        };
        let others = "f,9,1,0,complete,between\nf,7,1,0,complete,with_children\n";
        assert_eq!(latencies(&format!("{others}f,5,1,0,complete,alone\n")), [5]);
        assert_eq!(latencies(others), [7]);
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        let check = |form, text: &str, line: u32| {
            let error = of(form, text).unwrap_err();
            assert_eq!(exit::of_error(&error), Some(Exit::BadInput), "{text}");
            let says = format!("/rows: line {line}: {NO_ROW}");
            assert!(error.to_string().ends_with(&says), "{text}: {error}");
        };
        check(RowsForm::Csv, &format!("{HEADER}1-0,f,20,3,,complete\n1-0,f,20,3,,done\n"), 3);
        check(RowsForm::Csv, "id,function\n1-0,f\n", 2);
        check(RowsForm::Csv, "junk\n", 1);
        check(RowsForm::Csv, "\u{0}\u{1}\n", 1);
        check(RowsForm::JsonLines, "{}\n", 1);
        check(RowsForm::JsonLines, "\n", 1);
    }
}
