//! What a probe costs here: measured on functions of our own that do nothing.
//!
//! It depends on the instruction.  The kernel carries out a `push`, a `nop` or a jump itself; another
//! instruction it has the program carry out, and traps again after it.  A `ret` is always such a one.  And
//! it depends on what ran before: a probe in a loop that does nothing else finds all of the kernel's code in
//! the caches, one in a server does not.  So calls are made under loads of several kinds ([`Load`]), and a
//! cost is a range.

use std::path::PathBuf;
use std::process;
use std::time::{Duration, Instant};

use model::{
    CallProbes, FileOffset, LostCalls, Ns, OffCpuInterval, Pid, ProbeCost, ProbeSink, ProbeTime, ProbedCall,
    ProbedThread, Svma,
};

use crate::attach::{ProbedFunction, ProbedPlace};
use crate::error::BpfError;
use crate::idle::{self, Idle};
use crate::load::Load;
use crate::probe_points::{CodePart, Ends, FunctionCode, ProbePoints};
use crate::removal::Removal;
use crate::session::{Room, Session};
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

    /// Measures them for one kind of ends; the probes that did it are being removed.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub fn measure(ends: Ends) -> Result<(Self, Removal), BpfError> {
        let [push, nop, mov] = [idle::PUSH, idle::NOP, idle::MOV].map(|function| (function, ends));
        match ends {
            Ends::AtInstructions => {
                let jumps = [idle::PUSH_JUMP, idle::MOV_JUMP].map(|function| (function, ends));
                let (samples, removal) = samples([push, nop, mov, jumps[0], jumps[1]])?;
                Ok((Self::at_instructions(&samples), removal))
            }
            Ends::ByReturnAddress => {
                let (samples, removal) = samples([push, nop, mov])?;
                Ok((Self::by_return_address(&samples), removal))
            }
        }
    }

    /// Measures them for both kinds at once, ends at instructions first: to place and to remove probes takes
    /// longer than to measure.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub fn measure_both() -> Result<([Self; 2], Removal), BpfError> {
        let at = |function| (function, Ends::AtInstructions);
        let by = |function| (function, Ends::ByReturnAddress);
        let [push, nop, mov] = [idle::PUSH, idle::NOP, idle::MOV].map(at);
        let [push_jump, mov_jump] = [idle::PUSH_JUMP, idle::MOV_JUMP].map(at);
        let [push_by, nop_by, mov_by] = idle::AGAIN.map(by);
        let ([push, nop, mov, push_jump, mov_jump, of_returns @ ..], removal) =
            samples([push, nop, mov, push_jump, mov_jump, push_by, nop_by, mov_by])?;
        let at_instructions = Self::at_instructions(&[push, nop, mov, push_jump, mov_jump]);
        Ok(([at_instructions, Self::by_return_address(&of_returns)], removal))
    }

    fn at_instructions([push, nop, mov, push_jump, mov_jump]: &[Samples; 5]) -> Self {
        // Two jumps are the cheapest pair of probes, two stepped instructions the dearest.
        let hit = half(push_jump.probes().whole.or(mov.probes().whole));
        let emulated = Cost::of(&[push, nop], push_jump, hit);
        Self { emulated, stepped: Cost::of(&[mov], mov_jump, hit) }
    }

    /// Wherever such a call ends, it is its return that is seen.
    fn by_return_address([push, nop, mov]: &[Samples; 3]) -> Self {
        let whole = push.probes().whole.or(mov.probes().whole);
        let hit = ProbeTime { least_ns: whole.least_ns / 2, ..whole };
        Self { emulated: Cost::of(&[push, nop], push, hit), stepped: Cost::of(&[mov], mov, hit) }
    }
}

