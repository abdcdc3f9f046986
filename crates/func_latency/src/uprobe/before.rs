//! Before the window: probes that count are placed, the functions to time are chosen, and the other probes
//! are placed.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use bpf::{EndCosts, Group, Part, Removal, Removed, Run, Session, StackSeen};
use model::Pid;
use recorder::Proc;

use super::ends;
use super::functions::Candidate;
use super::guard::{CpuTime, Guard, Price, Snapshot};
use super::overhead::{self, Choice, Moment, Others};
use super::status::Status;
use super::unwinding::Calls;
use super::window::{REMOVED_IN, group};
use crate::live_code::LiveCode;
use crate::messages;
use crate::record_config::ProbeLimits;
use crate::render::units::counted;

/// Groups of links at most, of the functions that were asked for.
const GROUPS: usize = 64;

/// What can be begun.
pub(super) struct Ready {
    pub(super) run: Run,
    pub(super) choice: Choice,
    pub(super) placed_in: Duration,
    pub(super) removing: Removal,
    pub(super) guard: Guard,
    pub(super) cpu: CpuTime,
}

/// What is probed, and how.
pub(super) struct Plan<'a> {
    pub(super) session: &'a Session,
    pub(super) candidates: &'a mut [Candidate],
    /// The first ones were asked for.
    pub(super) asked: usize,
    pub(super) costs: &'a EndCosts,
    pub(super) code: &'a LiveCode,
    pub(super) proc: &'a Proc,
    pub(super) limits: ProbeLimits,
    /// A program stands at its entry: nothing can be counted.
    pub(super) is_started: bool,
}

impl Plan<'_> {
    /// Places the probes, first those of the functions that were asked for; what it will cost is said.
    ///
    /// # Errors
    /// A probe cannot be placed, or it would cost too much.
    pub(super) fn carry_out(
        mut self,
        pids: &[Pid],
        costs_removal: Removal,
        status: &Status,
    ) -> Result<Ready> {
        let mut cpu = CpuTime::of(pids);
        let mut run = self.session.run()?;
        status.say("placing probes");
        self.place(&mut run, self.asked(), Part::Entries)?;
        let asked = self.count(&run, &mut cpu, status)?;
        self.settle(0..self.asked, &asked.stacks, status)?;
        let expected = overhead::of_asked(&asked, &self.prices(), self.asked, self.limits, &self.others())?;
        let fit = self.children_that_fit(costs_removal.wait());
        status.say("placing probes of children");
        let mut placed_in = self.place(&mut run, self.singly(fit.clone()), Part::Entries)?;
        let all = if fit.is_empty() { asked.clone() } else { self.count(&run, &mut cpu, status)? };
        self.settle(fit.clone(), &all.stacks, status)?;
        let prices = self.prices();
        let choice = overhead::choose(self.candidates, fit.clone(), expected, &all, &prices, self.limits);
        let others: Vec<usize> = fit.filter(|index| !choice.children.contains(index)).collect();
        let removing = run.remove(&others);
        status.clear();
        self.say(&choice);
        for index in &choice.children {
            let candidate = self.candidates.get(*index);
            candidate
                .map_or(Ok(()), |candidate| self.session.describe(*index, &candidate.probed.points, true))?;
        }
        status.say("placing probes");
        let groups = [self.asked(), self.singly(choice.children.iter().copied())].concat();
        placed_in += self.place(&mut run, groups, Part::Ends)?;
        let most = (!self.is_started).then(|| self.limits.most());
        let now = Snapshot::take(&run, &mut cpu);
        let guard = Guard::new(prices, self.asked, &choice.children, most, asked.per_call, now);
        Ok(Ready { run, choice, placed_in, removing, guard, cpu })
    }

    fn place(&self, run: &mut Run, groups: Vec<Group>, part: Part) -> Result<Duration> {
        Ok(run.keep(run.place(groups, part)?)?)
    }

    fn count(&self, run: &Run, cpu: &mut CpuTime, status: &Status) -> Result<Moment> {
        if self.is_started {
            return Ok(Moment::before_the_program(self.candidates.len()));
        }
        status.say("counting calls");
        Moment::of(run, cpu, &self.prices(), self.asked, self.limits)
    }

    fn others(&self) -> Others {
        let asked = || self.candidates.iter().take(self.asked);
        Others {
            names: asked().map(|candidate| self.code.image.function_name(candidate.id)).collect(),
            rewritten: asked().map(|candidate| Price::rewritten(candidate, self.costs)).collect(),
        }
    }

    fn prices(&self) -> Vec<Price> {
        Price::of_all(self.candidates, self.costs)
    }

    /// Decides how the ends of calls are seen, by where these came from.
    fn settle(&mut self, of: Range<usize>, stacks: &[StackSeen], status: &Status) -> Result<()> {
        status.clear();
        let Self { code, proc, costs, .. } = *self;
        let calls = Calls::new(code, proc, self.candidates.len(), stacks, self.is_started);
        let name = |candidate: &Candidate| code.image.function_name(candidate.id);
        ends::settle(self.candidates, of.clone(), &calls, costs, &name)?;
        let asked = self.candidates.iter().enumerate().take(self.asked);
        for (index, candidate) in asked.filter(|(index, _)| of.contains(index)) {
            self.session.describe(index, &candidate.probed.points, true)?;
        }
        Ok(())
    }

    fn asked(&self) -> Vec<Group> {
        let asked: Vec<usize> = (0..self.asked).collect();
        let size = self.asked.div_ceil(GROUPS).max(1);
        asked.chunks(size).map(|some| group(self.candidates, some)).collect()
    }

    /// Each function can be removed by itself.
    fn singly(&self, children: impl Iterator<Item = usize>) -> Vec<Group> {
        children.map(|index| group(self.candidates, &[index])).collect()
    }

    /// Children with probes that can be removed in time; a note says if some cannot.
    fn children_that_fit(&self, removed: Removed) -> Range<usize> {
        let all = self.asked..self.candidates.len();
        let Some(most) = removed.most_links_in(REMOVED_IN) else { return all };
        // A link for what counts, and one for what times.
        let mut links = 0;
        let fit = self.candidates.iter().take_while(|candidate| {
            links += 2 * candidate.probed.places.len();
            links <= most
        });
        let fit = self.asked..fit.count().max(self.asked);
        if fit.end < all.end {
            messages::note(format!(
                "{} that the code calls are left alone: here it would take more than {} s to remove their probes",
                counted((all.end - fit.end) as u64, "function"),
                REMOVED_IN.as_secs()
            ));
        }
        fit
    }

    fn say(&self, choice: &Choice) {
        let cost = choice.expected.text();
        messages::note(match self.limits.most_percent.filter(|_| self.is_started) {
            Some(percent) => format!("{cost}, and --max-overhead {percent} does not limit it"),
            None => cost,
        });
    }
}
