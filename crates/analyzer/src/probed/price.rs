//! What probes added to each call: its own, and those that were hit inside it.
//!
//! The calls of a thread come in the order of their ends, so that calls inside of another one come first.
//! What their probes cost is known by their kinds.  A hit that belongs to no call that was told (a child's
//! own child, a loop) has a price between those of the cheapest and of the dearest probe.
//!
//! A thread may be preempted in a probe as well as in the call, and nothing tells which it was: the
//! likelihood of each is its share of the time on the CPU.  So, by function, that share of the preempted
//! calls keeps that time, which leaves sums and distribution right; for a single one it is in the error.
//! What a call keeps, the calls around it keep, too.

use model::{CallProbes, Ns, OffCpuSplit, ProbeTime, ProbedCall, ProbedEnd, Tid};
use rustc_hash::FxHashMap;

/// Calls of a thread that are kept until the call around them ends.  Of more, the oldest are forgotten: what
/// they cost is then known by their number only.
const KEPT_MAX: usize = 256;

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
struct Inner {
    start: Ns,
    /// What its probes, and all that were hit inside it, add to a call around it.
    added: ProbeTime,
    hits: u64,
}

/// The prices of probes, and what a call around may still have to pay for.
#[derive(Debug, Default)]
pub(super) struct Prices {
    /// One probe of any kind.
    hit: ProbeTime,
    inner: FxHashMap<Tid, Vec<Inner>>,
    /// The start of the last call of a thread that has kept a preemption.
    kept: FxHashMap<Tid, Ns>,
    by_function: FxHashMap<usize, OwnTime>,
}

/// Time that calls of a function have on the CPU without probes.
#[derive(Clone, Copy, Debug, Default)]
struct OwnTime {
    /// Calls that were not preempted.
    calls: i64,
    /// Their time.
    sum_ns: i64,
    /// Preempted calls that should have kept that time, less those that have.
    due: f64,
}

/// Time on the CPU that a preemption adds to a call: the switches, and misses in the caches after them.
const SWITCHES_NS: i64 = 100_000;

impl OwnTime {
    fn add(&mut self, own_ns: i64) {
        self.calls += 1;
        self.sum_ns = self.sum_ns.saturating_add(own_ns);
    }

    /// Which share of the preemptions of such a call happen in the call itself.
    fn share(&self, own_ns: i64, added_ns: u64) -> f64 {
        let usual_ns = self.sum_ns / self.calls.max(1);
        let own_ns = usual_ns.max(own_ns.saturating_sub(SWITCHES_NS)).max(0) as f64;
        if added_ns == 0 { 1.0 } else { own_ns / (own_ns + added_ns as f64) }
    }

    /// Whether a call keeps the time: it must, or it is its turn.
    fn keeps(&mut self, share: f64, must: bool) -> bool {
        self.due += share;
        let keeps = must || self.due >= 0.5;
        // Calls that must keep it are made up for by the next ones, but not for ever.
        self.due = (self.due - f64::from(keeps)).max(-8.0);
        keeps
    }
}

impl Prices {
    pub(super) fn new(hit: ProbeTime) -> Self {
        Self { hit, ..Self::default() }
    }

    /// From now on one probe of any kind costs this.
    pub(super) const fn set_hit(&mut self, hit: ProbeTime) {
        self.hit = hit;
    }

    /// What probes added to a call, of which its own are `probes`.
    pub(super) fn added(&mut self, call: &ProbedCall, probes: CallProbes) -> ProbeTime {
        let inner = self.inner.entry(call.tid).or_default();
        let mut inside = ProbeTime::default();
        let mut hits = 0;
        while let Some(last) = inner.last().copied().filter(|last| last.start >= call.start) {
            inside.add(last.added);
            hits += last.hits;
            inner.pop();
        }
        let own_end = u64::from(matches!(call.end_kind, ProbedEnd::Return | ProbedEnd::Jump));
        inside.add(self.hit.times(call.probes.saturating_sub(own_end + hits)));
        let mut around = inside;
        around.add(probes.whole);
        if inner.len() == KEPT_MAX {
            inner.drain(..KEPT_MAX / 2);
        }
        inner.push(Inner { start: call.start, added: around, hits: call.probes + 1 });
        inside.add(probes.inside);
        inside
    }