impl Cost {
    /// Of functions that return, and of one that jumps; `hit`: of one probe of any kind.
    fn of(returning: &[&Samples], jumping: &Samples, hit: ProbeTime) -> Self {
        let returned =
            returning.iter().map(|samples| samples.probes()).reduce(CallProbes::or).unwrap_or_default();
        let coldest = |of: fn(&Samples) -> &[u64]| returning.iter().map(|s| coldest_median(of(s))).max();
        // A jump by register is carried out as a `ret` is.
        let jumped = jumping.probes().or(returned);
        Self {
            call_ns: coldest(|samples| &samples.whole_ns).unwrap_or_default(),
            entry_ns: coldest(|samples| &samples.inside_ns).unwrap_or_default(),
            probes: ProbeCost { returned, jumped, hit },
        }
    }
}

/// Of two probes one.
const fn half(ProbeTime { least_ns, most_ns, rare_ns }: ProbeTime) -> ProbeTime {
    ProbeTime { least_ns: least_ns / 2, most_ns: most_ns / 2, rare_ns: rare_ns / 2 }
}

/// Calls of a batch, fewer than fit between two interruptions.
const CALLS: usize = 40;
/// Batches of each load.  Odd: one of them is the median.
const BATCHES: usize = 3;

/// What calls of one function took, load by load, batch by batch.
#[derive(Clone, Debug, Default)]
struct Samples {
    /// Of the time on the CPU that the probes saw.
    inside_ns: Vec<u64>,
    /// By our own clock, without what the call takes by itself.
    whole_ns: Vec<u64>,
}

impl Samples {
    fn probes(&self) -> CallProbes {
        CallProbes { inside: range(&self.inside_ns), whole: range(&self.whole_ns) }
    }
}

/// Percentile of a batch above which calls were disturbed by more than cold caches.
const MOST: usize = 75;

