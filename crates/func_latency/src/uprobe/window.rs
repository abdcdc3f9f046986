//! The window: calls are timed, with their children and without, while a guard looks at what that costs.

use std::thread;
use std::time::{Duration, Instant};

use analyzer::ProbedAnalysis;
use anyhow::Result;
use bpf::{EndCosts, Group, Hits, INTERVAL, LiveCosts, Part, Placing, Removal, Removed, Run, Summary};
use model::{Ns, ProbeSink};

use super::follower::{BeginFollower, Followed, Passed};
use super::functions::Candidate;
use super::guard::{CpuTime, Guard, GuardSpent, Snapshot, TooMuch};
use super::haste::Haste;
use super::purpose::TimedFor;
use super::report::probe_costs;
use super::status::Status;
use super::turns::{LONGEST_ROUND, Round, Rounds, Turns};
use crate::live_code::LiveCode;
use crate::messages;
use crate::render::units::percent;
use crate::target::Wanted;

/// Probes are removed in this time, or they are not placed: the target is slow until they are gone.
pub(super) const REMOVED_IN: Duration = Duration::from_secs(2);

/// Links of children's probes, when they are placed again: each is of functions that are called about as
/// often.
const GROUPS: usize = 8;

/// What is probed now.
enum Phase {
    /// Children, too.
    Children(Round),
    /// The functions that were asked for, until children get their next turn, if they do.
    Alone(Option<Duration>),
    /// The probes of children are being placed again, for a round.
    Placing(Placing, Round),
}

/// How a window went.
pub(super) struct Went {
    pub(super) summary: Summary,
    /// The probes, which are being removed.
    pub(super) removal: Removal,
    /// What it cost.
    pub(super) spent: GuardSpent,
    /// Between what the costs were that were measured meanwhile; `None`: those of before held throughout.
    pub(super) costs: Option<EndCosts>,
}

/// A window.
pub(super) struct Window<'a> {
    pub(super) run: Run,
    pub(super) candidates: &'a [Candidate],
    /// Chosen children, by their number among the candidates.
    pub(super) children: &'a [usize],
    pub(super) length: Option<Duration>,
    /// What it took to place the probes of children.
    pub(super) placed_in: Duration,
    /// Probes of functions that were not chosen.
    pub(super) removing: Removal,
    pub(super) guard: Guard,
    /// More CPU time is not allowed for, in percent.
    pub(super) most_percent: f64,
    pub(super) cpu: CpuTime,
    /// What probes cost meanwhile.
    pub(super) costs: LiveCosts,
    /// What calls are timed for.
    pub(super) purpose: TimedFor<'a>,
    /// Rests while calls are timed: reading them may take a CPU that the target needs.
    pub(super) haste: &'a Haste,
    /// What a follower may have to know.
    pub(super) subject: WindowSubject<'a>,
}

/// What a window is of.
#[derive(Clone, Copy)]
pub(super) struct WindowSubject<'a> {
    pub(super) code: &'a LiveCode,
    pub(super) wanted: &'a [Wanted],
    /// Of these the first ones are timed, and of the others entries are told.
    pub(super) timed: usize,
    pub(super) status: &'a Status,
}

impl<'a> Window<'a> {
    /// From now on; it has been begun already.
    pub(super) fn pass(
        mut self,
        is_over: &mut dyn FnMut() -> bool,
        analysis: &mut ProbedAnalysis<'_>,
        begin: BeginFollower<'_>,
    ) -> Result<Went> {
        let begun = Instant::now();
        let asked = self.subject.wanted.len();
        let mut turns = Turns::new(self.length, self.purpose.rounds);
        let mut phase = match self.children {
            [] => Phase::Alone(None),
            _ => Phase::Children(turns.first()),
        };
        let mut follower = begin(&self.passed(bpf::monotonic_now()))?;
        let mut stopped: Option<TooMuch> = None;
        let mut told: Option<EndCosts> = None;
        let rest = self.haste.rest();
        while self.length.is_none_or(|length| begun.elapsed() < length) && !is_over() {
            if let Some(costs) = self.costs.newer() {
                analysis.costs(&probe_costs(self.candidates, &costs));
                told = Some(told.map_or(costs, |told| told.widened_by(&costs)));
            }
            let now = bpf::monotonic_now();
            self.run.read(&mut Followed { analysis: &mut *analysis, follower: &mut *follower, asked })?;
            if self.guard.is_due() {
                let now = Snapshot::take(&self.run, &mut self.cpu);
                let too_much = self.guard.look(now);
                if let Some(why) =
                    too_much.filter(|why| stopped.is_none_or(|it| it.asked_fit && !why.asked_fit))
                {
                    self.say_too_much(why);
                    stopped = Some(why);
                }
            }
            if stopped.is_some_and(|why| !why.asked_fit) {
                break;
            }
            phase = match phase {
                Phase::Children(_) if stopped.is_some() => self.leave_children(None)?,
                phase => self.take_turns(phase, begun.elapsed(), &mut turns)?,
            };
            if follower.passed(analysis, &self.passed(now))? {
                break;
            }
            let left = self.length.map_or(INTERVAL, |length| length.saturating_sub(begun.elapsed()));
            thread::sleep(INTERVAL.min(left));
        }
        // Where probes were being placed, they go with it: a follower may stay for long.
        drop(phase);
        drop(rest);
        let (went, passed) =
            self.end(told, &mut Followed { analysis: &mut *analysis, follower: &mut *follower, asked })?;
        follower.ended(analysis, &passed)?;
        Ok(went)
    }

