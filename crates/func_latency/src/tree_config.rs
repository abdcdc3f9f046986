//! What `show`, `export` and `graph` do, resolved and checked.

use std::path::PathBuf;

use analyzer::CallId;
use anyhow::Result;

use crate::args::{ExportArgs, ExportFormat, Format, GraphArgs, ShowArgs, Weight};
use crate::config::{CallsConfig, NO_FUNCTION, check_counters, input_path, labels};
use crate::exit::{Exit, failure};
use crate::export::bounds::Bound;
use crate::export::graph::GraphStyle;
use crate::output::{OutputAsked, check_apart};
use crate::render::rows::{Labels, RowsFile, rows_file};
use crate::render::tree::TreeLimits;

/// What `show` does.
#[derive(Clone, Debug)]
pub(crate) struct ShowConfig {
    /// Which function, of which recording.
    pub(crate) calls: CallsConfig,
    /// Which call of it.
    pub(crate) id: CallId,
    /// Where rows are.
    pub(crate) rows: Option<RowsFile>,
    /// What of the tree is shown.
    pub(crate) limits: TreeLimits,
    /// Resolve source lines of call sites.
    pub(crate) srcline: bool,
    /// Form of the tree.
    pub(crate) format: Format,
}

impl ShowConfig {
    /// Of `show`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: ShowArgs) -> Result<Self> {
        let input = args.input.unwrap_or_else(|| PathBuf::from("perf.data"));
        if args.calls.names_nothing() {
            return Err(failure(Exit::Usage, NO_FUNCTION));
        }
        let Some(id) = args.id else {
            return Err(failure(
                Exit::Usage,
                "which call? show ID takes the id of a row; `report --rows` lists them",
            ));
        };
        Ok(Self {
            calls: CallsConfig::new(input, args.calls)?,
            id: id.0,
            rows: args.rows.map(rows_file).transpose()?,
            limits: TreeLimits {
                depth: args.depth.unwrap_or(usize::MAX),
                min_ns: args.min,
                lines: (!args.all).then_some(args.top as usize),
            },
            srcline: args.srcline,
            format: args.format,
        })
    }
}

/// What `export` does.
#[derive(Clone, Debug)]
pub(crate) struct ExportConfig {
    /// Which calls; without a function: all that was seen.
    pub(crate) calls: CallsConfig,
    /// For which reader.
    pub(crate) format: ExportFormat,
    /// The file.
    pub(crate) output: PathBuf,
    /// Which time stacks have.
    pub(crate) weight: Weight,
    /// Count what each call executes.
    pub(crate) counters: bool,
    /// What rows say of where they are from.
    pub(crate) labels: Labels,
    /// Which calls a timeline has.
    pub(crate) bound: Bound,
}

impl ExportConfig {
    /// Of `export`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: ExportArgs) -> Result<Self> {
        use ExportFormat::{Flamegraph, Folded, Pprof};
        let of_all = matches!(args.format, Folded | Flamegraph | Pprof);
        if args.calls.names_nothing() && !of_all {
            return Err(failure(Exit::Usage, NO_FUNCTION));
        }
        if args.counters {
            check_counters(&args.calls)?;
            if matches!(args.format, Folded | Flamegraph) {
                return Err(failure(
                    Exit::Usage,
                    "--counters: folded and flamegraph have one number a stack, its time",
                ));
            }
        }
        if !args.labels.is_empty() {
            check_has_rows("--label", args.format)?;
        }
        let labels = labels(&args.labels)?;
        let calls = CallsConfig::new(input_path(args.input), args.calls)?;
        check_apart(&calls.inputs(), &[OutputAsked { option: "-o", path: &args.output }])?;
        let ExportArgs { format, output, weight, counters, bound, .. } = args;
        Ok(Self { calls, format, output, weight, counters, labels, bound: bound.bound() })
    }
}

/// Refuses an option that is for rows only.
fn check_has_rows(option: &str, format: ExportFormat) -> Result<()> {
    match format {
        ExportFormat::Csv | ExportFormat::Jsonl | ExportFormat::Parquet => Ok(()),
        _ => {
            let message = format!("{option}: only csv, jsonl and parquet have columns for it");
            Err(failure(Exit::Usage, message))
        }
    }
}

/// What `graph` does.
#[derive(Clone, Debug)]
pub(crate) struct GraphConfig {
    /// Which calls; without a function: all that was seen.
    pub(crate) calls: CallsConfig,
    /// How it is drawn.
    pub(crate) style: GraphStyle,
}

impl GraphConfig {
    /// Of `graph`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: GraphArgs) -> Result<Self> {
        if !(0.0..=100.0).contains(&args.percent_limit) {
            let message = format!("--percent-limit {}: not between 0 and 100 percent", args.percent_limit);
            return Err(failure(Exit::Usage, message));
        }
        Ok(Self {
            calls: CallsConfig::new(input_path(args.input), args.calls)?,
            style: GraphStyle {
                callee: args.callee,
                weight: args.weight,
                percent_limit: args.percent_limit,
                fractal: args.fractal,
                depth: usize::from(args.depth),
            },
        })
    }
}
