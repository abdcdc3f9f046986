//! What probing will cost the program: said before calls are timed, and refused if it is too much.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bpf::{Run, StackSeen};

use super::functions::Candidate;
use super::guard::{CpuTime, PerCall, Price, Snapshot, Span};
use crate::exit::{Exit, failure};
use crate::record_config::ProbeLimits;
use crate::render::units::{duration, grouped, percent};

/// How long calls are counted.
const COUNTED: Duration = Duration::from_millis(100);

/// How long at least, where counting alone costs too much.
const COUNTED_AT_LEAST: Duration = Duration::from_millis(20);

/// CPU time for each call is taken in spans of this.
const SPAN: Duration = Duration::from_millis(10);

/// What a moment has shown in which calls were counted, by probes at entries.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Calls of each function.
    calls: Vec<u64>,
    /// Stacks of some.
    pub(super) stacks: Vec<StackSeen>,
    /// How long it was.
    time: Duration,
    /// Time that the processes took on the CPU, without what counting cost.
    own_ns: u64,
    /// CPU time for each call of those that were asked for, without what counting cost.
    pub(super) per_call: PerCall,
}

impl Moment {
    /// Nothing has been called yet.
    pub(super) fn before_the_program(functions: usize) -> Self {
        let (calls, stacks) = (vec![0; functions], Vec::new());
        Self { calls, stacks, time: COUNTED, own_ns: 0, per_call: PerCall::default() }
    }

    /// Counts calls: all numbers are of the same span.
    ///
    /// # Errors
    /// The stacks cannot be read.
    pub(super) fn of(
        run: &Run,
        cpu: &mut CpuTime,
        prices: &[Price],
        asked: usize,
        limits: ProbeLimits,
    ) -> Result<Self> {
        let begun = Instant::now();
        let first = Snapshot::take(run, cpu);
        let mut last = first.clone();
        let mut per_call = PerCall::default();
        let mut stacks = Vec::new();
        loop {
            thread::sleep(SPAN);
            stacks.extend(run.stacks()?);
            let now = Snapshot::take(run, cpu);
            let span = now.since(&last);
            let own_ns = span.cpu_ns.saturating_sub(span.cost_ns(prices, prices.len()));
            per_call.add(own_ns, span.hits.iter().take(asked).map(|hits| hits.entries).sum());
            last = now;
            let all = last.since(&first);
            // On an overloaded machine the processes run between two readings: hits have cost more than all
            // of their time then.
            let is_consistent = all.cost_ns(prices, prices.len()) < all.cpu_ns;
            let is_too_much = begun.elapsed() >= COUNTED_AT_LEAST
                && is_consistent
                && counting_percent(&all, prices) > limits.most();
            if begun.elapsed() >= COUNTED || is_too_much {
                return Ok(Self {
                    stacks,
                    calls: all.hits.iter().map(|hits| hits.entries).collect(),
                    time: all.time,
                    own_ns: all.own_ns(all.cost_ns(prices, prices.len())),
                    per_call,
                });
            }
        }
    }
}

fn counting_percent(span: &Span, prices: &[Price]) -> f64 {
    let cost_ns = span.cost_ns(prices, prices.len());
    100.0 * cost_ns as f64 / span.own_ns(cost_ns) as f64
}

/// Of that, what children may take with the functions that were asked for: load is not even.
const SHARE_WITH_CHILDREN: f64 = 0.8;

/// What will be probed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// Children, by their number among the candidates.
    pub(super) children: Vec<usize>,
    /// What it will cost.
    pub(super) expected: Expected,
}

/// What else could be done with the functions that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// Their names.
    pub(super) names: Vec<String>,
    /// Their prices with rewritten return addresses.
    pub(super) rewritten: Vec<Price>,
}

/// Functions that fit alone and are named.
const NAMED: usize = 3;

