//! The figures of each host, beside the report of several: on which of them is a function slow?

use std::cmp::Reverse;
use std::io::{self, Write};

use analyzer::{FunctionReport, Report};

use super::View;
use super::table::{Align, Table};
use super::units::{counted, duration, grouped, percent};

/// Hosts in a table where not all rows are asked for.
const LISTED: usize = 20;

/// What the recordings of one host come to.
pub(crate) struct HostReport {
    /// Its name; `None`: its recordings do not tell.
    pub(crate) host: Option<String>,
    /// The number of its recordings.
    pub(crate) recordings: u64,
    /// The report of these alone.
    pub(crate) report: Report,
}

impl HostReport {
    fn name(&self) -> &str {
        self.host.as_deref().unwrap_or("[unknown]")
    }

    fn cells(&self, view: &View<'_>, function: &FunctionReport) -> Vec<String> {
        let latency = &function.figures.latency;
        let time = |ns: Option<u64>| ns.and_then(|ns| view.timed(duration(ns))).unwrap_or_default();
        let spread = latency.spread.as_ref();
        let lost = percent(self.report.loss.percent());
        vec![
            self.name().to_owned(),
            grouped(self.recordings),
            grouped(latency.count),
            time(spread.map(|spread| spread.p50_ns)),
            time(spread.map(|spread| spread.p99_ns)),
            time(spread.map(|spread| spread.max_ns)),
            format!("{lost} %"),
        ]
    }
}

/// Writes a table for each function of the report of `view`: the hosts, those of the longest p99 first.
pub(crate) fn write_text(
    out: &mut dyn Write,
    view: &View<'_>,
    hosts: &[HostReport],
    width: usize,
) -> io::Result<()> {
    let numbers = ["recordings", "calls", "p50", "p99", "max", "lost"].map(|name| (name, Align::Right));
    let listed = view.table_rows.details(LISTED);
    for function in &view.report.functions {
        let of = |host: &'_ HostReport| host.report.functions.iter().position(|f| f.id == function.id);
        let mut rows: Vec<(&HostReport, &FunctionReport)> =
            hosts.iter().filter_map(|host| Some((host, host.report.functions.get(of(host)?)?))).collect();
        let p99 =
            |function: &FunctionReport| function.figures.latency.spread.as_ref().map(|spread| spread.p99_ns);
        rows.sort_by_key(|(host, function)| (Reverse(p99(function)), host.name()));
        writeln!(out, "\n{} by host, the longest p99 first", view.names.function(function.id))?;
        let mut table = Table::new(&[&[("host", Align::Left)], &numbers[..]].concat());
        rows.iter().take(listed).for_each(|(host, function)| table.row(host.cells(view, function)));
        table.write(out, width)?;
        match rows.len().saturating_sub(listed) {
            0 => {}
            rest => writeln!(out, "  {}; --all prints them", counted(rest as u64, "more host"))?,
        }
    }
    Ok(())
}
