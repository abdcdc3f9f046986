//! What probes cost while calls are counted and timed, against the CPU time that the processes take.
//!
//! Two measures, as either may fail alone:
//!
//! ```text
//!   hits x cost             known at once; the costs are those of functions that do nothing
//!   CPU time for each call  as it was while calls were counted, and as it is: what probes do to caches and
//!                           locks is in it, but so is what the program does otherwise
//! ```
//! So the second stops nothing unless the first says a quarter of what is allowed; nor after a minute, as the
//! program may do other things by then.

use std::time::{Duration, Instant};

use bpf::{Cost, EndCosts, Ends, Hits, Run};
use model::Pid;
use recorder::process_cpu_ns;

use super::functions::Candidate;

/// How often costs are looked at.
pub(super) const EVERY: Duration = Duration::from_millis(20);

/// What may be spent at once, as what the limit allows for this time.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Spans after which CPU time for each call decides: in fewer, one busy neighbour is half of it.
const SPANS: f64 = 25.0;

/// What was before the window says nothing of what is so much later.
const COMPARED_FOR: Duration = Duration::from_secs(60);

/// What that must exceed the limit by, besides its error.
const NOISE: f64 = 0.05;

/// CPU time above the limit that is of no matter.
const NO_MATTER_NS: f64 = 1e6;

/// What the hits of a function's probes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Price {
    /// At its entry.
    pub(super) entry_ns: u64,
    /// At each end.
    pub(super) other_ns: u64,
}

impl Price {
    /// Of each candidate.
    pub(super) fn of_all(candidates: &[Candidate], costs: &EndCosts) -> Vec<Self> {
        candidates.iter().map(|candidate| Self::at(costs.of(&candidate.probed.points))).collect()
    }

    /// If the candidate's return addresses were rewritten; of a region, which has none, as it is.
    pub(super) const fn rewritten(candidate: &Candidate, costs: &EndCosts) -> Self {
        let points = &candidate.probed.points;
        let ends = match points.ends {
            Ends::AtMarks | Ends::AtStarts => points.ends,
            Ends::AtInstructions | Ends::ByReturnAddress | Ends::AtEntry => Ends::ByReturnAddress,
        };
        Self::at(costs.with_ends(points, ends))
    }

    const fn at(cost: Cost) -> Self {
        Self { entry_ns: cost.entry_ns, other_ns: cost.call_ns.saturating_sub(cost.entry_ns) }
    }

    /// Of one call.
    pub(super) const fn call_ns(self) -> u64 {
        self.entry_ns + self.other_ns
    }
}

/// CPU time of processes.  One that has ended keeps what it had.
pub(super) struct CpuTime(Vec<(Pid, u64)>);

impl CpuTime {
    pub(super) fn of(pids: &[Pid]) -> Self {
        Self(pids.iter().map(|pid| (*pid, 0)).collect())
    }

    fn so_far_ns(&mut self) -> u64 {
        let one = |(pid, last): &mut (Pid, u64)| {
            *last = process_cpu_ns(*pid).unwrap_or(*last);
            *last
        };
        self.0.iter_mut().map(one).sum()
    }
}

/// What was so far.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    at: Instant,
    hits: Vec<Hits>,
    cpu_ns: u64,
}

impl Snapshot {
    /// Reads hits and CPU time at one moment: on a busy machine the processes run on between the two, and so
    /// many hits would have taken no time.
    pub(super) fn take(run: &Run, cpu: &mut CpuTime) -> Self {
        const ATTEMPTS: usize = 3;
        /// Of the processes' CPU time, what may pass between.
        const CLOSE_NS: u64 = 200_000;
        let mut attempt = || {
            let before_ns = cpu.so_far_ns();
            let (at, hits) = (Instant::now(), run.hits());
            let between_ns = cpu.so_far_ns().saturating_sub(before_ns);
            (Self { at, cpu_ns: before_ns + between_ns / 2, hits }, between_ns)
        };
        let (mut best, mut best_ns) = attempt();
        for _ in 1..ATTEMPTS {
            if best_ns <= CLOSE_NS {
                break;
            }
            let (next, between_ns) = attempt();
            if between_ns < best_ns {
                (best, best_ns) = (next, between_ns);
            }
        }
        best
    }

