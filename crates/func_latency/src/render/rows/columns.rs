//! The columns of rows: each stands once, with its name, its type and its cell, for JSON, CSV and Parquet.
//!
//! ```text
//!   a call, a child, a wait, a gap --columns--> cells --> a line of JSON or CSV (`lines`)
//!                                                    \--> a row of Parquet       (`parquet`)
//! ```

use analyzer::{CallId, CallRow, CountersAsked, ProbedRow, Reason};
use model::{AuxOffset, Tid};

use super::origin::Origin;
use super::texts::{FunctionTexts, OriginTexts, TextId, Texts};
use crate::render::Names;
use crate::render::counters::Numbers;

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// INT32: ids of threads, processes and CPUs.
    Int,
    /// INT64: times and counts.
    Long,
    /// BOOLEAN.
    Flag,
    /// UTF-8 with few different values.
    Text,
    /// UTF-8 with values that nearly all differ.
    Id,
}

/// The value of a row in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellValue {
    /// Not known, or there is no such thing.
    Null,
    Int(i32),
    Long(i64),
    Count(u64),
    Flag(bool),
    Text(TextId),
    Call(CallId),
    Offset(AuxOffset),
}

impl<T: Into<Self>> From<Option<T>> for CellValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<i32> for CellValue {
    fn from(value: i32) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for CellValue {
    /// An id; none of the kernel's is beyond 2^31.
    fn from(value: u32) -> Self {
        i32::try_from(value).map_or(Self::Null, Self::Int)
    }
}

impl From<i64> for CellValue {
    fn from(value: i64) -> Self {
        Self::Long(value)
    }
}

impl From<u64> for CellValue {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<bool> for CellValue {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<TextId> for CellValue {
    fn from(value: TextId) -> Self {
        Self::Text(value)
    }
}

impl From<CallId> for CellValue {
    fn from(value: CallId) -> Self {
        Self::Call(value)
    }
}

impl From<AuxOffset> for CellValue {
    fn from(value: AuxOffset) -> Self {
        Self::Offset(value)
    }
}

/// Takes the cells of a row, in the order of the columns.
pub(super) trait CellSink {
    fn cell(&mut self, cell: CellValue);
}

/// A table, by what a row of it is made of.
pub(super) trait RowTable: 'static {
    type Row<'a>;
}

/// Makes the cell of a row.
pub(super) type CellOf<T> = for<'a> fn(&mut Texts<'_>, &<T as RowTable>::Row<'a>) -> CellValue;

/// A column of a table.
pub(super) struct Column<T: RowTable> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    cell: CellOf<T>,
}

/// A column; a function, so that each stands on one line.
pub(super) const fn column<T: RowTable>(name: &'static str, kind: Kind, cell: CellOf<T>) -> Column<T> {
    Column { name, kind, cell }
}

/// Gives the cells of a row.
pub(super) fn give<'c, T: RowTable>(
    to: &mut impl CellSink,
    columns: impl IntoIterator<Item = &'c Column<T>>,
    texts: &mut Texts<'_>,
    row: &T::Row<'_>,
) {
    columns.into_iter().for_each(|column| to.cell((column.cell)(texts, row)));
}

/// The calls.
pub(super) enum CallTable {}

impl RowTable for CallTable {
    type Row<'a> = CallOfRow<'a>;
}

/// A call, and what its cells are made of besides.
pub(super) struct CallOfRow<'a> {
    call: &'a CallRow,
    /// Off the CPU, longest.
    waited_for: Option<&'a Reason>,
    function: FunctionTexts,
    /// All null unless counters are asked for.
    numbers: Numbers,
    origin: &'a OriginTexts,
}

impl CallOfRow<'_> {
    /// A figure that probes have measured; `None`: the call was traced.
    fn probed(&self, figure: fn(&ProbedRow) -> u64) -> Option<u64> {
        self.call.probed().map(figure)
    }
}

use Kind::{Flag, Id, Int, Long, Text};

/// What a call is.
static CALL: [Column<CallTable>; 23] = [
    column("id", Id, |_, row| row.call.id.into()),
    column("tid", Int, |_, row| row.call.id.tid.0.into()),
    column("cpu", Int, |_, row| row.call.cpu.map(|cpu| cpu.0).into()),
    column("start_ns", Long, |_, row| row.call.start_ns.0.into()),
    column("latency_ns", Long, |_, row| row.call.latency_ns.into()),
    column("error_ns", Long, |_, row| row.call.error_ns.into()),
    column("off_cpu_ns", Long, |_, row| row.call.off_cpu_ns.into()),
    column("status", Text, |texts, row| texts.word(row.call.end.status.name()).into()),
    column("caller", Text, |texts, row| texts.caller(row.call.from.caller).into()),
    column("site", Text, |texts, row| texts.site(row.call.from.site).into()),
    column("function", Text, |_, row| row.function.name.into()),
    column("aux_buffer", Int, |_, row| row.call.traced().and_then(|traced| traced.aux_buffer).into()),
    // Null: probes have timed it, and there is no trace.
    column("aux_offset", Id, |_, row| row.call.aux_offset().into()),
    column("cut_by", Text, |texts, row| row.call.end.cut_by.map(|cut| texts.word(cut.cause.name())).into()),
    // Its end is a guess.
    column("undecided", Flag, |_, row| row.call.end.undecided.into()),
    // It left the IP filter by a jump: how long it went on is not known.
    column("ended_by_jump", Flag, |_, row| row.call.end.by_jump.into()),
    column("pid", Int, |_, row| row.call.pid.map(|pid| pid.0).into()),
    column("thread", Text, |texts, row| texts.thread(row.call.id.tid).into()),
    column("waited_for", Text, |texts, row| row.waited_for.and_then(|reason| texts.reason(reason)).into()),
    // What probes measured, with what they added themselves.
    column("measured_ns", Long, |_, row| row.probed(|probed| probed.measured_ns).into()),
    column("measured_off_cpu_ns", Long, |_, row| {
        row.probed(|probed| probed.measured_off_cpu_ns).filter(|_| row.call.off_cpu_ns.is_some()).into()
    }),
    // In which kind of slice a probed call began.
    column("began", Text, |texts, row| {
        row.call.probed().map(|probed| texts.word(probed.began.name())).into()
    }),
    // Null: it was not seen to end.
    column("end_ns", Long, |_, row| row.call.end.status.counted().then(|| row.call.end_ns()).into()),
];

