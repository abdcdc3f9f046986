//! What takes the rows of calls and the gaps of the trace.

use crate::call_row::CallRow;
use crate::kept_calls::RunCalls;
use crate::off_cpu_causes::Reason;
use crate::row_sink::{RowGap, RowSink};

/// Takes rows and gaps as they come.
pub(crate) enum RowOutput<'a> {
    /// The gaps that threads begin with: they come before a sink does.
    Starting(Vec<RowGap>),
    /// There is no sink; one that comes later takes these gaps first.
    NoSink(Vec<RowGap>),
    /// A sink.
    Sink(&'a mut (dyn RowSink + 'a)),
    /// The run that is digested: its calls, as far as they are given out one by one.
    Run(RunCalls),
}

impl Default for RowOutput<'_> {
    fn default() -> Self {
        Self::NoSink(Vec::new())
    }
}

impl<'a> RowOutput<'a> {
    /// All threads that are known at the begin have entered their first gaps.
    pub(crate) fn end_start(&mut self) {
        if let Self::Starting(gaps) = self {
            *self = Self::NoSink(std::mem::take(gaps));
        }
    }

    /// Gives rows and gaps to `sink` from now on.
    pub(crate) fn give_to(&mut self, sink: &'a mut (dyn RowSink + 'a)) {
        if let Self::Starting(gaps) | Self::NoSink(gaps) = self {
            gaps.iter().for_each(|gap| sink.gap(gap));
        }
        *self = Self::Sink(sink);
    }

    /// With what the next sink takes first.
    pub(crate) fn without_sink<'b>(self) -> RowOutput<'b> {
        match self {
            Self::Starting(gaps) => RowOutput::Starting(gaps),
            Self::NoSink(gaps) => RowOutput::NoSink(gaps),
            Self::Sink(_) | Self::Run(_) => RowOutput::default(),
        }
    }

    /// The calls of the run that was digested.
    pub(crate) fn take_run(&mut self) -> RunCalls {
        if let Self::Run(kept) = self { std::mem::take(kept) } else { RunCalls::Nothing }
    }

    /// It needs the rows of calls that are in the sums.
    pub(crate) fn takes_rows(&self) -> bool {
        matches!(self, Self::Sink(_) | Self::Run(RunCalls::Slowest(_)))
    }

    /// Takes the row of a call that is in the sums.
    pub(crate) fn row(&mut self, wanted: u32, row: &CallRow, waited_for: Option<&Reason>) {
        match self {
            Self::Sink(sink) => sink.row(wanted as usize, row, waited_for),
            Self::Run(RunCalls::Slowest(slowest)) => slowest.add(wanted as usize, row, waited_for),
            Self::Starting(_) | Self::NoSink(_) | Self::Run(_) => (),
        }
    }

    /// Takes a gap of the trace.
    pub(crate) fn gap(&mut self, gap: RowGap) {
        match self {
            Self::Starting(first) => first.push(gap),
            Self::Sink(sink) => sink.gap(&gap),
            Self::NoSink(_) | Self::Run(_) => (),
        }
    }
}
