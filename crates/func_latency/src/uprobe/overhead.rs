//! What probing will cost the program: said before it begins, and refused if it is too much.

use std::time::Duration;

use anyhow::Result;
use bpf::{Costs, Session};
use model::{Pid, Tid};
use recorder::Proc;

use super::functions::Candidate;
use crate::exit::{Exit, failure};
use crate::render::units::{duration, grouped, percent};

/// How long calls are counted.
const COUNTED: Duration = Duration::from_millis(100);

/// What a moment has shown.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Calls of each function.
    calls: Vec<u64>,
    /// Time that the processes took on the CPU, with probes that only count.
    taken_ns: u64,
}

impl Moment {
    /// Nothing has been called yet.
    pub(super) fn before_the_program(functions: usize) -> Self {
        Self { calls: vec![0; functions], taken_ns: 0 }
    }

    /// Counts the calls of a session's functions for a moment.
    ///
    /// # Errors
    /// A probe cannot be placed.
    pub(super) fn of(session: &mut Session, pids: &[Pid]) -> Result<Self> {
        let before = cpu_ns(pids);
        let calls = session.count(COUNTED)?;
        Ok(Self { calls, taken_ns: cpu_ns(pids).saturating_sub(before) })
    }
}

/// What probes may take if nothing is said.
const MOST_PERCENT: f64 = 20.0;

/// What may be spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeLimits {
    /// Of the CPU time that the processes take without probes; `None`: [`MOST_PERCENT`].
    pub(crate) most_percent: Option<f64>,
    /// Probes at children.
    pub(crate) most_probes: usize,
}

/// The first `wanted` functions, and of the others, which are children, those that fit: the ones that are called least first,
/// as their calls are the long ones, and those that were not called last.  Beside them, in words, what they will cost.
///
/// # Errors
/// The wanted ones alone cost too much.
pub(super) fn choose(
    candidates: Vec<Candidate>,
    wanted: usize,
    moment: &Moment,
    costs: &Costs,
    limits: ProbeLimits,
) -> Result<(Vec<Candidate>, String)> {
    let mut all: Vec<(Candidate, u64)> = candidates.into_iter().zip(moment.calls.iter().copied()).collect();
    let mut children = all.split_off(wanted.min(all.len()));
    let cost_ns = |(candidate, calls): &(Candidate, u64)| {
        calls.saturating_mul(costs.of(&candidate.probed.points).call_ns)
    };
    // What counting took is in it; that is an estimate, and the program's own part is never nothing.
    let entry_ns = |(candidate, calls): &(Candidate, u64)| {
        calls.saturating_mul(costs.of(&candidate.probed.points).entry_ns)
    };
    let counting_ns = all.iter().chain(&children).map(entry_ns).sum::<u64>();
    let own_ns = moment.taken_ns.saturating_sub(counting_ns).max(moment.taken_ns / 100).max(1);
    let most_percent = limits.most_percent.unwrap_or(MOST_PERCENT);
    let mut expected = Expected { calls: 0, cost_ns: 0, own_ns };
    all.iter().for_each(|one| expected.add(one.1, cost_ns(one)));
    if expected.percent() > most_percent {
        let message = format!(
            "{}, and --max-overhead allows {most_percent} %: take a function that is called less often, or allow more",
            expected.text()
        );
        return Err(failure(Exit::NotPossible, message));
    }
    children.sort_by_key(|(candidate, calls)| (*calls == 0, *calls, candidate.id));
    let mut probes = 0;
    for child in children {
        let (more, with_child) =
            (child.0.probed.points.points.len(), expected.with(child.1, cost_ns(&child)));
        if probes + more <= limits.most_probes && with_child.percent() <= most_percent {
            (probes, expected) = (probes + more, with_child);
            all.push(child);
        }
    }
    Ok((all.into_iter().map(|(candidate, _)| candidate).collect(), expected.text()))
}

/// What is expected of a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Expected {
    calls: u64,
    cost_ns: u64,
    own_ns: u64,
}

