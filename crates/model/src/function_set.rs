//! A few functions out of many.

use crate::code::FunctionId;

/// Functions that are asked about: told from all others at every branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSet {
    /// Bit `id % 64` is clear if no function with such an id is one of them: the answer nearly always.
    mask: u64,
    /// In order.
    ids: Vec<FunctionId>,
}

impl FunctionSet {
    /// It is one of them.
    #[inline]
    #[must_use]
    pub fn contains(&self, id: FunctionId) -> bool {
        self.mask >> (id.0 & 63) & 1 != 0 && self.ids.binary_search(&id).is_ok()
    }

    /// In the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = FunctionId> + '_ {
        self.ids.iter().copied()
    }
}

impl FromIterator<FunctionId> for FunctionSet {
    fn from_iter<I: IntoIterator<Item = FunctionId>>(ids: I) -> Self {
        let mut ids: Vec<FunctionId> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self { mask: ids.iter().fold(0, |mask, id| mask | 1 << (id.0 & 63)), ids }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_with_the_same_lowest_bits_is_none_of_them() {
        let set: FunctionSet = [FunctionId(70), FunctionId(3), FunctionId(70)].into_iter().collect();
        let found: Vec<u32> = (0..200).filter(|&id| set.contains(FunctionId(id))).collect();
        assert_eq!(found, [3, 70]);
        assert!(!FunctionSet::default().contains(FunctionId(0)));
    }
}
