//! Which calls are the slow ones, which ones they are compared with, and whether they are slow at all.
//!
//! A slow call is compared with typical calls of the same caller (the same call site): the half of them
//! that is nearest to their median. The ratio of typical calls to slow ones is the same for each caller, so
//! that callers make no difference. Only calls that were seen from entry to end are compared.

use std::collections::BTreeMap;

use super::outlying::CallerSpread;
use super::{LeftOut, Outlying, Typical};
use crate::call_row::{CallId, CallRow};
use crate::place::CalledFrom;
use crate::request::LatencyRange;
use crate::stats::{mean, nearest_rank};
use crate::status::Status;
use crate::tree::NESTED_MAX;

/// Which calls are the slow ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Those that take no less than this percentile (nearest rank), in thousandths: 990 is p99.
    Percentile(u16),
    /// Those of such a latency.
    Latency(LatencyRange),
    /// This one.
    Call(CallId),
}

/// Slow calls, and what they are compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    /// The slow calls, the slowest first.
    pub slow: Vec<CallRow>,
    /// The typical ones, the nearest to the median of their caller first.
    pub typical: Vec<CallRow>,
    /// Which callers the typical calls are of.
    pub whose: Typical,
    /// Calls that are in neither group, because they cannot be compared.
    pub left_out: LeftOut,
    /// Whether the slow calls are slow.
    pub outlying: Outlying,
    pub(super) spread: CallerSpread,
}

/// Why calls cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No call of the function was seen from entry to end.
    #[error("no call was seen from entry to end")]
    NoCalls,
    /// No such call.
    #[error("there is no call {0}; `report --rows` lists them")]
    NoSuchCall(CallId),
    /// That call was not seen from entry to end.
    #[error("call {0} was not seen from entry to end ({status}): its time cannot be compared", status = .1.name())]
    NotWhole(CallId, Status),
    /// That call is inside of too many others.
    #[error("call {0} is inside of {NESTED_MAX} calls of the same function, or more: it is not compared")]
    TooDeep(CallId),
    /// No call is slow.
    #[error("no call that was seen from entry to end has such a latency")]
    NoSlowCalls,
    /// All calls are.
    #[error("all calls are among the slow ones: there is nothing to compare them with")]
    NoOthers,
}

impl Groups {
    /// Divides the calls of a function.
    ///
    /// # Errors
    /// There is nothing to compare.
    pub fn choose(rows: &[CallRow], slow: Slow) -> Result<Self, ChoiceError> {
        let mut left_out = LeftOut::default();
        let counted: Vec<CallRow> = rows.iter().filter(|row| left_out.compares(row)).copied().collect();
        let range = match slow {
            Slow::Percentile(thousandths) => {
                LatencyRange { min_ns: percentile(&counted, thousandths)?, max_ns: u64::MAX }
            }
            Slow::Latency(range) => range,
            Slow::Call(id) => {
                let row = rows.iter().find(|row| row.id == id).ok_or(ChoiceError::NoSuchCall(id))?;
                if !row.end.status.counted() {
                    return Err(ChoiceError::NotWhole(id, row.end.status));
                }
                if row.depth >= NESTED_MAX {
                    return Err(ChoiceError::TooDeep(id));
                }
                LatencyRange::ALL
            }
        };
        let is_slow = |row: &CallRow| match slow {
            Slow::Call(id) => row.id == id,
            _ => range.contains(row.latency_ns),
        };
        let (mut slow, others): (Vec<CallRow>, Vec<CallRow>) = counted.into_iter().partition(is_slow);
        slow.sort_by_key(|row| (std::cmp::Reverse(row.latency_ns), row.id));
        if slow.is_empty() {
            return Err(ChoiceError::NoSlowCalls);
        }
        if others.is_empty() {
            return Err(ChoiceError::NoOthers);
        }
        let (typical, spread) = typical(&slow, &others);
        let outlying = Outlying::of(&spread, &slow.iter().collect::<Vec<_>>());
        Ok(Self { slow, typical, whose: spread.whose, left_out, outlying, spread })
    }
}

fn percentile(rows: &[CallRow], thousandths: u16) -> Result<u64, ChoiceError> {
    let mut latencies: Vec<u64> = rows.iter().map(|row| row.latency_ns).collect();
    latencies.sort_unstable();
    let rank = nearest_rank(thousandths.into(), latencies.len() as u64);
    latencies.get(rank as usize).copied().ok_or(ChoiceError::NoCalls)
}

/// A caller's calls: the slow ones, and the others, the nearest to their median first.
#[derive(Default)]
struct OfCaller<'r> {
    slow: Vec<&'r CallRow>,
    others: Vec<&'r CallRow>,
    median_ns: u64,
}

fn typical(slow: &[CallRow], others: &[CallRow]) -> (Vec<CallRow>, CallerSpread) {
    let by_caller = |row: &CallRow| Some(row.from);
    let mut callers = divide(slow, others, by_caller);
    callers.retain(|_, calls| !calls.slow.is_empty());
    let mut whose = Typical::SameCallers;
    if callers.values().any(|calls| calls.others.is_empty()) {
        callers = divide(slow, others, |_| None);
        whose = Typical::AllCallers;
    }
    for calls in callers.values_mut() {
        calls.others.sort_by_key(|row| (row.latency_ns, row.id));
        let middle = calls.others.get(calls.others.len().saturating_sub(1) / 2);
        calls.median_ns = middle.map_or(0, |row| row.latency_ns);
        calls.others.sort_by_key(|row| (row.latency_ns.abs_diff(calls.median_ns), row.latency_ns, row.id));
    }
    let near = |calls: &OfCaller<'_>| calls.others.len().div_ceil(2);
    let times = callers.values().map(|calls| near(calls) / calls.slow.len()).min().unwrap_or(1).max(1);
    let mut typical: Vec<(u64, CallRow)> = Vec::new();
    for calls in callers.values() {
        let chosen = calls.others.iter().take(near(calls).min(times.saturating_mul(calls.slow.len())));
        typical.extend(chosen.map(|row| (row.latency_ns.abs_diff(calls.median_ns), **row)));
    }
    typical.sort_by_key(|(far_ns, row)| (*far_ns, row.id));
    let typical: Vec<CallRow> = typical.into_iter().map(|(_, row)| row).collect();
    let errors: Vec<f64> = typical.iter().map(|row| row.error_ns as f64).collect();
    let mut spread = CallerSpread {
        medians_ns: callers.iter().map(|(from, calls)| (*from, calls.median_ns)).collect(),
        whose,
        slow: slow.len(),
        others_ns: Vec::new(),
        typical_error_ns: mean(&errors),
    };
    let compared = callers.values().flat_map(|calls| &calls.others);
    spread.others_ns = compared.map(|row| spread.excess_ns(row)).collect();
    spread.others_ns.sort_by(f64::total_cmp);
    (typical, spread)
}

fn divide<'r>(
    slow: &'r [CallRow],
    others: &'r [CallRow],
    from: impl Fn(&CallRow) -> Option<CalledFrom>,
) -> BTreeMap<Option<CalledFrom>, OfCaller<'r>> {
    let mut callers: BTreeMap<Option<CalledFrom>, OfCaller<'r>> = BTreeMap::new();
    slow.iter().for_each(|row| callers.entry(from(row)).or_default().slow.push(row));
    others.iter().for_each(|row| callers.entry(from(row)).or_default().others.push(row));
    callers
}
