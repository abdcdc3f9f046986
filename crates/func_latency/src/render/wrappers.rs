//! Functions that do nothing but call another one: a list to choose from shows what they lead to.

use std::collections::HashMap;

use analyzer::{ChildKind, FunctionReport};
use model::FunctionId;

/// Of a wrapper's time, its callee has this much, in percent.
const MOST_PERCENT: u128 = 99;

/// Which functions are wrappers, and the functions that they wrap.
pub(super) struct Wrappers {
    /// The wrapper of a function that is called by it alone.
    around: HashMap<FunctionId, FunctionId>,
    wrapped: HashMap<FunctionId, FunctionId>,
}

impl Wrappers {
    /// Finds them among functions with reports; `calls` says how often each was called, whole or not.
    pub(super) fn among(functions: &[FunctionReport], calls: impl Fn(&FunctionReport) -> u64) -> Self {
        let counts: HashMap<FunctionId, u64> = functions.iter().map(|f| (f.id, calls(f))).collect();
        let mut wrappers = Self { around: HashMap::new(), wrapped: HashMap::new() };
        for function in functions {
            let count = calls(function);
            // All calls of the callee are those of the wrapper.
            let callee = callee_of(function, count).filter(|callee| counts.get(callee) == Some(&count));
            if let Some(callee) = callee {
                wrappers.around.insert(callee, function.id);
                wrappers.wrapped.insert(function.id, callee);
            }
        }
        wrappers
    }

    /// It is a wrapper.
    pub(super) fn has(&self, function: FunctionId) -> bool {
        self.wrapped.contains_key(&function)
    }

    /// The wrappers around a function, the outermost first.
    pub(super) fn around(&self, function: FunctionId) -> Vec<FunctionId> {
        let next = |inner: &FunctionId| self.around.get(inner).copied();
        // No more than there are, should they go round.
        let mut around: Vec<FunctionId> =
            std::iter::successors(next(&function), next).take(self.around.len()).collect();
        around.reverse();
        around
    }
}

/// The function that each of the `count` calls calls or jumps to once, and that takes nearly all of the time.
fn callee_of(function: &FunctionReport, count: u64) -> Option<FunctionId> {
    let total_ns = u128::from(function.outermost.total.sum_ns) + u128::from(function.open.observed.sum_ns);
    let rows = || function.figures.children.iter().chain(&function.open.children);
    let heaviest = rows().max_by_key(|row| row.total.sum_ns)?;
    let is_callee = matches!(heaviest.kind, ChildKind::Call | ChildKind::Tail)
        && ![FunctionId::UNKNOWN, function.id].contains(&heaviest.function);
    let of_callee = rows().filter(|row| row.function == heaviest.function && row.kind == heaviest.kind);
    let (calls, sum_ns) = of_callee
        .fold((0, 0), |(calls, ns), row| (calls + row.total.count, ns + u128::from(row.total.sum_ns)));
    (is_callee && count > 0 && calls == count && sum_ns * 100 >= total_ns * MOST_PERCENT && total_ns > 0)
        .then_some(heaviest.function)
}
