//! What calls did in their function's own code: the straight code that ran, how often, and its time.
//!
//! ```text
//!   f    0 .. 12 jcc 20     20 .. 2c call g     (g)     30 .. 3a ret
//!   straight code           0..12, 20..2c, 30..3a       each taken branch ends it
//!   code blocks             0..2c, 30..3a               only what leaves the function's own code does
//! ```
//! An interrupt ends neither: the code goes on after it. Nor does a stub of the PLT: its time is that of
//! the code that calls it.
//!
//! The time of a call is that of its straight code and of its children; time without a known address
//! (outside of an IP filter, say) is left over ([`OwnCode::elsewhere`]), so that all adds up.

use model::{Avma, FunctionId, SpaceId};

use crate::call_row::CallRow;
use crate::children::{Child, ChildKey, ChildPlaces, ChildSums, Keyed, RunningSums};
use crate::code_map::CodeMap;
use crate::maybe_ip::MaybeIp;
use crate::place::Place;
use crate::total::{OffCpuKnown, RunningTotal, Total, error_of_part};

/// What ends straight code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeDetail {
    /// Each taken branch: so it is known how often each instruction was executed.
    Instructions,
    /// A call, a system call, a return: jumps inside of the function do not.
    Blocks,
}

/// The group that a call is added to, from 0; `None`: the call is left out.
pub type GroupOf<'a> = dyn Fn(&CallRow) -> Option<usize> + 'a;

/// Which calls are looked at, and how.
pub struct CodeRequest<'a> {
    /// What ends straight code.
    pub detail: CodeDetail,
    /// The number of groups.
    pub groups: usize,
    /// Sorts calls into groups.
    pub group_of: Box<GroupOf<'a>>,
}

/// What the calls of a group did in their function's own code. Only calls that were seen from entry to end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnCode {
    /// The calls, and their latencies.
    pub calls: Total,
    /// Straight code, by its place.
    pub code: Vec<CodeRow>,
    /// What took time inside of the calls, by key. With [`CodeDetail::Instructions`] interrupts and signals
    /// have the place that they interrupted, too.
    pub children: Vec<(ChildKey, TimeRow)>,
    /// The calls' own time without known code.
    pub elsewhere: Total,
    /// The true time of all that is the calls' own is at most so far off, by the errors of their latencies
    /// and of their children. It is that of `*self` in a report.
    pub own_error_ns: u64,
}

/// Straight code that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRow {
    /// The first instruction.
    pub start: Place,
    /// How control came there.
    pub begin: CodeBegin,
    /// Where it ended; `None`: other branches may have been taken, which are not known.
    pub end: Option<CodeEnd>,
    /// How often it ran, and its time.
    pub time: TimeRow,
}

/// How control came to where straight code begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeBegin {
    /// The function was entered there.
    Entry,
    /// What the instruction in front of it called has returned, or the kernel has.
    Return,
    /// By a jump, or in another way: an exception, say.
    Jump,
}

/// Where straight code ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeEnd {
    /// The instruction.
    pub at: Place,
    /// It was executed; otherwise the code interrupted there did not go on.
    pub is_executed: bool,
}

/// A time and its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRow {
    /// How often, and how long.
    pub total: Total,
    /// The true time is at most so far from it.
    pub error_ns: u64,
}

/// Straight code as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CodeSpan {
    pub(crate) space: SpaceId,
    pub(crate) start: MaybeIp,
    pub(crate) begin: CodeBegin,
    /// Its last instruction.
    pub(crate) last: MaybeIp,
    /// The last instruction was executed.
    pub(crate) is_whole: bool,
}

impl Keyed for CodeSpan {
    #[inline(always)]
    fn spread(&self) -> (u64, u64) {
        let ip = |ip: MaybeIp| ip.get().unwrap_or_default().0;
        (ip(self.start), ip(self.last))
    }
}

/// Straight code that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) space: SpaceId,
    pub(crate) start: Avma,
    pub(crate) begin: CodeBegin,
    pub(crate) function: FunctionId,
    /// Its time so far, up to where it was interrupted.
    pub(crate) before: RunningTotal,
}

/// Straight code that was interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paused {
    /// Where it goes on.
    pub(crate) at: Avma,
    pub(crate) going: Going,
}

/// What a call that runs did in its own code.
#[derive(Debug, Default)]
pub(crate) struct RunningCode {
    pub(crate) spans: RunningSums<CodeSpan>,
    pub(crate) paused: Option<Paused>,
}

