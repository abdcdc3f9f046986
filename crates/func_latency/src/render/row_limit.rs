//! How many rows of a table are printed, and the line that says how many were left out.

use std::io::{self, Write};

use super::units::{counted, percent, share};

/// Rows of a table where nothing is said.
pub const DEFAULT_TOP: usize = 20;

/// Which rows of a table are printed. The rows are sorted, the heaviest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowLimit {
    /// The largest number of rows; `None`: all of them.
    pub top: Option<usize>,
    /// The smallest share of the whole, in percent.
    pub min_share_percent: f64,
}

impl Default for RowLimit {
    fn default() -> Self {
        Self { top: Some(DEFAULT_TOP), ..Self::ALL }
    }
}

impl RowLimit {
    /// Every row.
    pub const ALL: Self = Self { top: None, min_share_percent: 0.0 };

    /// The rows that are printed, of `rows` that weigh `weight` and together `whole`, and a summary of the
    /// others.
    pub(super) fn split<'r, R>(
        &self,
        rows: &'r [R],
        weight: impl Fn(&R) -> u64,
        whole: u64,
    ) -> (&'r [R], RowsLeftOut) {
        let is_heavy = |row: &&R| share(weight(row), whole) >= self.min_share_percent;
        let heavy = rows.iter().take_while(is_heavy).count();
        let (printed, rest) = rows.split_at(self.top.map_or(heavy, |top| heavy.min(top)));
        let weight = rest.iter().map(weight).fold(0, u64::saturating_add);
        (printed, RowsLeftOut { rows: rest.len(), percent: share(weight, whole) })
    }

    /// The most of a list's items that are printed in detail: all where all rows are asked for.
    pub(super) fn details(&self, by_default: usize) -> usize {
        if *self == Self::ALL { usize::MAX } else { by_default }
    }
}

/// What a table does not show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowsLeftOut {
    rows: usize,
    percent: f64,
}

impl RowsLeftOut {
    /// Says so below the table, if it does not show everything; `of` is what the rows are a share of.
    pub(super) fn write(&self, out: &mut dyn Write, of: &str) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let rows = counted(self.rows as u64, "more row");
        writeln!(out, "  ... {rows}, {} % of {of}; --all prints them", percent(self.percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(limit: RowLimit) -> (Vec<u64>, String) {
        let (rows, left_out) = limit.split(&[60, 30, 7, 2, 1], |ns| *ns, 100);
        let mut line = Vec::new();
        left_out.write(&mut line, "the time").unwrap();
        (rows.to_vec(), String::from_utf8(line).unwrap())
    }

    #[test]
    fn heaviest_rows_are_printed_and_the_others_counted() {
        assert_eq!(printed(RowLimit::ALL), (vec![60, 30, 7, 2, 1], String::new()));
        assert_eq!(printed(RowLimit::default()), (vec![60, 30, 7, 2, 1], String::new()));
        let four = RowLimit { top: Some(4), ..RowLimit::ALL };
        let line = "  ... 1 more row, 1.0 % of the time; --all prints them\n";
        assert_eq!(printed(four), (vec![60, 30, 7, 2], line.to_owned()));
        let heavy = RowLimit { top: None, min_share_percent: 7.0 };
        let line = "  ... 2 more rows, 3.0 % of the time; --all prints them\n";
        assert_eq!(printed(heavy), (vec![60, 30, 7], line.to_owned()));
        let none = RowLimit { top: Some(4), min_share_percent: 61.0 };
        let line = "  ... 5 more rows, 100.0 % of the time; --all prints them\n";
        assert_eq!(printed(none), (vec![], line.to_owned()));
    }

    /// Rows without any weight: of no time, each is all of it.
    #[test]
    fn rows_without_time_are_printed_unless_a_share_is_asked_for() {
        let (rows, left_out) = RowLimit::default().split(&[0_u64, 0], |ns| *ns, 0);
        assert_eq!((rows, left_out), (&[0, 0][..], RowsLeftOut { rows: 0, percent: 0.0 }));
    }
}
