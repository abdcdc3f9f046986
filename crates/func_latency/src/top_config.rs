//! What `top` does, resolved and checked.

use std::path::PathBuf;

use anyhow::Result;

use crate::args::{CallsArgs, Format, QueryArgs, RecordArgs, ReportArgs, TopArgs, TopBy};
use crate::config::{CallsConfig, input_path};
use crate::render::row_limit::RowLimit;

/// What `top` does.
#[derive(Debug)]
pub(crate) struct TopConfig {
    /// Which recording, and of which threads.
    pub(crate) calls: CallsConfig,
    /// What is recorded first; `None`: the recording is there.
    pub(crate) record: Option<RecordArgs>,
    /// What the functions are sorted by.
    pub(crate) by: TopBy,
    /// Which rows of the text are printed.
    pub(crate) table_rows: RowLimit,
    /// Form of the list.
    pub(crate) format: Format,
}

impl TopConfig {
    /// Of `top`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: TopArgs) -> Result<Self> {
        let is_live = args.input.file.is_none()
            && args.input.input.is_none()
            && (!args.pids.is_empty() || !args.tids.is_empty());
        let calls = CallsArgs {
            pids: args.pids,
            tids: args.tids,
            symfs: args.symfs,
            kernel: args.kernel,
            workers: args.workers,
            decoder: args.decoder,
            verbose: args.verbose,
            ..CallsArgs::default()
        };
        let record = is_live.then(|| RecordArgs {
            query: QueryArgs { calls: calls.clone(), ..QueryArgs::default() },
            duration: args.duration,
            // Waits are not in the list.
            no_sched: true,
            ..RecordArgs::default()
        });
        Ok(Self {
            calls: CallsConfig::new(input_path(args.input), calls)?,
            record,
            by: args.by,
            table_rows: args.table_rows.limit(),
            format: args.format,
        })
    }

    /// Of `report`'s arguments, if these name no function and ask for nothing that needs one.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn of_report(args: &ReportArgs) -> Option<Result<Self>> {
        let QueryArgs {
            calls, table_rows, format, timeline, explain, rows, summary, html, flamegraph, ..
        } = &args.query;
        let CallsArgs { ancestor, li, ti, .. } = calls;
        let is_of_function = *timeline
            || *explain
            || !calls.names_nothing()
            || [rows, summary, html].iter().any(|file| file.is_some())
            || flamegraph.is_some()
            || args.query.max_loss.is_some()
            || args.query.check
            || args.query.counters.is_asked()
            || ancestor.is_some()
            || li.is_some()
            || ti.is_some();
        if is_of_function {
            return None;
        }
        let input = args.input.file.clone().or_else(|| args.input.input.clone());
        let calls = CallsConfig::new(input.unwrap_or_else(|| PathBuf::from("perf.data")), calls.clone());
        Some(calls.map(|calls| Self {
            calls,
            record: None,
            by: TopBy::Time,
            table_rows: table_rows.limit(),
            format: *format,
        }))
    }
}
