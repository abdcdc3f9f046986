//! Which calls figures and children are of, where children were probed in parts of the window.

use std::io::{self, Write};

use analyzer::{FunctionReport, SliceKind, Sliced};

use crate::render::units::{counted, duration, mean_duration};

/// Under the figures.
pub(super) fn figures(out: &mut dyn Write, function: &FunctionReport, window_ns: u64) -> io::Result<()> {
    let Some(sliced) = &function.sliced else { return Ok(()) };
    let calls = counted(function.figures.latency.count, "call");
    let (part, window) = (duration(sliced.figures_span_ns), duration(window_ns));
    match sliced.figures_of {
        SliceKind::Alone => writeln!(
            out,
            "  these figures are of the {calls} that began in the {part} of {window} in which its children were not probed"
        ),
        SliceKind::WithChildren | SliceKind::Between => writeln!(
            out,
            "  no call began while its children were not probed: these figures are of the {calls} in the other {part} of {window},\n  \
             without what the children's probes added, which makes the error larger"
        ),
    }
}

/// Above a table of children.
pub(super) fn children(out: &mut dyn Write, function: &FunctionReport) -> io::Result<()> {
    let Some(Sliced { figures_of, children_calls, children_mean_ns, children_span_ns, .. }) = function.sliced
    else {
        return Ok(());
    };
    let Some(mean_ns) = children_mean_ns.filter(|_| figures_of == SliceKind::Alone) else { return Ok(()) };
    let (calls, part) = (counted(children_calls, "call"), duration(children_span_ns));
    writeln!(
        out,
        "  an estimate, from the {calls} that began in the {part} in which children were probed, too: without what probes added,\n  \
         {} on average, which is scaled to the average above",
        mean_duration(mean_ns)
    )
}

/// Instead of a table.
pub(super) fn no_children(out: &mut dyn Write, function: &FunctionReport) -> io::Result<()> {
    match function.sliced {
        Some(Sliced { children_calls: 0, children_span_ns, .. }) if function.figures.latency.count > 0 => {
            writeln!(
                out,
                "  children: not known, as no call began in the {} in which they were probed",
                duration(children_span_ns)
            )
        }
        _ => Ok(()),
    }
}