impl RunningCode {
    /// Straight code that was interrupted does not go on.
    pub(crate) fn end_paused(&mut self, places: &mut ChildPlaces) {
        if let Some(Paused { at, going }) = self.paused.take() {
            let Going { space, start, begin, before, .. } = going;
            let span = CodeSpan { space, start: start.into(), begin, last: at.into(), is_whole: false };
            self.spans.add(places, span, RunningTotal { count: 1, ..before });
        }
    }

    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        self.paused = None;
    }
}

/// What all calls did in their functions' own code.
pub(crate) struct CodeSums<'a> {
    request: CodeRequest<'a>,
    /// Where the spans of running calls stand.
    pub(crate) places: ChildPlaces,
    /// By wanted function, group by group.
    functions: Vec<Vec<CodeGroup>>,
}

#[derive(Default)]
struct CodeGroup {
    calls: RunningTotal,
    spans: ChildSums<CodeSpan>,
    children: ChildSums<Child>,
}

impl<'a> CodeSums<'a> {
    pub(crate) fn new(request: CodeRequest<'a>, functions: usize) -> Self {
        let groups = || (0..request.groups).map(|_| CodeGroup::default()).collect();
        let functions = (0..functions).map(|_| groups()).collect();
        Self { request, places: ChildPlaces::default(), functions }
    }

    pub(crate) fn detail(&self) -> CodeDetail {
        self.request.detail
    }

    /// A call that was asked for has ended.
    pub(crate) fn add(
        &mut self,
        wanted: u32,
        row: &CallRow,
        children: &[(Child, RunningTotal)],
        spans: &[(CodeSpan, RunningTotal)],
    ) {
        if !row.end.status.counted() {
            return;
        }
        let group = (self.request.group_of)(row);
        let groups = self.functions.get_mut(wanted as usize);
        let Some(group) = group.and_then(|group| groups?.get_mut(group)) else { return };
        group.calls.add(RunningTotal {
            count: 1,
            sum_ns: row.latency_ns,
            off_cpu_ns: row.off_cpu_ns.unwrap_or_default(),
            error_ns: row.error_ns,
        });
        spans.iter().for_each(|(span, total)| group.spans.add(*span, *total));
        children.iter().for_each(|(child, total)| group.children.add(*child, *total));
    }

    pub(crate) fn finish(self, map: &mut CodeMap<'_>, off_cpu: OffCpuKnown) -> Vec<Vec<OwnCode>> {
        let of_function = |groups: Vec<CodeGroup>| -> Vec<OwnCode> {
            groups.into_iter().map(|group| group.finish(map, off_cpu)).collect()
        };
        self.functions.into_iter().map(of_function).collect()
    }
}

impl CodeGroup {
    /// The sums by places, which are the same in all spaces.
    fn finish(self, map: &mut CodeMap<'_>, off_cpu: OffCpuKnown) -> OwnCode {
        type Named = (Place, CodeBegin, Option<CodeEnd>);
        let mut code: Vec<(Named, RunningTotal)> = Vec::new();
        let mut own_error_ns = self.calls.error_ns;
        let mut inside_ns = 0u64;
        let mut known = RunningTotal::default();
        for (span, total) in self.spans.iter() {
            let Some(start) = map.place(span.space, span.start.get()) else { continue };
            let end = map.place(span.space, span.last.get());
            let end = end.map(|at| CodeEnd { at, is_executed: span.is_whole });
            code.push(((start, span.begin, end), total));
            known.add(total);
        }
        let mut children: Vec<(ChildKey, RunningTotal)> = Vec::new();
        for (child, total) in self.children.iter() {
            children.push((map.name(child), total));
            own_error_ns = own_error_ns.saturating_add(total.error_ns);
            inside_ns = inside_ns.saturating_add(total.sum_ns);
            known.add(total);
        }
        let own_ns = self.calls.sum_ns.saturating_sub(inside_ns);
        let longest_ns = self.calls.sum_ns.saturating_add(self.calls.error_ns);
        let time = |total: RunningTotal| TimeRow { total: total.known(off_cpu), error_ns: total.error_ns };
        let row = |((start, begin, end), total): (Named, _)| CodeRow { start, begin, end, time: time(total) };
        OwnCode {
            calls: self.calls.known(off_cpu),
            code: merged(code).into_iter().map(row).collect(),
            children: merged(children).into_iter().map(|(key, total)| (key, time(total))).collect(),
            elsewhere: Total { count: 0, ..self.calls.known(off_cpu).without(&known.known(off_cpu)) },
            own_error_ns: error_of_part(own_error_ns, own_ns, longest_ns),
        }
    }
}

/// With one sum for each key, in the order of the keys.
fn merged<K: Copy + Ord>(mut sums: Vec<(K, RunningTotal)>) -> Vec<(K, RunningTotal)> {
    sums.sort_by_key(|(key, _)| *key);
    crate::children::merge_same(&mut sums);
    sums
}
