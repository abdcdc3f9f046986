//! What all threads share while a recording is analysed.

use std::sync::Arc;

use model::{AuxOffset, AuxOwner, Cpu, FunctionSet, Gap, Pid, SpaceId, Tid};
use rustc_hash::FxHashMap;

use crate::activation_pool::ActivationPool;
use crate::aggregate::Aggregate;
use crate::asked::Asked;
use crate::code_map::CodeMap;
use crate::control::Control;
use crate::kept_calls::RunCalls;
use crate::loss::LossLedger;
use crate::own_code::{CodeDetail, CodeSums};
use crate::report::Limits;
use crate::request::{Request, Surroundings};
use crate::row_output::RowOutput;
use crate::row_sink::{RowGap, RowParts, parts_of_row};
use crate::running::EndedCall;
use crate::taken::TakenCalls;
use crate::total::OffCpuKnown;
use crate::traced_causes::TracedCauses;
use crate::traced_sums::TracedSums;
use crate::tree::{CallTree, TreeSink, Trees};

pub(crate) struct Session<'a> {
    pub(crate) around: Surroundings<'a>,
    pub(crate) asked: Asked,
    pub(crate) map: CodeMap<'a>,
    pub(crate) sums: TracedSums<'a>,
    pub(crate) loss: LossLedger,
    pub(crate) limits: Limits,
    /// The sink that takes trees, and which.
    pub(crate) trees: Option<(&'a mut (dyn TreeSink + 'a), Trees)>,
    /// What calls do in their functions' own code, if that is asked for.
    pub(crate) code: Option<CodeSums<'a>>,
    pub(crate) rows: RowOutput<'a>,
    pub(crate) pool: ActivationPool,
    /// Events that undecided landings of all threads hold.
    pub(crate) held_events: usize,
    buffers: FxHashMap<AuxOwner, u32>,
}

fn numbers_of_buffers(around: Surroundings<'_>) -> FxHashMap<AuxOwner, u32> {
    around.buffers.iter().map(|buffer| (buffer.owner, buffer.index)).collect()
}

impl<'a> Session<'a> {
    pub(crate) fn new(request: &Request, around: Surroundings<'a>) -> Self {
        let known = (CodeMap::new(around), TracedCauses::new(around, request));
        let mut session = Self::with(Asked::new(request, around.functions), around, known);
        session.sums.taken = Some(TakenCalls::default());
        session
    }

    /// A session with what was looked up before.
    pub(crate) fn with(
        asked: Asked,
        around: Surroundings<'a>,
        (map, causes): (CodeMap<'a>, TracedCauses<'a>),
    ) -> Self {
        let off_cpu = OffCpuKnown(around.no_off_cpu().is_none());
        Self {
            sums: TracedSums {
                calls: Aggregate::new(Arc::clone(&asked.request), off_cpu),
                causes,
                taken: None,
            },
            around,
            asked,
            map,
            loss: LossLedger::default(),
            limits: Limits::default(),
            trees: None,
            code: None,
            rows: RowOutput::Starting(Vec::new()),
            pool: ActivationPool::default(),
            held_events: 0,
            buffers: numbers_of_buffers(around),
        }
    }