/// What a call executed.
static COUNTERS: [Column<CallTable>; 8] = [
    column("instructions", Long, |_, row| row.numbers.instructions.into()),
    column("conditional_branches", Long, |_, row| row.numbers.conditional_branches.into()),
    column("indirect_branches", Long, |_, row| row.numbers.indirect_branches.into()),
    column("calls", Long, |_, row| row.numbers.calls.into()),
    column("kernel_instructions", Long, |_, row| row.numbers.kernel_instructions.into()),
    column("cycles", Long, |_, row| row.numbers.cycles.into()),
    column("cycles_error", Long, |_, row| row.numbers.cycles_error.into()),
    column("frequency_mhz", Long, |_, row| row.numbers.frequency_mhz.into()),
];

/// Where a call is from.
static ORIGIN: [Column<CallTable>; 7] = [
    // Activations of the function that the call is inside of.
    column("depth", Int, |_, row| row.call.depth.into()),
    // The name of a process is that of its first thread.
    column("process", Text, |texts, row| row.call.pid.and_then(|pid| texts.thread(Tid(pid.0))).into()),
    column("object", Text, |_, row| row.function.object.into()),
    column("build_id", Text, |_, row| row.function.build_id.into()),
    column("host", Text, |_, row| row.origin.host.into()),
    column("recording", Text, |_, row| row.origin.recording.into()),
    // Real time of the entry, ns since 1970.
    column("start_realtime_ns", Long, |_, row| row.origin.realtime_ns(row.call.start_ns.0).into()),
];

/// The columns of calls, by their use.
pub(super) type CallColumns = Vec<&'static Column<CallTable>>;

/// What calls are, without where they are from.
pub(super) fn call_columns() -> CallColumns {
    CALL.iter().collect()
}

/// All columns of calls but their labels.
pub(super) fn all_call_columns(has_counters: bool) -> CallColumns {
    let counters = if has_counters { &COUNTERS[..] } else { &[] };
    CALL.iter().chain(counters).chain(&ORIGIN).collect()
}

/// The columns of calls that tell which call a part of it is of.
pub(super) fn columns_of_parts() -> CallColumns {
    const NAMES: [&str; 6] = ["id", "function", "object", "status", "depth", "tid"];
    let by_name = |name| CALL.iter().chain(&ORIGIN).find(|column| column.name == name);
    NAMES.into_iter().filter_map(by_name).collect()
}

/// Makes the cells of rows.
pub(super) struct RowCells<'n> {
    pub(super) texts: Texts<'n>,
    pub(super) origin: OriginTexts,
    counters: Option<CountersAsked>,
}

impl<'n> RowCells<'n> {
    pub(super) fn new(names: &'n dyn Names, origin: &Origin, counters: Option<CountersAsked>) -> Self {
        let mut texts = Texts::new(names);
        let origin = texts.origin(origin);
        Self { texts, origin, counters }
    }

    /// Gives the cells of a call.
    pub(super) fn call(
        &mut self,
        to: &mut impl CellSink,
        columns: &CallColumns,
        call: &CallRow,
        waited_for: Option<&Reason>,
    ) {
        let numbers = self.counters.map(|asked| Numbers::of_call(call, asked)).unwrap_or_default();
        self.give_call(to, columns, (call, waited_for), numbers);
    }

    /// Gives the cells that tell which call a part is of: none of them has counters.
    pub(super) fn call_of_part(&mut self, to: &mut impl CellSink, columns: &CallColumns, call: &CallRow) {
        self.give_call(to, columns, (call, None), Numbers::default());
    }

    fn give_call(
        &mut self,
        to: &mut impl CellSink,
        columns: &CallColumns,
        (call, waited_for): (&CallRow, Option<&Reason>),
        numbers: Numbers,
    ) {
        let function = self.texts.function(call.function);
        let row = CallOfRow { call, waited_for, function, numbers, origin: &self.origin };
        give(to, columns.iter().copied(), &mut self.texts, &row);
    }

    /// Gives the cells of labels.
    pub(super) fn labels(&self, to: &mut impl CellSink) {
        self.origin.labels.iter().for_each(|label| to.cell((*label).into()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_column_stands_once_and_those_of_parts_are_there() {
        let all = all_call_columns(true);
        let names: BTreeSet<&str> = all.iter().map(|column| column.name).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(columns_of_parts().len(), 6);
    }
}