impl Others {
    /// What fits, where all of it costs too much: with the figures of each.
    fn that_fit(&self, moment: &Moment, prices: &[Price], all: Expected, most: f64) -> String {
        let asked = self.names.len();
        let mut ways = Vec::new();
        let rewritten = Expected::of(moment, &self.rewritten, 0..asked).percent();
        if rewritten < all.percent() {
            let fits = if rewritten <= most { "" } else { ", which is too much as well" };
            ways.push(format!("--uretprobe makes that {} %{fits}", percent(rewritten)));
        }
        let of_one = |index: usize| Expected::of(moment, prices, index..index + 1).percent();
        let mut alone: Vec<(f64, &str)> =
            self.names.iter().enumerate().map(|(index, name)| (of_one(index), name.as_str())).collect();
        alone.retain(|(cost, _)| asked > 1 && *cost <= most);
        alone.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let text = |(cost, name): &(f64, &str)| format!("{name} alone costs {} %", percent(*cost));
        ways.extend(alone.iter().take(NAMED).map(text));
        ways.push(format!("--max-overhead {} allows it", all.percent().ceil()));
        ways.push("a function that is called less often costs less".to_owned());
        ways.join("; ")
    }
}

/// What the functions that were asked for will cost alone.
///
/// # Errors
/// It is too much.
pub(super) fn of_asked(
    moment: &Moment,
    prices: &[Price],
    asked: usize,
    limits: ProbeLimits,
    others: &Others,
) -> Result<Expected> {
    let expected = Expected::of(moment, prices, 0..asked);
    let most = limits.most();
    if expected.percent() > most {
        let message = format!(
            "{}, and --max-overhead allows {most} %: {}",
            expected.text(),
            others.that_fit(moment, prices, expected, most)
        );
        return Err(failure(Exit::NotPossible, message));
    }
    Ok(expected)
}

/// Of these candidates, which are children, those that fit: the ones that are called least first, as their
/// calls are the long ones, and those that were not called last. `moment`: calls of children were counted,
/// too.
pub(super) fn choose(
    candidates: &[Candidate],
    of: Range<usize>,
    mut expected: Expected,
    moment: &Moment,
    prices: &[Price],
    limits: ProbeLimits,
) -> Choice {
    // As if the same CPU time had passed as when those that were asked for were counted.
    let scale = expected.own_ns as f64 / moment.own_ns.max(1) as f64;
    let calls = |index: usize| moment.calls.get(index).map_or(0, |calls| (*calls as f64 * scale) as u64);
    let mut by_calls: Vec<usize> = of.collect();
    by_calls.sort_by_key(|index| {
        (calls(*index) == 0, calls(*index), candidates.get(*index).map(|candidate| candidate.id))
    });
    let (mut children, mut probes) = (Vec::new(), 0);
    for index in by_calls {
        let price = prices.get(index).copied().unwrap_or_default();
        let more = candidates.get(index).map_or(0, |candidate| candidate.probed.points.points.len());
        let with_child = expected.with_child(calls(index), calls(index).saturating_mul(price.call_ns()));
        let most = limits.most() * SHARE_WITH_CHILDREN;
        if probes + more <= limits.most_probes && with_child.percent() <= most {
            (probes, expected) = (probes + more, with_child);
            children.push(index);
        }
    }
    Choice { children, expected }
}

/// What is expected of a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Expected {
    time: Duration,
    calls: u64,
    child_calls: u64,
    cost_ns: u64,
    child_cost_ns: u64,
    own_ns: u64,
}

impl Expected {
    /// Of some functions that were asked for.
    fn of(moment: &Moment, prices: &[Price], functions: Range<usize>) -> Self {
        let mut expected = Self { time: moment.time, own_ns: moment.own_ns.max(1), ..Self::default() };
        let of_each = moment.calls.iter().zip(prices);
        for (calls, price) in of_each.skip(functions.start).take(functions.len()) {
            expected.calls += calls;
            expected.cost_ns = expected.cost_ns.saturating_add(calls.saturating_mul(price.call_ns()));
        }
        expected
    }

    fn with_child(self, calls: u64, cost_ns: u64) -> Self {
        Self {
            child_calls: self.child_calls + calls,
            child_cost_ns: self.child_cost_ns.saturating_add(cost_ns),
            ..self
        }
    }

    /// Of the CPU time that is taken without.
    pub(super) fn percent(&self) -> f64 {
        100.0 * self.cost_ns.saturating_add(self.child_cost_ns) as f64 / self.own_ns as f64
    }

    /// [`Self::percent`]; `None`: no call was counted, and nothing was expected.
    pub(super) fn announced_percent(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.percent())
    }

    /// In words.
    pub(super) fn text(&self) -> String {
        let a_second = |calls: u64| grouped((calls as f64 / self.time.as_secs_f64()).round() as u64);
        let Some(each) = self.cost_ns.checked_div(self.calls) else {
            return "no call was counted before the window; what probes will cost is not known".to_owned();
        };
        let children = match self.child_calls {
            0 => String::new(),
            calls => format!(", and {} a second of children", a_second(calls)),
        };
        let (calls, each) = (a_second(self.calls), duration(each));
        format!(
            "{calls} calls a second, each slower by {each}{children}: {} % more CPU time",
            percent(self.percent())
        )
    }
}