    /// What has been since.
    pub(super) fn since(&self, before: &Self) -> Span {
        let hits = |(now, before): (&Hits, &Hits)| Hits {
            entries: now.entries - before.entries,
            others: now.others - before.others,
        };
        Span {
            time: self.at.duration_since(before.at),
            hits: self.hits.iter().zip(&before.hits).map(hits).collect(),
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
        }
    }
}

/// What was between two snapshots.
#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    pub(super) time: Duration,
    pub(super) hits: Vec<Hits>,
    pub(super) cpu_ns: u64,
}

impl Span {
    /// What the hits of the first functions cost.
    pub(super) fn cost_ns(&self, prices: &[Price], functions: usize) -> u64 {
        let of = |(hits, price): (&Hits, &Price)| {
            hits.entries
                .saturating_mul(price.entry_ns)
                .saturating_add(hits.others.saturating_mul(price.other_ns))
        };
        self.hits.iter().zip(prices).take(functions).map(of).fold(0, u64::saturating_add)
    }

    /// What the processes took without that; never nothing.
    pub(super) fn own_ns(&self, cost_ns: u64) -> u64 {
        self.cpu_ns.saturating_sub(cost_ns).max(self.cpu_ns / 100).max(1)
    }

    /// Calls of the first functions.
    fn calls(&self, functions: usize) -> u64 {
        self.hits.iter().take(functions).map(|hits| hits.entries).sum()
    }
}

/// CPU time for each call, from many short spans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PerCall {
    spans: f64,
    cpu: f64,
    calls: f64,
    cpu_2: f64,
    calls_2: f64,
    cpu_calls: f64,
}

impl PerCall {
    pub(super) fn add(&mut self, cpu_ns: u64, calls: u64) {
        let (cpu, calls) = (cpu_ns as f64, calls as f64);
        self.spans += 1.0;
        self.cpu += cpu;
        self.calls += calls;
        self.cpu_2 += cpu * cpu;
        self.calls_2 += calls * calls;
        self.cpu_calls += cpu * calls;
    }

    /// The mean in ns, and its relative standard error; `None`: there are too few calls or spans.
    fn mean(&self) -> Option<(f64, f64)> {
        const LEAST_CALLS: f64 = 100.0;
        const LEAST_SPANS: f64 = 4.0;
        if self.calls < LEAST_CALLS || self.spans < LEAST_SPANS || self.cpu <= 0.0 {
            return None;
        }
        let mean = self.cpu / self.calls;
        let squares = self.cpu_2 - 2.0 * mean * self.cpu_calls + mean * mean * self.calls_2;
        let error = (squares.max(0.0) * self.spans / (self.spans - 1.0)).sqrt() / self.cpu;
        Some((mean, error))
    }

    /// By which share it is more than `before`, and twice the standard error of that.
    fn rise(&self, before: &Self) -> Option<(f64, f64)> {
        let ((mean, error), (was, was_error)) = (self.mean()?, before.mean()?);
        let ratio = mean / was;
        Some((ratio - 1.0, 2.0 * ratio * error.hypot(was_error)))
    }
}

/// Why probing goes too far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TooMuch {
    /// Of the CPU time without, since it was more than is allowed.
    pub(super) percent: f64,
    /// It is children that are too much: the functions that were asked for alone are not.
    pub(super) asked_fit: bool,
}

/// What has been spent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GuardSpent {
    /// Hits x cost, of the CPU time without.
    pub(super) percent: f64,
    /// By how much CPU time for each call has risen, and the error of that, both in percent; `None`: too
    /// little was seen.
    pub(super) rise_percent: Option<(f64, f64)>,
}

/// What probes cost, and what the processes took without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuardCost {
    cost_ns: u64,
    own_ns: u64,
}

