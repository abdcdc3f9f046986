//! What all threads share while a recording is analysed.

use std::sync::Arc;

use model::{AuxOffset, AuxOwner, Cpu, FunctionSet, Gap, Pid, SpaceId, Tid};
use rustc_hash::FxHashMap;

use crate::aggregate::Aggregate;
use crate::call_row::CallRow;
use crate::children::{Child, ChildPlaces};
use crate::code_map::CodeMap;
use crate::control::Control;
use crate::kept_calls::RunCalls;
use crate::loss::LossLedger;
use crate::off_cpu_causes::Reason;
use crate::own_code::{CodeDetail, CodeSums};
use crate::regions::Regions;
use crate::report::Limits;
use crate::request::{Ancestor, Request, Roles, Surroundings};
use crate::row_sink::{RowGap, RowParts, RowSink, parts_of_row};
use crate::running::{Activation, EndedCall};
use crate::total::OffCpuKnown;
use crate::traced_causes::TracedCauses;
use crate::tree::{CallTree, TreeSink, Trees};

/// Activations that are kept for reuse, so that a call costs no allocation.
const SPARE_MAX: usize = 256;

pub(crate) struct Session<'a> {
    pub(crate) around: Surroundings<'a>,
    pub(crate) off_cpu: OffCpuKnown,
    pub(crate) roles: Arc<Roles>,
    /// None while a run is digested: there is no digester where there are any.
    pub(crate) regions: Regions,
    pub(crate) ancestor: Option<Ancestor>,
    pub(crate) stack_switches: bool,
    /// Functions of the kernel were asked for: its code has frames ([`crate::kernel_part`]).
    pub(crate) follows_kernel: bool,
    /// Counters were asked for.
    pub(crate) counts: bool,
    pub(crate) map: CodeMap<'a>,
    pub(crate) calls: Aggregate<Child>,
    /// The calls that have ended in the run that is digested, as far as they are given out one by one.
    pub(crate) kept: RunCalls,
    pub(crate) causes: TracedCauses<'a>,
    pub(crate) loss: LossLedger,
    pub(crate) limits: Limits,
    /// The sink that takes trees, and which.
    pub(crate) trees: Option<(&'a mut (dyn TreeSink + 'a), Trees)>,
    /// What took less is no node of a tree.
    pub(crate) min_node_ns: u64,
    /// They come with the functions around their calls.
    pub(crate) with_callers: bool,
    /// What calls do in their functions' own code, if that is asked for.
    pub(crate) code: Option<CodeSums<'a>>,
    /// The sink that takes rows.
    pub(crate) rows: Option<&'a mut (dyn RowSink + 'a)>,
    /// Gaps that threads begin with, from before a sink takes rows.
    first_gaps: Vec<RowGap>,
    /// The first gaps are being entered.
    pub(crate) is_starting: bool,
    /// Where children of running calls stand.
    pub(crate) places: ChildPlaces,
    /// Activations for reuse, empty.
    pub(crate) spare: Vec<Activation>,
    /// Events that undecided landings of all threads hold.
    pub(crate) held_events: usize,
    buffers: FxHashMap<AuxOwner, u32>,
}

fn numbers_of_buffers(around: Surroundings<'_>) -> FxHashMap<AuxOwner, u32> {
    around.buffers.iter().map(|buffer| (buffer.owner, buffer.index)).collect()
}

impl<'a> Session<'a> {
    pub(crate) fn new(request: &Request, around: Surroundings<'a>) -> Self {
        let regions = Regions::of(request, around.functions);
        let known = (CodeMap::new(around), TracedCauses::new(around, request));
        let (of_request, roles) = (Arc::new(request.clone()), Arc::new(Roles::new(request)));
        let ancestor = request.ancestor.map(|ancestor| ancestor.function);
        let mut asked = request.functions.iter().copied().chain(ancestor);
        let follows_kernel = asked.any(|id| around.functions.is_of_kernel(id));
        Self { regions, follows_kernel, ..Self::with(of_request, roles, around, known) }
    }

    /// A session for a request with these roles of functions.
    pub(crate) fn with(
        request: Arc<Request>,
        roles: Arc<Roles>,
        around: Surroundings<'a>,
        (map, causes): (CodeMap<'a>, TracedCauses<'a>),
    ) -> Self {
        let off_cpu = OffCpuKnown(around.no_off_cpu().is_none());
        Self {
            around,
            off_cpu,
            roles,
            regions: Regions::default(),
            ancestor: request.ancestor,
            stack_switches: request.stack_switches,
            follows_kernel: false,
            counts: request.counters.is_some(),
            map,
            causes,
            calls: Aggregate::new(request, off_cpu),
            kept: RunCalls::Nothing,
            loss: LossLedger::default(),
            limits: Limits::default(),
            trees: None,
            min_node_ns: 0,
            with_callers: false,
            code: None,
            rows: None,
            first_gaps: Vec::new(),
            is_starting: true,
            places: ChildPlaces::default(),
            spare: Vec::new(),
            held_events: 0,
            buffers: numbers_of_buffers(around),
        }
    }