    /// A call without what probes added to it, which is `added` on the CPU.
    pub(super) fn clear(&mut self, call: &ProbedCall, added: ProbeTime) -> Cleared {
        let preempted_ns = call.off_cpu.preempted_ns;
        let added_ns = added.middle_ns();
        let own_ns = signed(on_cpu_ns(call)).saturating_sub(signed(added_ns));
        let of_function = self.by_function.entry(call.function).or_default();
        if preempted_ns == 0 {
            of_function.add(own_ns);
            return Cleared::of(call, added);
        }
        let share = of_function.share(own_ns, added_ns);
        let is_kept_inside = self.kept.get(&call.tid).is_some_and(|start| *start >= call.start);
        let is_own = of_function.keeps(share, is_kept_inside);
        if is_own {
            self.kept.insert(call.tid, call.start);
        }
        let kept = if is_own { *call } else { without_preemption(call) };
        let is_certain = if is_own { share > 1.0 - RARE } else { share < RARE };
        let measured_off_cpu_ns = call.off_cpu.total_ns().min(call.end.since(call.start));
        let unsure_ns = if is_certain { 0 } else { preempted_ns };
        Cleared { measured_off_cpu_ns, unsure_ns, ..Cleared::of(&kept, added) }
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.inner.remove(&tid);
        self.kept.remove(&tid);
    }
}

/// What seldom is: one of 100.
const RARE: f64 = 0.01;

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn on_cpu_ns(call: &ProbedCall) -> u64 {
    call.end.since(call.start).saturating_sub(call.off_cpu.total_ns())
}

/// A call, had it not been preempted.
fn without_preemption(call: &ProbedCall) -> ProbedCall {
    let off_cpu = OffCpuSplit { preempted_ns: 0, ..call.off_cpu };
    ProbedCall {
        end: Ns(call.end.0.saturating_sub(call.off_cpu.preempted_ns).max(call.start.0)),
        off_cpu,
        ..*call
    }
}

/// A call without what probes added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cleared {
    pub(super) latency_ns: u64,
    pub(super) least_ns: u64,
    pub(super) most_ns: u64,
    pub(super) rare_ns: u64,
    /// Of the latency, off the CPU.
    pub(super) off_cpu: OffCpuSplit,
    /// Before it was decided where it was preempted.
    pub(super) measured_off_cpu_ns: u64,
    /// It may have been longer, or shorter, by this.
    unsure_ns: u64,
}

impl Cleared {
    /// Probes take time on the CPU only; and no call takes less than nothing.
    fn of(call: &ProbedCall, added: ProbeTime) -> Self {
        let measured_ns = call.end.since(call.start);
        let off_cpu_ns = call.off_cpu.total_ns().min(measured_ns);
        let without = |ns: u64| off_cpu_ns + (measured_ns - off_cpu_ns).saturating_sub(ns);
        let least_ns = without(added.most_ns);
        Self {
            latency_ns: without(added.middle_ns()),
            least_ns,
            most_ns: without(added.least_ns),
            rare_ns: least_ns - without(added.rare_ns.max(added.most_ns)),
            off_cpu: call.off_cpu,
            measured_off_cpu_ns: off_cpu_ns,
            unsure_ns: 0,
        }
    }

    /// Of a call in which at least this was spent.
    pub(super) fn at_least(self, ns: u64) -> Self {
        Self { latency_ns: self.latency_ns.max(ns), most_ns: self.most_ns.max(ns), ..self }
    }

    /// How far the call may be off.
    pub(super) fn error_ns(self) -> u64 {
        let shortest_ns = self.least_ns.saturating_sub(self.rare_ns);
        let error_ns =
            self.latency_ns.saturating_sub(shortest_ns).max(self.most_ns.saturating_sub(self.latency_ns));
        error_ns.saturating_add(self.unsure_ns)
    }
}