impl GuardCost {
    /// What has been since.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            cost_ns: self.cost_ns.saturating_sub(earlier.cost_ns),
            own_ns: self.own_ns.saturating_sub(earlier.own_ns),
        }
    }

    /// Of the CPU time without.
    pub(crate) fn percent(self) -> f64 {
        100.0 * self.cost_ns as f64 / self.own_ns.max(1) as f64
    }
}

/// Looks at what probes cost.
pub(super) struct Guard {
    prices: Vec<Price>,
    /// Prices of the functions that are timed; 0 of others, which have probes being removed.
    timed: Vec<Price>,
    asked: usize,
    /// Of the CPU time without; `None`: as much as it likes.
    most: Option<f64>,
    last: Snapshot,
    /// Spent above the limit, in ns.
    excess: f64,
    /// Cost and own time since there was nothing above it.
    since: (u64, u64),
    spent: GuardCost,
    time: Duration,
    before: PerCall,
    with: PerCall,
    /// Children are probed.
    children: bool,
}

impl Guard {
    /// A guard from here on.  `children`: those that are timed; `before`: while calls were counted, without
    /// what that cost.
    pub(super) fn new(
        prices: Vec<Price>,
        asked: usize,
        children: &[usize],
        most_percent: Option<f64>,
        before: PerCall,
        now: Snapshot,
    ) -> Self {
        let is_timed = |index: &usize| *index < asked || children.contains(index);
        let price = |(index, price): (usize, &Price)| {
            if is_timed(&index) { *price } else { Price::default() }
        };
        Self {
            timed: prices.iter().enumerate().map(price).collect(),
            prices,
            asked,
            most: most_percent.map(|percent| percent / 100.0),
            last: now,
            excess: 0.0,
            since: (0, 0),
            spent: GuardCost::default(),
            time: Duration::ZERO,
            before,
            with: PerCall::default(),
            children: false,
        }
    }

    /// When to look again.
    pub(super) fn is_due(&self) -> bool {
        self.last.at.elapsed() >= EVERY
    }

    /// What probes have cost so far.
    pub(super) const fn cost(&self) -> GuardCost {
        self.spent
    }

    /// Other functions are probed from now on: earlier measurements say nothing of them.
    pub(super) fn begin_slice(&mut self, children: bool) {
        self.children = children;
        self.with = PerCall::default();
        self.excess = 0.0;
    }

    /// Looks at what has been since the last time.
    pub(super) fn look(&mut self, now: Snapshot) -> Option<TooMuch> {
        let span = now.since(&self.last);
        self.last = now;
        self.add(&span)
    }

    fn add(&mut self, span: &Span) -> Option<TooMuch> {
        let cost_ns = span.cost_ns(&self.prices, self.prices.len());
        let own_ns = span.own_ns(cost_ns);
        self.spent.cost_ns += cost_ns;
        self.spent.own_ns += own_ns;
        self.time += span.time;
        self.with.add(span.cpu_ns, span.calls(self.asked));
        let most = self.most?;
        let timed_ns = span.cost_ns(&self.timed, self.timed.len());
        self.excess = (self.excess + timed_ns as f64 - most * own_ns as f64).max(0.0);
        self.since = match self.excess {
            0.0 => (0, 0),
            _ => (self.since.0 + timed_ns, self.since.1 + own_ns),
        };
        let own_rate = self.spent.own_ns as f64 / self.time.as_secs_f64().max(1e-9);
        let at_once = (most * own_rate * AT_ONCE.as_secs_f64()).max(NO_MATTER_NS);
        let percent = |(cost_ns, own_ns): (u64, u64)| 100.0 * cost_ns as f64 / own_ns.max(1) as f64;
        let asked_fit = span.cost_ns(&self.prices, self.asked) as f64 <= most * own_ns as f64;
        if self.excess > at_once {
            return Some(TooMuch { percent: percent(self.since), asked_fit });
        }
        let (rise, error) = self.with.rise(&self.before)?;
        let is_probed = percent((timed_ns, own_ns)) / 100.0 >= most / 4.0 && self.time < COMPARED_FOR;
        (is_probed && self.with.spans >= SPANS && rise - error > most + NOISE)
            .then_some(TooMuch { percent: 100.0 * rise, asked_fit: self.children })
    }

