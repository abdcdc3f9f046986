//! Lists of different lengths, one for each row, in one piece of memory.

/// A list for each row, in the order of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByRow<T> {
    entries: Vec<T>,
    /// By row: the end of its entries.
    ends: Vec<usize>,
}

impl<T> Default for ByRow<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), ends: Vec::new() }
    }
}

impl<T: Clone> ByRow<T> {
    /// There is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// That of the row with this index; empty if there is no such row.
    pub(crate) fn of(&self, row: usize) -> &[T] {
        let begin = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(row).copied().unwrap_or(begin);
        self.entries.get(begin..end).unwrap_or_default()
    }

    /// Adds that of the next row.
    pub(crate) fn push(&mut self, list: &[T]) {
        self.entries.extend_from_slice(list);
        self.ends.push(self.entries.len());
    }
}