#[cfg(test)]
mod tests {
    use bpf::{CodePart, Ends, FunctionCode, ProbePoints, ProbedFunction};
    use model::{FileOffset, FunctionId, Svma};

    use super::*;

    /// A function of two probes.
    fn candidate(id: u32, is_child: bool) -> Candidate {
        let part = CodePart { start: Svma(0), file_offset: FileOffset(0), bytes: &[0x55, 0x5d, 0xc3] };
        let points =
            ProbePoints::new(&FunctionCode { entry: Svma(0), parts: vec![part] }, Ends::default()).unwrap();
        let probed = ProbedFunction { points, is_child, places: vec![] };
        Candidate { id: FunctionId(id), probed, at_instructions: None }
    }

    fn chosen(most_percent: f64, most_probes: usize) -> Result<(Vec<usize>, String)> {
        let candidates: Vec<Candidate> = (0..5).map(|id| candidate(id, id > 0)).collect();
        let moment = Moment {
            calls: vec![100, 1_000, 0, 50, 50],
            stacks: vec![],
            time: Duration::from_millis(100),
            own_ns: 1_000_000,
            per_call: PerCall::default(),
        };
        let prices = [Price { entry_ns: 500, other_ns: 500 }; 5];
        let limits = ProbeLimits { most_percent: Some(most_percent), most_probes };
        let others =
            Others { names: vec!["f".to_owned()], rewritten: vec![Price { entry_ns: 300, other_ns: 0 }] };
        let expected = of_asked(&moment, &prices, 1, limits, &others)?;
        let twice_as_long = Moment {
            calls: moment.calls.iter().map(|calls| 2 * calls).collect(),
            own_ns: 2_000_000,
            ..moment
        };
        let choice = choose(&candidates, 1..5, expected, &twice_as_long, &prices, limits);
        Ok((choice.children, choice.expected.text()))
    }

    #[test]
    fn children_that_fit_are_those_that_are_called_least() {
        let text = "1,000 calls a second, each slower by 1.00 us, and 1,000 a second of children: 20.0 % more CPU time";
        assert_eq!(chosen(25.0, 100).unwrap(), (vec![3, 4, 2], text.to_owned()));
        assert_eq!(chosen(25.0, 2).unwrap().0, [3]);
        assert_eq!(chosen(150.0, 100).unwrap().0, [3, 4, 1, 2]);
        let alone = "1,000 calls a second, each slower by 1.00 us: 10.0 % more CPU time";
        assert_eq!(chosen(20.0, 0).unwrap(), (vec![], alone.to_owned()));
    }

    #[test]
    fn what_costs_too_much_is_refused_with_what_it_costs() {
        let error = chosen(9.0, 100).unwrap_err().to_string();
        assert!(
            error.starts_with("1,000 calls a second, each slower by 1.00 us: 10.0 % more CPU time, and"),
            "{error}"
        );
        let ways = "allows 9 %: --uretprobe makes that 3.0 %; --max-overhead 10 allows it; a function that is called less often costs \
                    less";
        assert!(error.ends_with(ways), "{error}");
    }

    /// The refusal named no way that fits.
    #[test]
    fn of_several_functions_those_that_fit_alone_are_named() {
        let moment = Moment {
            calls: vec![100, 10, 20],
            stacks: vec![],
            time: Duration::from_millis(100),
            own_ns: 1_000_000,
            per_call: PerCall::default(),
        };
        let prices = [Price { entry_ns: 500, other_ns: 500 }; 3];
        let names = ["often", "seldom", "between"].map(str::to_owned).to_vec();
        let others = Others { names, rewritten: prices.to_vec() };
        let limits = ProbeLimits { most_percent: Some(9.0), most_probes: 0 };
        let error = of_asked(&moment, &prices, 3, limits, &others).unwrap_err().to_string();
        assert!(
            error.contains("9 %: between alone costs 2.0 %; seldom alone costs 1.0 %; --max-overhead 13"),
            "{error}"
        );
    }
}
