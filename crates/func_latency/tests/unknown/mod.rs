//! Reports of which something is not known.

use analyzer::{CallFigures, ChildRow, FunctionReport, Report, RowChildren};
use model::NoOffCpu;

/// The report, if the recording had no switch records.
pub(crate) fn without_switches(mut report: Report) -> Report {
    report.trace.no_off_cpu = Some(NoOffCpu::NoSwitches);
    report.functions.iter_mut().for_each(forget);
    report
}

fn forget(function: &mut FunctionReport) {
    let FunctionReport { figures, callers, open, rows, row_details, .. } = function;
    forget_figures(figures);
    callers.iter_mut().for_each(|caller| forget_figures(&mut caller.figures));
    forget_children(&mut open.children);
    let of_callers = open.callers.iter_mut().map(|caller| &mut caller.observed);
    for total in of_callers.chain([&mut open.observed, &mut open.resumed]) {
        total.off_cpu_ns = None;
    }
    rows.iter_mut().chain(&mut open.longest).for_each(|row| row.off_cpu_ns = None);
    let mut row_children = RowChildren::default();
    row_children.keys = row_details.children.keys.clone();
    for row in 0..rows.len() {
        let mut of_row = row_details.children.of(row).to_vec();
        of_row.iter_mut().for_each(|child| child.total.off_cpu_ns = None);
        row_children.push(&of_row);
    }
    row_details.children = row_children;
    (function.outermost.total.off_cpu_ns, function.outermost.cpu_percent) = (None, None);
    function.off_cpu_causes = None;
}

fn forget_figures(figures: &mut CallFigures) {
    figures.off_cpu = None;
    figures.histogram.iter_mut().for_each(|bucket| bucket.off_cpu_count = None);
    forget_children(&mut figures.children);
}

fn forget_children(children: &mut [ChildRow]) {
    for child in children {
        (child.total.off_cpu_ns, child.cpu_percent) = (None, None);
    }
}