    /// Goes on with a recording that has grown. The session has no sinks.
    pub(crate) fn grown<'b>(self, around: Surroundings<'b>) -> Session<'b> {
        let Self { asked, sums, loss, limits, rows, pool, held_events, .. } = self;
        Session {
            map: CodeMap::new(around),
            sums: sums.grown(around),
            rows: rows.without_sink(),
            trees: None,
            code: None,
            buffers: numbers_of_buffers(around),
            around,
            asked,
            loss,
            limits,
            pool,
            held_events,
        }
    }

    /// Gives the trees of calls to `sink`.
    pub(crate) fn with_trees(self, sink: &'a mut (dyn TreeSink + 'a)) -> Self {
        let wanted = sink.wanted();
        // A tree of all that a thread did has stays in the kernel, and not what ran in them.
        let follows_kernel = self.asked.follows_kernel && wanted != Trees::Threads;
        let asked = Asked { follows_kernel, ..self.asked };
        Self { asked, trees: Some((sink, wanted)), ..self }
    }

    /// What took less is no node of a tree.
    pub(crate) fn min_node_ns(&self) -> u64 {
        self.trees.as_ref().map_or(0, |(sink, _)| sink.min_ns())
    }

    /// Trees come with the functions around their calls.
    pub(crate) fn wants_callers(&self) -> bool {
        self.trees.as_ref().is_some_and(|(sink, _)| sink.wants_callers())
    }

    /// The gap hides nothing but missing code that control has left for, and the way back out of that is
    /// seen: by an address. Programs that switch stacks may do so in missing code. With an IP filter it is
    /// not known which of the two hides what.
    pub(crate) fn passes_gap(&self, control: &Control, gap: &Gap) -> bool {
        let Surroundings { has_ip_filter, has_compressed_returns, .. } = self.around;
        let is_hidden = has_ip_filter || has_compressed_returns || self.asked.request.stack_switches;
        !is_hidden && control.stays_out(gap)
    }

    /// The sink wants the tree of this call; `resumed`: of a call that was reported before, and was found
    /// running again.
    pub(crate) fn wants_tree(&self, depth: u32, entry: AuxOffset, resumed: bool) -> bool {
        let has = |wanted: &Trees| if resumed { wanted.has_resumed(depth) } else { wanted.has(depth, entry) };
        self.trees.as_ref().is_some_and(|(_, wanted)| has(wanted))
    }

    /// A call of the wanted function number `wanted` has ended, or will not be seen to end; with its tree, if
    /// that is wanted.
    pub(crate) fn call(&mut self, wanted: u32, call: &EndedCall<'_>, tree: Option<&CallTree>) {
        if let RowOutput::Run(RunCalls::All(kept)) = &mut self.rows {
            return kept.push(wanted, call);
        }
        if !self.sums.add(wanted, call, &mut self.map) {
            return;
        }
        let row = call.row;
        self.code.iter_mut().for_each(|sums| sums.add(wanted, row, call.children, call.code));
        self.limits.undecided_calls += u64::from(row.end.undecided);
        if self.rows.takes_rows() {
            self.give_row(wanted, call);
        }
        if let Some(cut) = row.end.cut_by {
            self.loss.add_cut(row.id.tid, cut);
        }
        match (&mut self.trees, tree) {
            (Some((sink, _)), Some(tree)) => sink.call(row, tree),
            (Some((sink, Trees::Every)), None) => sink.too_deep(row),
            _ => (),
        }
    }

    fn give_row(&mut self, wanted: u32, call: &EndedCall<'_>) {
        let &EndedCall { row, children, off_cpu_ns, .. } = call;
        let causes = &mut self.sums.causes;
        self.rows.row(wanted, row, causes.longest(row.id.tid, off_cpu_ns).as_ref());
        if let RowOutput::Sink(rows) = &mut self.rows
            && rows.wants_parts()
        {
            let children = children.iter().map(|(child, total)| (self.map.name(*child), *total)).collect();
            let children = parts_of_row(children, row, self.sums.calls.off_cpu());
            rows.parts(row, &RowParts { children, waits: self.sums.causes.waits(row.id.tid, off_cpu_ns) });
        }
    }

    /// Enters a gap; `lost_ns`: its time that no earlier gap of the thread covers.
    pub(crate) fn lose(&mut self, tid: Tid, cpu: Option<Cpu>, gap: &Gap, lost_ns: u64) {
        self.loss.add(tid, cpu, gap, lost_ns);
        self.rows.gap(RowGap { tid: Some(tid).filter(|tid| tid.0 > 0), cpu, gap: *gap, lost_ns });
    }

    /// A call that was reported as cut, and then found running, has ended or was cut again.
    pub(crate) fn resumed(&mut self, wanted: u32, ended: &EndedCall<'_>, tree: Option<&CallTree>) {
        self.sums.calls.resume(wanted, ended.row, ended.children);
        if let (Some((sink, _)), Some(tree)) = (&mut self.trees, tree) {
            sink.resumed(ended.row, tree);
        }
    }

    /// Interrupts are told apart by the place that they interrupt.
    pub(crate) fn places_interrupts(&self) -> bool {
        self.code.as_ref().is_some_and(|code| code.detail() == CodeDetail::Instructions)
    }

    /// The process of a thread, if the recording tells.
    pub(crate) fn process_of(&self, tid: Tid) -> Option<Pid> {
        self.around.schedule.thread(tid).map(|life| life.pid).filter(|pid| pid.0 > 0)
    }

    /// The functions with calls that this is about.
    ///
    /// `None`: about all, for trees have every call.
    pub(crate) fn asks_about(&self) -> Option<FunctionSet> {
        if self.trees.is_some() {
            return None;
        }
        let at_scheduler = |entry| self.around.functions.function_at(SpaceId::default(), entry).id;
        let functions = self.asked.roles.functions().iter().chain(self.asked.regions.functions().iter());
        Some(functions.chain(self.around.scheduler.map(at_scheduler)).collect())
    }

    pub(crate) fn buffer(&self, owner: AuxOwner) -> Option<u32> {
        self.buffers.get(&owner).copied()
    }
}
