//! Durations and how often each was met, in few bytes: sorted, each as its distance from the one before.
//!
//! ```text
//!   1000 ns once, 1004 ns 300 times    (1000, 1) (4, 300)    of each number 7 bits a byte: 5 bytes in all
//! ```

use std::iter;

/// Pairs of a duration in ns and its count, by duration.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    bytes: Box<[u8]>,
    different: usize,
}

impl Packed {
    /// Packs pairs that are sorted by duration, and of which each has another one.
    pub(super) fn of(sorted: impl Iterator<Item = (u64, u64)>) -> Self {
        let (mut bytes, mut different, mut last) = (Vec::new(), 0, 0);
        for (ns, times) in sorted {
            let distance: u64 = ns - last;
            put(distance, &mut bytes);
            put(times, &mut bytes);
            last = ns;
            different += 1;
        }
        Self { bytes: bytes.into(), different }
    }

    /// How many durations there are.
    pub(super) fn different(&self) -> usize {
        self.different
    }

    /// The pairs, by duration.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (mut bytes, mut ns) = (self.bytes.iter(), 0);
        iter::from_fn(move || {
            ns += take(&mut bytes)?;
            Some((ns, take(&mut bytes)?))
        })
    }
}

/// Bits of a number in each of its bytes, the lowest first; the highest bit says that there are more.
const BITS: u32 = 7;
const MORE: u8 = 1 << BITS;

#[inline]
fn put(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= MORE.into() {
        bytes.push(number as u8 | MORE);
        number >>= BITS;
    }
    bytes.push(number as u8);
}

#[inline]
fn take<'b>(bytes: &mut impl Iterator<Item = &'b u8>) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        number |= u64::from(byte & !MORE) << shift;
        if byte & MORE == 0 {
            return Some(number);
        }
        shift += BITS;
    }
}

/// The pairs of two lists, both by duration, as one list: the counts of a duration that both have are added.
pub(super) fn merged(
    one: impl Iterator<Item = (u64, u64)>,
    other: impl Iterator<Item = (u64, u64)>,
) -> impl Iterator<Item = (u64, u64)> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some((left, _)), Some((right, _))) if left == right => {
            let ((ns, times), (_, more)) = (one.next()?, other.next()?);
            Some((ns, times.saturating_add(more)))
        }
        (Some((left, _)), Some((right, _))) if left > right => other.next(),
        (None, _) => other.next(),
        _ => one.next(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    fn pairs() -> impl Strategy<Value = BTreeMap<u64, u64>> {
        let number = || prop_oneof![0..300_u64, any::<u64>(), Just(u64::MAX)];
        proptest::collection::btree_map(number(), number(), 0..30)
    }

    proptest! {
        #[test]
        fn packed_pairs_are_the_pairs(pairs in pairs()) {
            let packed = Packed::of(pairs.clone().into_iter());
            prop_assert_eq!(packed.different(), pairs.len());
            prop_assert_eq!(packed.iter().collect::<BTreeMap<_, _>>(), pairs);
        }

        #[test]
        fn two_lists_become_one(one in pairs(), other in pairs()) {
            let list: Vec<_> = merged(one.clone().into_iter(), other.clone().into_iter()).collect();
            let mut sums = one;
            for (ns, times) in other {
                let sum = sums.entry(ns).or_default();
                *sum = sum.saturating_add(times);
            }
            prop_assert_eq!(list, sums.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn most_durations_take_three_bytes() {
        let packed = Packed::of((0..10_000).map(|n| (1_000_000 + n * 300, 1)));
        assert!(packed.bytes.len() <= 30_004, "{}", packed.bytes.len());
    }
}
