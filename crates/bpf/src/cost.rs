//! What a probe costs here: measured on functions of our own that do nothing.
//!
//! ```text
//! own_calls  batches of calls under each load (`load`), with probes -> times
//! live       ... again and again, while the target's calls are timed
//! ```
//! It depends on the instruction.  The kernel carries out a `push`, a `nop` or a jump itself; another
//! instruction it has the program carry out, and traps again after it.  A `ret` is always such a one.  And
//! it depends on what ran before: a probe in a loop that does nothing else finds all of the kernel's code in
//! the caches, one in a server does not.  So calls are made under loads of several kinds ([`Load`]), and a
//! cost is a range.

mod live;
mod own_calls;

use std::time::Duration;

use model::{CallProbes, ProbeCost, ProbeTime};

pub use self::live::LiveCosts;
use self::own_calls::{OwnCalls, Samples, Shape, Times};
use crate::error::BpfError;
use crate::idle::{self, Idle};
use crate::load::Load;
use crate::probe_points::{Ends, ProbePoints};
use crate::removal::Removal;
use crate::waker_stack::WakerStack;

/// What the probes of a function cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// To the program, for one call: a probe at the entry and one at the return.  The median where it is
    /// largest: with cold caches.
    pub call_ns: u64,
    /// Of that, the probe at the entry: what counting alone costs.
    pub entry_ns: u64,
    /// Between what it lies.
    pub probes: ProbeCost,
}

/// Costs by the kind of the first instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The kernel carries it out.
    pub emulated: Cost,
    /// It does not.
    pub stepped: Cost,
}

impl Costs {
    /// Of a function.
    #[must_use]
    pub const fn of(&self, points: &ProbePoints) -> Cost {
        if points.entry_is_emulated { self.emulated } else { self.stepped }
    }

    fn at_instructions([push, nop, mov, push_jump, mov_jump]: &[Samples; AT_INSTRUCTIONS.len()]) -> Self {
        // Two jumps are the cheapest pair of probes, two stepped instructions the dearest.
        let hit = half(push_jump.probes().whole.or(mov.probes().whole));
        let emulated = Cost::of(&[push, nop], push_jump, hit);
        Self { emulated, stepped: Cost::of(&[mov], mov_jump, hit) }
    }

    /// Wherever such a call ends, it is its return that is seen.
    fn by_return_address([push, nop, mov]: &[Samples; idle::AGAIN.len()]) -> Self {
        let whole = push.probes().whole.or(mov.probes().whole);
        let hit = ProbeTime { least_ns: whole.least_ns / 2, ..whole };
        Self { emulated: Cost::of(&[push, nop], push, hit), stepped: Cost::of(&[mov], mov, hit) }
    }
}

/// Functions that are probed at their ends.
const AT_INSTRUCTIONS: [Idle; 5] = [idle::PUSH, idle::NOP, idle::MOV, idle::PUSH_JUMP, idle::MOV_JUMP];

/// Costs by how ends are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndCosts {
    /// `ret` is probed.
    pub at_instructions: Costs,
    /// Return addresses are rewritten.
    pub by_return_address: Costs,
}