    /// How far it is, where everything up to `now` was read.
    fn passed(&self, now: Ns) -> Passed<'a> {
        let WindowSubject { code, wanted, timed, status } = self.subject;
        Passed {
            from: self.run.from().unwrap_or(now),
            now,
            length: self.length,
            cost: self.guard.cost(),
            realtime_offset_ns: bpf::realtime_offset_ns(),
            code,
            wanted,
            timed,
            status,
        }
    }

    fn end(mut self, costs: Option<EndCosts>, sink: &mut dyn ProbeSink) -> Result<(Went, Passed<'a>)> {
        self.guard.look(Snapshot::take(&self.run, &mut self.cpu));
        let spent = self.guard.spent();
        let passed = self.passed(Ns(0));
        let (summary, removal) = self.run.finish(sink)?;
        let passed = Passed { now: summary.window.1, ..passed };
        let removal = removal.and(self.removing).and(self.costs.end().unwrap_or_else(|why| {
            messages::note(format!(
                "the cost of a probe was measured before the window only: {why}; latencies may be off by more \
                 than they say if the machine has been slower or faster since"
            ));
            Removal::default()
        }));
        Ok((Went { summary, removal, spent, costs }, passed))
    }

    fn take_turns(&mut self, phase: Phase, elapsed: Duration, turns: &mut Turns) -> Result<Phase> {
        match phase {
            Phase::Children(round) if elapsed >= round.children_until => {
                self.leave_children(Some(round.until))
            }
            Phase::Alone(Some(until)) if elapsed >= until && self.removing.is_done() => {
                self.begin_round(elapsed, turns)
            }
            Phase::Placing(placing, round) if placing.is_done() => {
                self.placed_in = self.run.keep(placing)?;
                self.run.time(true)?;
                self.guard.begin_slice(true);
                Ok(Phase::Children(round.from(elapsed, self.purpose.rounds)))
            }
            phase => Ok(phase),
        }
    }

    /// Children are left alone: at once no call of theirs is timed, and soon their probes are gone.
    fn leave_children(&mut self, until: Option<Duration>) -> Result<Phase> {
        self.run.time(false)?;
        let earlier = std::mem::take(&mut self.removing);
        self.removing = self.run.remove(self.children).and(earlier);
        self.guard.begin_slice(false);
        Ok(Phase::Alone(until))
    }

    /// Says at once why something ends: a window may be long.
    fn say_too_much(&self, why: TooMuch) {
        let what = if why.asked_fit { "children were left alone" } else { self.purpose.without() };
        self.subject.status.clear();
        messages::warn(format!(
            "probes cost {} % more CPU time, and --max-overhead allows {} %: {what}",
            percent(why.percent),
            self.most_percent
        ));
    }

    /// Children have their next turn, if that is cheap enough.
    fn begin_round(&mut self, elapsed: Duration, turns: &mut Turns) -> Result<Phase> {
        let removed = std::mem::take(&mut self.removing).wait();
        let groups = groups(self.candidates, self.children, &self.run.hits());
        match turns.after(elapsed, self.placed_in + removed.time).filter(|_| fits(&groups, removed)) {
            // It may be cheap enough later on.
            None if self.purpose.rounds == Rounds::Seldom => Ok(Phase::Alone(Some(elapsed + LONGEST_ROUND))),
            None => Ok(Phase::Alone(None)),
            Some(round) => {
                self.run.disturb();
                Ok(Phase::Placing(self.run.place(groups, Part::Both)?, round))
            }
        }
    }
}

/// Whether the probes can be removed in time again.
fn fits(groups: &[Group], removed: Removed) -> bool {
    let links: usize = groups.iter().flatten().map(|(_, function)| function.places.len()).sum();
    removed.most_links_in(REMOVED_IN).is_none_or(|most| links <= most)
}

/// Children, those that are called about as often together.
fn groups(candidates: &[Candidate], children: &[usize], hits: &[Hits]) -> Vec<Group> {
    let mut by_hits: Vec<usize> = children.to_vec();
    let of = |index: &usize| hits.get(*index).map_or(0, |hits| hits.entries);
    by_hits.sort_by_key(|index| std::cmp::Reverse(of(index)));
    by_hits.chunks(children.len().div_ceil(GROUPS).max(1)).map(|some| group(candidates, some)).collect()
}

/// The group of these candidates: their probes are removed together.
pub(super) fn group(candidates: &[Candidate], indices: &[usize]) -> Group {
    let one = |index: &usize| Some((*index, candidates.get(*index)?.probed.clone()));
    indices.iter().filter_map(one).collect()
}