    /// Goes on with a recording that has grown. The session has no sinks.
    pub(crate) fn grown<'b>(self, around: Surroundings<'b>) -> Session<'b> {
        let Self {
            off_cpu,
            roles,
            regions,
            ancestor,
            stack_switches,
            follows_kernel,
            counts,
            causes,
            calls,
            loss,
            limits,
            min_node_ns,
            with_callers,
            first_gaps,
            is_starting,
            places,
            spare,
            held_events,
            ..
        } = self;
        Session {
            map: CodeMap::new(around),
            causes: causes.grown(around),
            kept: RunCalls::Nothing,
            trees: None,
            code: None,
            rows: None,
            buffers: numbers_of_buffers(around),
            around,
            off_cpu,
            roles,
            regions,
            ancestor,
            stack_switches,
            follows_kernel,
            counts,
            calls,
            loss,
            limits,
            min_node_ns,
            with_callers,
            first_gaps,
            is_starting,
            places,
            spare,
            held_events,
        }
    }

    /// Gives the trees of calls to `sink`.
    pub(crate) fn with_trees(self, sink: &'a mut (dyn TreeSink + 'a)) -> Self {
        let (wanted, min_node_ns, with_callers) = (sink.wanted(), sink.min_ns(), sink.wants_callers());
        // A tree of all that a thread did has stays in the kernel, and not what ran in them.
        let follows_kernel = self.follows_kernel && wanted != Trees::Threads;
        Self { with_callers, min_node_ns, follows_kernel, trees: Some((sink, wanted)), ..self }
    }

    /// The gap hides nothing but missing code that control has left for, and the way back out of that is
    /// seen: by an address. Programs that switch stacks may do so in missing code. With an IP filter it is
    /// not known which of the two hides what.
    pub(crate) fn passes_gap(&self, control: &Control, gap: &Gap) -> bool {
        let Surroundings { has_ip_filter, has_compressed_returns, .. } = self.around;
        let is_hidden = has_ip_filter || has_compressed_returns || self.stack_switches;
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
        if let RunCalls::All(kept) = &mut self.kept {
            return kept.push(wanted, call);
        }
        let EndedCall { row, children, counted, code, off_cpu_ns } = call;
        let is_reported = self.calls.add(wanted, row, children, counted, |child| self.map.name(child));
        if is_reported {
            self.calls.count(wanted, row, children, counted);
            self.causes.add(wanted, row, *off_cpu_ns);
            self.code.iter_mut().for_each(|sums| sums.add(wanted, row, children, code));
        }
        self.limits.undecided_calls += u64::from(is_reported && row.undecided);
        if let RunCalls::Slowest(slowest) = &mut self.kept
            && is_reported
        {
            let waited_for = self.causes.longest(row.tid, *off_cpu_ns);
            slowest.add(wanted as usize, row, waited_for.as_ref());
        }
        if let Some(rows) = self.rows.as_mut().filter(|_| is_reported) {
            let waited_for = self.causes.longest(row.tid, *off_cpu_ns);
            rows.row(wanted as usize, row, waited_for.as_ref());
            if rows.wants_parts() {
                let children = children.iter().map(|(child, total)| (self.map.name(*child), *total));
                let children = parts_of_row(children.collect(), row, self.off_cpu);
                rows.parts(row, &RowParts { children, waits: self.causes.waits(row.tid, *off_cpu_ns) });
            }
        }
        if let Some(cut) = row.cut_by.filter(|_| is_reported) {
            self.loss.add_cut(row.tid, cut);
        }
        match (&mut self.trees, tree) {
            (Some((sink, _)), Some(tree)) if is_reported => sink.call(row, tree),
            (Some((sink, Trees::Every)), None) if is_reported => sink.too_deep(row),
            _ => (),
        }
    }

    /// Keeps or gives out the row of a call that is in the sums.
    pub(crate) fn slow_call(&mut self, wanted: u32, row: &CallRow, waited_for: Option<&Reason>) {
        if let RunCalls::Slowest(slowest) = &mut self.kept {
            slowest.add(wanted as usize, row, waited_for);
        }
        if let Some(rows) = &mut self.rows {
            rows.row(wanted as usize, row, waited_for);
        }
    }

    /// Gives rows and gaps to `sink`.
    pub(crate) fn give_rows_to(&mut self, sink: &'a mut (dyn RowSink + 'a)) {
        self.first_gaps.drain(..).for_each(|gap| sink.gap(&gap));
        self.rows = Some(sink);
    }

    /// Enters a gap; `lost_ns`: its time that no earlier gap of the thread covers.
    pub(crate) fn lose(&mut self, tid: Tid, cpu: Option<Cpu>, gap: &Gap, lost_ns: u64) {
        self.loss.add(tid, cpu, gap, lost_ns);
        let gap = RowGap { tid: Some(tid).filter(|tid| tid.0 > 0), cpu, gap: *gap, lost_ns };
        match &mut self.rows {
            Some(rows) => rows.gap(&gap),
            None if self.is_starting => self.first_gaps.push(gap),
            None => (),
        }
    }

    /// A call that was reported as cut, and then found running, has ended or was cut again.
    pub(crate) fn resumed(&mut self, wanted: u32, ended: &EndedCall<'_>, tree: Option<&CallTree>) {
        self.calls.resume(wanted, ended.row, ended.children);
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
        let functions = self.roles.functions();
        let functions = functions.iter().chain(self.regions.functions().iter());
        Some(functions.chain(self.around.scheduler.map(at_scheduler)).collect())
    }

    pub(crate) fn buffer(&self, owner: AuxOwner) -> Option<u32> {
        self.buffers.get(&owner).copied()
    }

    /// An activation of nothing yet.
    pub(crate) fn new_activation(&mut self) -> Activation {
        self.spare.pop().unwrap_or_default()
    }

    /// Empties an activation that has ended, and keeps it for another one.
    pub(crate) fn recycle(&mut self, mut activation: Activation) {
        activation.children.clear();
        activation.code.clear();
        activation.passed.clear();
        activation.waiting.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(activation);
        }
    }
}
