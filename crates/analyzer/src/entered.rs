//! What one thread has entered of the functions that the request is about.

use serde::{Deserialize, Serialize};

use crate::ghosts::Ghosts;
use crate::passed::OuterSites;
use crate::sparse::Sparse;

#[derive(Default)]
pub(crate) struct Entered {
    /// By wanted function.
    pub(crate) open: Sparse<Open>,
    /// Indices of the ancestor's activations in those of the stack.
    pub(crate) ancestors: Vec<usize>,
    /// Calls that were cut and may still be running.
    pub(crate) ghosts: Ghosts,
    pub(crate) outer_sites: OuterSites,
}

impl Entered {
    /// Of a thread that has entered nothing yet. Other threads had its number before: by wanted function, its
    /// next call has this number.
    pub(crate) fn after(numbers: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut entered = Self::default();
        for (wanted, number) in numbers {
            entered.open.meet(wanted).into_iter().for_each(|open| open.entered = number);
        }
        entered
    }

    /// By wanted function, the number of the next call.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, u64)> {
        self.open.iter().map(|(wanted, open)| (wanted, open.entered))
    }
}

/// What of a wanted function has been entered.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Open {
    /// Open activations.
    pub(crate) depth: u32,
    /// Number of entries so far.
    pub(crate) entered: u64,
    /// It was open more than once.
    pub(crate) is_recursive: bool,
}
