//! Memory that the running calls of all threads share.

use crate::children::ChildPlaces;
use crate::running::Activation;

/// Activations that are kept for reuse, so that a call costs no allocation.
const SPARE_MAX: usize = 256;

/// Where running calls find their children, and activations that have ended, for the next calls.
#[derive(Default)]
pub(crate) struct ActivationPool {
    /// Where children of running calls stand.
    pub(crate) places: ChildPlaces,
    /// Empty ones.
    spare: Vec<Activation>,
}

impl ActivationPool {
    /// An activation of nothing yet.
    pub(crate) fn take(&mut self) -> Activation {
        self.spare.pop().unwrap_or_default()
    }

    /// Empties an activation that has ended, and keeps it for another one.
    pub(crate) fn give_back(&mut self, mut activation: Activation) {
        activation.children.clear();
        activation.code.clear();
        activation.passed.clear();
        activation.waiting.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(activation);
        }
    }
}
