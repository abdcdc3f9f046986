//! What probing will cost the program: said before it begins, and refused if it is too much.

use std::time::Duration;

use anyhow::Result;
use bpf::{Costs, ProbedFunction, Session};
use model::Pid;
use recorder::Proc;

use crate::exit::{Exit, failure};
use crate::messages;
use crate::render::units::{duration, grouped, percent};

/// How long calls are counted.
const COUNTED: Duration = Duration::from_millis(100);

/// Counts calls for a moment, and says what timing them will cost.
///
/// # Errors
/// It is more than `most_percent` of the CPU time that the processes take without.
pub(super) fn check(
    session: &mut Session,
    functions: &[ProbedFunction],
    costs: &Costs,
    pids: &[Pid],
    most_percent: f64,
) -> Result<()> {
    let before = cpu_ns(pids);
    let calls = session.count(COUNTED)?;
    let taken_ns = cpu_ns(pids).saturating_sub(before);
    let expected = Expected::of(&calls, functions, costs, taken_ns);
    let text = expected.text();
    if expected.percent() > most_percent {
        let message = format!(
            "{text}, and --max-overhead allows {most_percent} %: take a function that is called less often, \
                               or allow more with --max-overhead"
        );
        return Err(failure(Exit::NotPossible, message));
    }
    messages::note(text);
    Ok(())
}

/// What is expected of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    calls: u64,
    cost_ns: u64,
    /// CPU time that the processes take without probes.
    own_ns: u64,
}

impl Expected {
    fn of(calls: &[u64], functions: &[ProbedFunction], costs: &Costs, taken_ns: u64) -> Self {
        let pairs = calls.iter().zip(functions);
        let cost_ns: u64 =
            pairs.map(|(calls, function)| calls.saturating_mul(costs.of(&function.points).call_ns)).sum();
        let per_second = |in_time: u64| in_time.saturating_mul(1000) / COUNTED.as_millis() as u64;
        // About half of it, the probes at the entries, was there while the calls were counted.
        let own_ns = taken_ns.saturating_sub(cost_ns / 2).max(1);
        Self {
            calls: per_second(calls.iter().sum()),
            cost_ns: per_second(cost_ns),
            own_ns: per_second(own_ns),
        }
    }

    /// Of the CPU time that is taken without.
    fn percent(&self) -> f64 {
        100.0 * self.cost_ns as f64 / self.own_ns as f64
    }

    fn text(&self) -> String {
        let each = self.cost_ns.checked_div(self.calls).unwrap_or(0);
        match self.calls {
            0 => "no call in 100 ms; what probes will cost is not known".to_owned(),
            calls => format!(
                "{} calls a second, each slower by {}: {} % more CPU time",
                grouped(calls),
                duration(each),
                percent(self.percent())
            ),
        }
    }
}

/// Time on the CPU of all their threads so far.
fn cpu_ns(pids: &[Pid]) -> u64 {
    let proc = Proc::host();
    let of_thread = |pid: Pid, tid: model::Tid| {
        let text = proc.text(&format!("{}/task/{}/schedstat", pid.0, tid.0))?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    pids.iter()
        .flat_map(|pid| {
            proc.tasks(*pid).unwrap_or_default().into_iter().filter_map(move |tid| of_thread(*pid, tid))
        })
        .sum()
}