impl EndCosts {
    /// Measures the costs for these kinds of ends, or for both at once: to place and to remove probes takes
    /// longer than to measure.  It takes half a second, most of it waiting.  The probes that did it are being
    /// removed.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub fn measure(ends: Option<Ends>) -> Result<(Self, Removal), BpfError> {
        let mut calls = OwnCalls::new(&Self::functions(ends));
        let removal = calls.record(MEASURED_IN, BATCH_INTERVAL, Some(WakerStack::Kernel), |calls| {
            calls.make(BATCH);
            calls.made() == BATCHES
        })?;
        if calls.seen_whole() < calls.made() {
            return Err(own_calls::unknown("not every call was seen"));
        }
        Ok((Self::of_samples(ends, &calls.samples()), removal))
    }

    /// What has to be called to learn them.
    fn functions(ends: Option<Ends>) -> Vec<(Idle, Ends)> {
        let at = AT_INSTRUCTIONS.map(|function| (function, Ends::AtInstructions));
        let by = idle::AGAIN.map(|function| (function, Ends::ByReturnAddress));
        at.into_iter().chain(by).filter(|(_, kind)| ends.is_none_or(|ends| ends == *kind)).collect()
    }

    /// From the samples of [`Self::functions`]; a kind that was not measured costs what the other does.
    fn of_samples(ends: Option<Ends>, samples: &[Samples]) -> Self {
        let at =
            samples.first_chunk().filter(|_| ends != Some(Ends::ByReturnAddress)).map(Costs::at_instructions);
        let by =
            samples.last_chunk().filter(|_| ends != Some(Ends::AtInstructions)).map(Costs::by_return_address);
        let other = at.or(by).unwrap_or_default();
        Self { at_instructions: at.unwrap_or(other), by_return_address: by.unwrap_or(other) }
    }

    /// Between what these and `now` say; what a call costs the program is as before.
    #[must_use]
    pub fn widened_by(self, now: &Self) -> Self {
        let cost = |before: Cost, now: Cost| Cost { probes: before.probes.or(now.probes), ..before };
        let costs = |before: Costs, now: Costs| Costs {
            emulated: cost(before.emulated, now.emulated),
            stepped: cost(before.stepped, now.stepped),
        };
        Self {
            at_instructions: costs(self.at_instructions, now.at_instructions),
            by_return_address: costs(self.by_return_address, now.by_return_address),
        }
    }

    /// Of a function with these probes.
    #[must_use]
    pub const fn of(&self, points: &ProbePoints) -> Cost {
        self.with_ends(points, points.ends)
    }

    /// Of a function with such an entry, if its ends are seen so.
    #[must_use]
    pub const fn with_ends(&self, points: &ProbePoints, ends: Ends) -> Cost {
        match ends {
            Ends::AtInstructions => self.at_instructions.of(points),
            Ends::ByReturnAddress => self.by_return_address.of(points),
            Ends::AtEntry | Ends::AtStarts => {
                let cost = self.at_instructions.of(points);
                Cost { call_ns: cost.entry_ns, ..cost }
            }
            // A probe like the other one: neither is at a `ret`.
            Ends::AtMarks => {
                let cost = self.at_instructions.of(points);
                Cost { call_ns: cost.entry_ns.saturating_mul(2), ..cost }
            }
        }
    }
}

impl Cost {
    /// Of functions that return, and of one that jumps; `hit`: of one probe of any kind.
    fn of(returning: &[&Samples], jumping: &Samples, hit: ProbeTime) -> Self {
        let returned =
            returning.iter().map(|samples| samples.probes()).reduce(CallProbes::or).unwrap_or_default();
        let coldest = |of: fn(&Samples) -> &Times| returning.iter().map(|s| of(s).coldest_median()).max();
        // A jump by register is carried out as a `ret` is.
        let jumped = jumping.probes().or(returned);
        Self {
            call_ns: coldest(|samples| &samples.whole).unwrap_or_default(),
            entry_ns: coldest(|samples| &samples.inside).unwrap_or_default(),
            probes: ProbeCost { returned, jumped, hit },
        }
    }
}

/// Of two probes one.
const fn half(ProbeTime { least_ns, most_ns, rare_ns }: ProbeTime) -> ProbeTime {
    ProbeTime { least_ns: least_ns / 2, most_ns: most_ns / 2, rare_ns: rare_ns / 2 }
}

