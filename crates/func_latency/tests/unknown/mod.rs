//! Reports of which something is not known.

use analyzer::{CallerReport, ChildRow, FunctionReport, Report, RowChildren};
use model::NoOffCpu;

/// The report, if the recording had no switch records.
pub(crate) fn without_switches(mut report: Report) -> Report {
    report.trace.no_off_cpu = Some(NoOffCpu::NoSwitches);
    report.functions.iter_mut().for_each(forget);
    report
}

fn forget(function: &mut FunctionReport) {
    let FunctionReport { children, callers, histogram, longest_open, open, rows, .. } = function;
    forget_children(children);
    forget_children(&mut open.children);
    let of_callers = open.callers.iter_mut().map(|caller| &mut caller.observed);
    for total in of_callers.chain([&mut open.observed, &mut open.resumed]) {
        total.off_cpu_ns = None;
    }
    for CallerReport { off_cpu, children, histogram, .. } in callers {
        *off_cpu = None;
        histogram.iter_mut().for_each(|bucket| bucket.off_cpu_count = None);
        forget_children(children);
    }
    histogram.iter_mut().for_each(|bucket| bucket.off_cpu_count = None);
    rows.iter_mut().chain(longest_open).for_each(|row| row.off_cpu_ns = None);
    let mut row_children = RowChildren::default();
    row_children.keys = function.row_children.keys.clone();
    for row in 0..rows.len() {
        let mut of_row = function.row_children.of(row).to_vec();
        of_row.iter_mut().for_each(|child| child.total.off_cpu_ns = None);
        row_children.push(&of_row);
    }
    function.row_children = row_children;
    function.outermost.off_cpu_ns = None;
    (function.off_cpu, function.cpu_percent, function.off_cpu_causes) = (None, None, None);
}

fn forget_children(children: &mut [ChildRow]) {
    for child in children {
        (child.total.off_cpu_ns, child.cpu_percent) = (None, None);
    }
}