    /// What has been spent in all.
    pub(super) fn spent(&self) -> GuardSpent {
        let rise = self.with.rise(&self.before);
        GuardSpent {
            percent: self.spent.percent(),
            rise_percent: rise.map(|(rise, error)| (100.0 * rise, 100.0 * error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { entry_ns: 1_000, other_ns: 9_000 };

    /// 20 ms in which a CPU is busy, with calls of one function that was asked for and of one child.
    fn span(asked: u64, children: u64) -> Span {
        let hits = |calls| Hits { entries: calls, others: calls };
        Span { time: EVERY, hits: vec![hits(asked), hits(children), hits(0)], cpu_ns: 20_000_000 }
    }

    fn guard(most_percent: f64) -> Guard {
        let now = Snapshot { at: Instant::now(), hits: vec![], cpu_ns: 0 };
        Guard::new(vec![PRICE; 3], 1, &[1], Some(most_percent), PerCall::default(), now)
    }

    /// The spans that pass before it is too much.
    fn passed(guard: &mut Guard, span: &Span) -> Option<(usize, TooMuch)> {
        (0..1000).find_map(|count| Some((count, guard.add(span)?)))
    }

    #[test]
    fn below_the_limit_it_goes_on() {
        // 100 x 10 us in 20 ms, of 19 ms without: 5.3 %.
        assert_eq!(passed(&mut guard(20.0), &span(100, 0)), None);
    }

    #[test]
    fn beyond_the_limit_it_is_over_within_a_tenth_of_a_second() {
        // 600 x 10 us: 43 %; and where nearly all time is that of probes.
        let (count, why) = passed(&mut guard(20.0), &span(600, 0)).unwrap();
        assert!((count < 5, why.percent.round(), why.asked_fit) == (true, 43.0, false), "{count} {why:?}");
        let (count, _) = passed(&mut guard(20.0), &span(1_900, 0)).unwrap();
        assert_eq!(count, 0);
    }

    /// Nothing would be gained: they are being removed already.
    #[test]
    fn probes_that_are_being_removed_end_nothing() {
        let mut span = span(100, 0);
        span.hits[2] = Hits { entries: 5_000, others: 0 };
        assert_eq!(passed(&mut guard(20.0), &span), None);
    }

    #[test]
    fn what_children_cost_does_not_end_the_whole() {
        let (_, why) = passed(&mut guard(20.0), &span(100, 900)).unwrap();
        assert!(why.asked_fit, "{why:?}");
    }

    #[test]
    fn cpu_time_for_each_call_tells_what_the_costs_do_not() {
        let mut guard = guard(20.0);
        // Before: 20 ms for 400 calls, 10 % by the costs; then 20 ms for 200 of them, which is twice as much
        // for each.
        (0..10).for_each(|count| guard.before.add(20_000_000 + count % 2, 400));
        let mut with = span(200, 0);
        assert_eq!(
            passed(&mut guard, &with).map(|(count, why)| (count, why.percent.round())),
            Some((24, 100.0))
        );
        // What it does an hour later is its own.
        guard.begin_slice(false);
        guard.time = COMPARED_FOR;
        assert_eq!(passed(&mut guard, &with), None);
        guard.time = Duration::ZERO;
        // A program that does more beside it is not to blame on probes that are hardly hit.
        with = Span { cpu_ns: 200_000_000, ..with };
        guard.begin_slice(false);
        assert_eq!(passed(&mut guard, &with), None);
    }

    #[test]
    fn what_was_spent() {
        let mut guard = guard(1e9);
        guard.before.add(1, 1);
        passed(&mut guard, &span(600, 0));
        let spent = guard.spent();
        assert_eq!((spent.percent.round(), spent.rise_percent), (43.0, None));
    }
}
