//! Who called, and who called those: chains of callers that share what they have in common.
//!
//! ```text
//!   0                 nothing is known
//!   1  parse          caller 0:  called by parse
//!   2  main           caller 1:  ... which main called
//!   3  reload         caller 1:  ... which reload called
//! ```

use std::collections::HashMap;

use model::FunctionId;

/// So many are told apart; a call below yet another one is known by the part of it that is there.
const CHAINS_MAX: usize = 1 << 12;

/// A function around calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// The chain nearer to the call, by number.
    pub nearer: usize,
    /// The function; `UNKNOWN`: the kernel's part below a signal handler.
    pub function: FunctionId,
}

/// The chains of all calls of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chains {
    all: Vec<Chain>,
    numbers: HashMap<Chain, usize>,
    by_row: Vec<usize>,
    /// The callers of the call before, and their chain: most calls come from where the last one came from.
    last: (Vec<FunctionId>, usize),
}

impl Chains {
    /// Of so many rows, of which nothing is known yet.
    #[must_use]
    pub fn of_rows(rows: usize) -> Self {
        Self { all: Vec::new(), numbers: HashMap::new(), by_row: vec![0; rows], last: (Vec::new(), 0) }
    }

    /// The call of this row was below these functions, the nearest first; one that called itself counts once.
    pub fn add(&mut self, row: usize, callers: &[FunctionId]) {
        if self.last.0 != callers {
            self.last = (callers.to_vec(), self.number(callers));
        }
        if let Some(place) = self.by_row.get_mut(row) {
            *place = self.last.1;
        }
    }

    /// The number of the chain of these callers, which is new or not.
    fn number(&mut self, callers: &[FunctionId]) -> usize {
        let mut nearer = 0;
        let mut last = None;
        for &function in callers {
            if last.replace(function) == Some(function) {
                continue;
            }
            let next = self.all.len() + 1;
            let chain = Chain { nearer, function };
            nearer = match self.numbers.get(&chain) {
                Some(number) => *number,
                None if next > CHAINS_MAX => break,
                None => {
                    self.all.push(chain);
                    self.numbers.insert(chain, next);
                    next
                }
            };
        }
        nearer
    }

    /// All chains; the first has number 1.
    #[must_use]
    pub fn all(&self) -> &[Chain] {
        &self.all
    }

    /// The number of a row's chain; 0: nothing is known.
    #[must_use]
    pub fn of(&self, row: usize) -> usize {
        self.by_row.get(row).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_what_they_have_in_common() {
        let mut chains = Chains::of_rows(4);
        for (row, callers) in [&[5, 1][..], &[5, 5, 2], &[], &[5, 1]].into_iter().enumerate() {
            let callers: Vec<FunctionId> = callers.iter().copied().map(FunctionId).collect();
            chains.add(row, &callers);
        }
        let links: Vec<(usize, u32)> = chains.all().iter().map(|c| (c.nearer, c.function.0)).collect();
        assert_eq!(links, [(0, 5), (1, 1), (1, 2)]);
        assert_eq!([0, 1, 2, 3].map(|row| chains.of(row)), [2, 3, 0, 2]);
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut chains = Chains::of_rows(CHAINS_MAX + 2);
        for row in 0..CHAINS_MAX + 2 {
            chains.add(row, &[FunctionId(7), FunctionId(row as u32 + 100)]);
        }
        assert_eq!(chains.all().len(), CHAINS_MAX);
        assert_eq!(chains.of(CHAINS_MAX + 1), 1, "the part that is there");
    }
}
