//! What a probe costs here: measured on two functions of our own that do nothing.
//!
//! It depends on the first instruction.  The kernel carries out a `push` or a `nop` itself; another instruction it has the
//! program carry out, and traps again behind it.  A return is always such a one.

use std::path::PathBuf;
use std::process;
use std::time::{Duration, Instant};

use model::{FileOffset, LostCalls, OffCpuInterval, Pid, ProbeSink, ProbedCall, ProbedThread, Svma};

use crate::attach::{ProbedFunction, ProbedPlace};
use crate::error::BpfError;
use crate::idle::{self, Idle};
use crate::probe_points::{CodePart, Ends, FunctionCode, ProbePoints};
use crate::removal::Removal;
use crate::session::{Room, Session};
use crate::waker_stack::WakerStack;

/// What the probes of a function cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// To the program, for one call: a probe at the entry and one at the return.
    pub call_ns: u64,
    /// Of that, what a call's own latency has in it.
    pub inside_ns: u64,
    /// Of that, the probe at the entry: what counting alone costs.
    pub entry_ns: u64,
}

/// Costs by the kind of the first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// Measures them; the probes that did it are being removed behind it.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub fn measure(ends: Ends) -> Result<(Self, Removal), BpfError> {
        let unknown = |what: &str| BpfError::Other {
            doing: "cannot measure what a probe costs",
            what: what.to_owned(),
        };
        let functions = [idle::PUSH, idle::MOV];
        let probed: Option<Vec<ProbedFunction>> =
            functions.iter().map(|function| own_function(function, ends)).collect();
        let probed = probed.ok_or_else(|| unknown("own code is not found"))?;
        let bare = functions.each_ref().map(fastest);
        let mut session =
            Session::open(probed, Room { threads: 64, ring_bytes: 1 << 20 }, WakerStack::Kernel)?;
        let mut latencies = Latencies::default();
        let mut with_probes = [Duration::ZERO; 2];
        // The calls are made when all probes are there: at the first look whether it is over.
        let mut is_over = || {
            with_probes = functions.each_ref().map(fastest);
            true
        };
        let (_, removal) = session.record(Duration::from_secs(1), &mut is_over, &mut latencies)?;
        let [push, mov] = with_probes;
        let [bare_push, bare_mov] = bare;
        let [inside_push, inside_mov] = latencies.fastest();
        let cost = |with: Duration, bare, inside_ns: Option<u64>| {
            let inside_ns = inside_ns.ok_or_else(|| unknown("no call was seen"))?;
            let call_ns = per_call_ns(with.saturating_sub(bare));
            // Inside is what comes behind the entry's time stamp and before the return's: about as much as one probe.
            Ok(Cost { call_ns, inside_ns, entry_ns: inside_ns.min(call_ns) })
        };
        let costs =
            Self { emulated: cost(push, bare_push, inside_push)?, stepped: cost(mov, bare_mov, inside_mov)? };
        Ok((costs, removal))
    }
}

/// Calls that are measured at a time, fewer than fit between two interruptions, and times.
const CALLS: u32 = 50;
const ROUNDS: usize = 50;

/// Of several rounds, which may be interrupted, the fastest.
fn fastest(function: &Idle) -> Duration {
    let round = || {
        let started = Instant::now();
        (0..CALLS).for_each(|_| function.call());
        started.elapsed()
    };
    (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
}

fn per_call_ns(round: Duration) -> u64 {
    u64::try_from(round.as_nanos()).unwrap_or(u64::MAX) / u64::from(CALLS)
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

/// Latencies by function.
#[derive(Default)]
struct Latencies([Vec<u64>; 2]);

impl Latencies {
    /// Means of the fastest rounds, as the calls themselves are measured: a busy machine cannot make the part more than the whole.
    fn fastest(&self) -> [Option<u64>; 2] {
        self.0.each_ref().map(|latencies| {
            let rounds = latencies.chunks_exact(CALLS as usize);
            rounds.map(|round| round.iter().sum::<u64>() / u64::from(CALLS)).min()
        })
    }
}

impl ProbeSink for Latencies {
    fn call(&mut self, call: &ProbedCall) {
        if let Some(latencies) = self.0.get_mut(call.function) {
            latencies.push(call.end.since(call.start));
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

    /// What the probes of one kind of program add to a call, in ns: the fastest of many, as an interruption only adds.
    fn added_ns(session: &Session, program: &str, functions: &[Idle; 2]) -> [u64; 2] {
        let bare = functions.each_ref().map(fastest);
        let of = |which| attach(&session.programs, program, &session.functions, which).unwrap();
        let links = (of(Which::Exits), of(Which::Entries));
        let with = functions.each_ref().map(fastest);
        drop(links);
        [0, 1].map(|function: usize| per_call_ns(with[function].saturating_sub(bare[function])))
    }

    /// The programs beside those that count and do nothing else, at the same places.  Both are measured in turns, and what is
    /// judged is the median of the ratios of two turns: a busy machine is slower by a half for seconds, then not.
    #[test]
    fn our_programs_add_little_to_bare_probes() {
        const ROUNDS: usize = 15;
        let _alone = ALONE.lock();
        let functions = [idle::PUSH, idle::MOV];
        let probed =
            functions.iter().map(|function| own_function(function, Ends::default()).unwrap()).collect();
        let session =
            match Session::open(probed, Room { threads: 64, ring_bytes: 1 << 24 }, WakerStack::Kernel) {
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
                Ok((Costs { emulated, stepped }, _)) => {
                    println!("{ends:?}: push: {emulated:?}, mov: {stepped:?}");
                    for cost in [emulated, stepped] {
                        assert!(cost.inside_ns > 0 && cost.inside_ns <= cost.call_ns, "{cost:?}");
                    }
                }
                Err(error @ (BpfError::NotPermitted(_) | BpfError::NoBtf)) => println!("skipped: {error}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