/// A value of these that `per_cent` of them do not exceed.
fn percentile(values: &[u64], per_cent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (per_cent * sorted.len()).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

/// Where most of them lie.  A burst of interruptions spoils a batch, so that the median of the batches is
/// taken.
fn range(values: &[u64]) -> ProbeTime {
    let of_load = |load: &[u64]| {
        let batches: Vec<u64> = load.chunks(CALLS).map(|batch| percentile(batch, MOST)).collect();
        percentile(&batches, 50)
    };
    let loads = || values.chunks(BATCHES * CALLS);
    let most_ns = loads().map(of_load).max().unwrap_or_default();
    let rare_ns = loads().map(|load| percentile(load, 99)).max().unwrap_or_default();
    ProbeTime { least_ns: percentile(values, 1), most_ns, rare_ns: rare_ns.max(most_ns) }.widened()
}

fn coldest_median(values: &[u64]) -> u64 {
    values.chunks(BATCHES * CALLS).map(|load| percentile(load, 50)).max().unwrap_or_default()
}

/// Calls each function under each load, with probes.
fn samples<const N: usize>(probed: [(Idle, Ends); N]) -> Result<([Samples; N], Removal), BpfError> {
    let unknown =
        |what: &str| BpfError::Other { doing: "cannot measure what a probe costs", what: what.to_owned() };
    let functions = probed.map(|(function, _)| function);
    let probed: Option<Vec<ProbedFunction>> =
        probed.iter().map(|(function, ends)| own_function(function, *ends)).collect();
    let probed = probed.ok_or_else(|| unknown("own code is not found"))?;
    let bare_ns = functions.each_ref().map(|function| (0..CALLS).map(|_| timed_ns(function)).min());
    let mut session =
        Session::open(probed, Room { threads: 64, ring_bytes: 1 << 20 }, Some(WakerStack::Kernel))?;
    let mut seen = Latencies(vec![Vec::new(); N]);
    let mut clocked_ns = [const { Vec::new() }; N];
    // The calls are made when all probes are there: at the first look whether it is over.
    let mut is_over = || {
        for mut load in Load::each() {
            for _ in 0..BATCHES {
                for (function, clocked_ns) in functions.iter().zip(&mut clocked_ns) {
                    clocked_ns.extend((0..CALLS).map(|_| {
                        load.run();
                        timed_ns(function)
                    }));
                }
            }
        }
        true
    };
    let (_, removal) = session.record(Duration::from_secs(1), &mut is_over, &mut seen)?;
    let mut all = [const { Samples { inside_ns: Vec::new(), whole_ns: Vec::new() } }; N];
    let measured = all.iter_mut().zip(seen.0).zip(clocked_ns.into_iter().zip(bare_ns));
    for ((samples, inside_ns), (clocked_ns, bare_ns)) in measured {
        if inside_ns.len() != clocked_ns.len() {
            return Err(unknown("not every call was seen"));
        }
        let bare_ns = bare_ns.unwrap_or_default();
        let whole_ns = clocked_ns.into_iter().map(|ns| ns.saturating_sub(bare_ns)).collect();
        *samples = Samples { inside_ns, whole_ns };
    }
    Ok((all, removal))
}

fn timed_ns(function: &Idle) -> u64 {
    let started = Instant::now();
    function.call();
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Where the function is in our own file.
fn own_function(function: &Idle, ends: Ends) -> Option<ProbedFunction> {
    let address = function.address();
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let offset = maps.lines().find_map(|line| offset_in_file(line, address))?;
    let part = CodePart { start: Svma(address), file_offset: FileOffset(offset), bytes: function.code() };
    let points = ProbePoints::new(&FunctionCode { entry: Svma(address), parts: vec![part] }, ends).ok()?;
    let place = ProbedPlace { pid: Pid(process::id() as i32), file: PathBuf::from("/proc/self/exe") };
    Some(ProbedFunction { points, is_child: false, places: vec![place] })
}

fn offset_in_file(line: &str, address: u64) -> Option<u64> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let offset = number(words.nth(1)?)?;
    (start..end).contains(&address).then(|| address - start + offset)
}

/// Time on the CPU of calls, by function.
struct Latencies(Vec<Vec<u64>>);

impl ProbeSink for Latencies {
    fn slice_begins(&mut self, _: Ns, _: bool) {}

    fn slice_ends(&mut self, _: Ns) {}

    fn call(&mut self, call: &ProbedCall) {
        if let Some(latencies) = self.0.get_mut(call.function) {
            latencies.push(call.end.since(call.start).saturating_sub(call.off_cpu.total_ns()));
        }
    }

    fn off_cpu(&mut self, _: &OffCpuInterval) {}

    fn lost(&mut self, _: &LostCalls) {}

    fn thread(&mut self, _: &ProbedThread) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::attach::{Which, attach};

    #[test]
    fn the_place_of_an_address_in_its_file() {
        let line = "55d0-55f0 r-xp 00002000 08:01 77 /usr/bin/true";
        assert_eq!(offset_in_file(line, 0x55e1), Some(0x2011));
        assert_eq!(offset_in_file(line, 0x55f0), None);
    }

    #[test]
    fn a_cost_is_a_range_that_a_burst_of_interruptions_does_not_move() {
        let load = |ns: u64| (0..BATCHES * CALLS).map(move |call| ns + call as u64 % 10);
        let mut values: Vec<u64> = load(100).chain(load(150)).collect();
        assert_eq!(range(&values), ProbeTime { least_ns: 100, most_ns: 157, rare_ns: 159 }.widened());
        // One batch of the second load is interrupted throughout.
        values.iter_mut().skip(BATCHES * CALLS).take(CALLS).for_each(|ns| *ns += 10_000);
        assert_eq!(range(&values), ProbeTime { least_ns: 100, most_ns: 157, rare_ns: 10_159 }.widened());
        assert_eq!(coldest_median(&values), 157);
    }

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

    /// The programs beside those that count and do nothing else, at the same places.  Both are measured in
    /// turns, and what is judged is the median of the ratios of two turns: a busy machine is slower by a half
    /// for seconds, then not.
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

    /// Tests that probe our own functions: one at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_a_probe_costs_here() {
        let _alone = ALONE.lock();
        for ends in [Ends::AtInstructions, Ends::ByReturnAddress] {
            match Costs::measure(ends) {
                Ok((Costs { emulated, stepped }, removal)) => {
                    removal.wait();
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
