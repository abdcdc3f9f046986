//! Chains of callers, from the caller of a call up, which share what they have in common.
//!
//! ```text
//!   0                 nothing is known
//!   1  parse          caller 0:  called by parse
//!   2  main           caller 1:  ... which main called
//!   3  reload         caller 1:  ... which reload called
//! ```

use std::collections::HashMap;

use model::FunctionId;

/// Chains that are told apart, at most; a call below yet another one is known by the part of it that is
/// there.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chains {
    all: Vec<Chain>,
    numbers: HashMap<Chain, usize>,
    /// The callers of the call before, and their chain: most calls come from where the last one came from.
    last: (Vec<FunctionId>, usize),
}

impl Chains {
    /// Adds the callers of one more call, the nearest first; a caller that called itself counts once. Returns
    /// the number of their chain.
    pub fn add(&mut self, callers: &[FunctionId]) -> usize {
        if self.last.0 != callers {
            self.last = (callers.to_vec(), self.number(callers));
        }
        self.last.1
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_what_they_have_in_common() {
        let mut chains = Chains::default();
        let callers = [&[5, 1][..], &[5, 5, 2], &[], &[5, 1]];
        let numbers =
            callers.map(|callers| chains.add(&callers.iter().copied().map(FunctionId).collect::<Vec<_>>()));
        let links: Vec<(usize, u32)> = chains.all().iter().map(|c| (c.nearer, c.function.0)).collect();
        assert_eq!(links, [(0, 5), (1, 1), (1, 2)]);
        assert_eq!(numbers, [2, 3, 0, 2]);
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut chains = Chains::default();
        let mut add = |caller: usize| chains.add(&[FunctionId(7), FunctionId(caller as u32 + 100)]);
        let last = (0..CHAINS_MAX + 2).map(&mut add).last();
        assert_eq!(last, Some(1), "the part that is there");
        assert_eq!(chains.all().len(), CHAINS_MAX);
    }
}