/// Calls of a batch under each load, fewer than fit between two interruptions.
const BATCH: Shape = [40; Load::KINDS];
/// Batches.  Odd: one of them is the median.
const BATCHES: usize = 3;
/// Between two batches.  Virtual machines have spells of some 100 ms in which a trap takes a fifth longer: a
/// measurement that lies within one would take that for the least.
const BATCH_INTERVAL: Duration = Duration::from_millis(150);
/// What the batches may take: where a machine is overloaded, fewer are taken.
const MEASURED_IN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::own_calls::own_function;
    use super::*;
    use crate::attach::{Which, attach};
    use crate::session::{Room, Session};
    use crate::waker_stack::WakerStack;

    /// Calls that are measured at a time, fewer than fit between two interruptions, and times.
    const ROUND: u32 = 50;
    const ROUNDS: usize = 50;

    /// Of several rounds, which may be interrupted, the fastest.
    fn fastest(function: &Idle) -> Duration {
        let round = || {
            let started = Instant::now();
            (0..ROUND).for_each(|_| function.call());
            started.elapsed()
        };
        (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
    }

    fn per_call_ns(round: Duration) -> u64 {
        u64::try_from(round.as_nanos()).unwrap_or(u64::MAX) / u64::from(ROUND)
    }

    /// What the probes of one kind of program add to a call, in ns: the fastest of many, as an interruption
    /// only adds.
    fn added_ns(session: &Session, program: &str, functions: &[Idle; 2]) -> [u64; 2] {
        let bare = functions.each_ref().map(fastest);
        let of = |which| attach(&session.programs, program, &session.functions, which).unwrap();
        let links = (of(Which::Exits), of(Which::Entries));
        let with = functions.each_ref().map(fastest);
        drop(links);
        [0, 1].map(|function: usize| per_call_ns(with[function].saturating_sub(bare[function])))
    }

    /// Compares our programs with ones that only count, at the same places.  Both are measured in turns, and
    /// the median of the turns' ratios is judged: a busy machine is slower by a half for seconds, then not.
    #[test]
    fn our_programs_add_little_to_bare_probes() {
        const ROUNDS: usize = 15;
        let _alone = ALONE.lock();
        let functions = [idle::PUSH, idle::MOV];
        let probed =
            functions.iter().map(|function| own_function(function, Ends::default()).unwrap()).collect();
        let session = match Session::open(
            probed,
            Room { threads: 64, ring_bytes: 1 << 24 },
            Some(WakerStack::Kernel),
        ) {
            Ok(session) => session,
            Err(error @ (BpfError::NotPermitted(_) | BpfError::NoBtf)) => {
                return println!("skipped: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let rounds: Vec<[[u64; 2]; 2]> = (0..ROUNDS)
            .map(|_| ["on_count", "on_probe"].map(|program| added_ns(&session, program, &functions)))
            .collect();
        for (function, name) in ["push", "mov"].into_iter().enumerate() {
            let mut turns: Vec<[u64; 2]> =
                rounds.iter().map(|round| round.map(|added| added[function])).collect();
            turns.sort_by(|[bare, ours], [other_bare, other_ours]| {
                (ours * other_bare).cmp(&(other_ours * bare))
            });
            let [bare, ours] = turns[ROUNDS / 2];
            println!("{name}: bare probes add {bare} ns to a call, ours {ours} ns");
            assert!(2 * ours <= 3 * bare, "{name}: {ours} ns, and {bare} ns bare");
        }
    }

    /// Nothing of a region is at a `ret`; and period to period, one probe is all.
    #[test]
    fn a_region_costs_what_its_probes_do() {
        let cost = Cost { call_ns: 21_000, entry_ns: 9_000, ..Cost::default() };
        let both = Costs { emulated: cost, stepped: cost };
        let costs = EndCosts { at_instructions: both, by_return_address: both };
        let of = |ends| {
            let points = ProbePoints {
                points: vec![],
                ends,
                callees: vec![],
                jumps_to: vec![],
                first_part_len: 0,
                entry_is_emulated: true,
            };
            costs.of(&points).call_ns
        };
        let kinds = [Ends::AtInstructions, Ends::AtMarks, Ends::AtStarts, Ends::AtEntry];
        assert_eq!(kinds.map(of), [21_000, 18_000, 9_000, 9_000]);
    }

    /// Tests that probe our own functions: one at a time.
    pub(super) static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_a_probe_costs_here() {
        let _alone = ALONE.lock();
        for ends in [Ends::AtInstructions, Ends::ByReturnAddress] {
            match EndCosts::measure(Some(ends)) {
                Ok((costs, removal)) => {
                    removal.wait();
                    let Costs { emulated, stepped } = costs.by_return_address;
                    println!("{ends:?}: push: {emulated:?}, mov: {stepped:?}");
                    for cost in [emulated, stepped] {
                        let CallProbes { inside, whole } = cost.probes.returned;
                        let in_order =
                            |time: ProbeTime| time.least_ns <= time.most_ns && time.most_ns <= time.rare_ns;
                        assert!(in_order(inside) && in_order(whole), "{cost:?}");
                        assert!(inside.least_ns > 0 && inside.least_ns <= whole.least_ns, "{cost:?}");
                        assert!(cost.entry_ns <= cost.call_ns, "{cost:?}");
                    }
                }
                Err(error @ (BpfError::NotPermitted(_) | BpfError::NoBtf)) => println!("skipped: {error}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