impl Expected {
    fn add(&mut self, calls: u64, cost_ns: u64) {
        *self = self.with(calls, cost_ns);
    }

    fn with(self, calls: u64, cost_ns: u64) -> Self {
        Self { calls: self.calls + calls, cost_ns: self.cost_ns.saturating_add(cost_ns), ..self }
    }

    /// Of the CPU time that is taken without.
    fn percent(&self) -> f64 {
        100.0 * self.cost_ns as f64 / self.own_ns as f64
    }

    fn text(&self) -> String {
        let per_second = |in_time: u64| in_time.saturating_mul(1000) / COUNTED.as_millis() as u64;
        match self.cost_ns.checked_div(self.calls) {
            None => "no call was counted before the window; what probes will cost is not known".to_owned(),
            Some(each) => format!(
                "{} calls a second, each slower by {}: {} % more CPU time",
                grouped(per_second(self.calls)),
                duration(each),
                percent(self.percent())
            ),
        }
    }
}

/// Time on the CPU of all their threads so far.
fn cpu_ns(pids: &[Pid]) -> u64 {
    let proc = Proc::host();
    let of_thread = |pid: Pid, tid: Tid| {
        let text = proc.text(&format!("{}/task/{}/schedstat", pid.0, tid.0))?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let threads =
        pids.iter().flat_map(|pid| proc.tasks(*pid).unwrap_or_default().into_iter().map(|tid| (*pid, tid)));
    threads.filter_map(|(pid, tid)| of_thread(pid, tid)).sum()
}

#[cfg(test)]
mod tests {
    use bpf::{CodePart, Cost, Ends, FunctionCode, ProbePoints, ProbedFunction};
    use model::{FileOffset, FunctionId, Svma};

    use super::*;

    /// A function of two probes.
    fn candidate(id: u32, is_child: bool) -> Candidate {
        let part = CodePart { start: Svma(0), file_offset: FileOffset(0), bytes: &[0x55, 0x5d, 0xc3] };
        let points =
            ProbePoints::new(&FunctionCode { entry: Svma(0), parts: vec![part] }, Ends::default()).unwrap();
        Candidate { id: FunctionId(id), probed: ProbedFunction { points, is_child, places: vec![] } }
    }

    fn chosen(most_percent: f64, most_probes: usize) -> Result<(Vec<u32>, String)> {
        let candidates = (0..5).map(|id| candidate(id, id > 0)).collect();
        let moment = Moment { calls: vec![100, 1_000, 0, 50, 50], taken_ns: 1_600_000 };
        let costs = Costs {
            emulated: Cost { call_ns: 1_000, entry_ns: 500, ..Cost::default() },
            stepped: Cost { call_ns: 9_000, entry_ns: 500, ..Cost::default() },
        };
        let (chosen, text) = choose(
            candidates,
            1,
            &moment,
            &costs,
            ProbeLimits { most_percent: Some(most_percent), most_probes },
        )?;
        Ok((chosen.into_iter().map(|candidate| candidate.id.0).collect(), text))
    }

    #[test]
    fn children_that_fit_are_those_that_are_called_least() {
        let text = "2,000 calls a second, each slower by 1.00 us: 20.0 % more CPU time".to_owned();
        assert_eq!(chosen(20.0, 100).unwrap(), (vec![0, 3, 4, 2], text));
        assert_eq!(chosen(20.0, 2).unwrap().0, [0, 3]);
        assert_eq!(chosen(120.0, 100).unwrap().0, [0, 3, 4, 1, 2]);
        assert_eq!(chosen(20.0, 0).unwrap().0, [0]);
    }

    #[test]
    fn what_costs_too_much_is_refused_with_what_it_costs() {
        let error = chosen(9.0, 100).unwrap_err().to_string();
        assert!(
            error.starts_with("1,000 calls a second, each slower by 1.00 us: 10.0 % more CPU time, and"),
            "{error}"
        );
    }
}
