//! Which part of the variance of latencies comes from what.
//!
//! The latency of a call is a sum of items, so that its variance is the sum of their covariances with it: the
//! shares add up to one, and one that runs against the others is negative.

use rustc_hash::FxHashMap;

use super::{Parts, Spent};

/// A part of a call's time: code of a direct callee (the index of its path), its own (0), or not code.
pub(super) type Item = (usize, Spent);

/// Sums over all calls, of numbers below 2^64.
#[derive(Clone, Debug, Default)]
pub(super) struct Variance {
    calls: u64,
    sum: Sum,
    items: FxHashMap<Item, Sum>,
    /// Of the call that is being added.
    call: FxHashMap<Item, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    of_item: u128,
    /// Sum over the calls of the item's time multiplied by the call's.
    with_call: u128,
}

impl Sum {
    fn add(&mut self, item: u64, call: u64) {
        self.of_item = self.of_item.saturating_add(u128::from(item));
        self.with_call = self.with_call.saturating_add(u128::from(item) * u128::from(call));
    }
}

/// The item that time on a path counts to; `child`: the direct callee that it is in.
pub(super) const fn item(child: usize, spent: Spent) -> Item {
    match spent {
        Spent::Running => (child, spent),
        _ => (0, spent),
    }
}

impl Variance {
    /// The call that is being added spent this below `child`.
    pub(super) fn spent(&mut self, child: usize, parts: Parts) {
        for spent in Spent::ALL {
            let ns = parts.get(spent);
            if ns > 0 {
                *self.call.entry(item(child, spent)).or_default() += ns;
            }
        }
    }

    pub(super) fn call_ended(&mut self) {
        let call = self.call.values().copied().fold(0, u64::saturating_add);
        self.calls += 1;
        self.sum.add(call, call);
        for (item, ns) in self.call.drain() {
            self.items.entry(item).or_default().add(ns, call);
        }
    }

    /// The item's share of the variance; `None` if there is no variance.
    pub(super) fn share(&self, item: Item) -> Option<f64> {
        let whole = self.covariance(self.sum);
        let of_item = self.items.get(&item).map_or(0.0, |sum| self.covariance(*sum));
        (whole > 0.0).then(|| of_item / whole)
    }

    /// The item's covariance with the latency, times the square of the number of calls.
    fn covariance(&self, sum: Sum) -> f64 {
        let product = u128::from(self.calls).saturating_mul(sum.with_call);
        let square = sum.of_item.saturating_mul(self.sum.of_item);
        if product >= square { (product - square) as f64 } else { -((square - product) as f64) }
    }
}
