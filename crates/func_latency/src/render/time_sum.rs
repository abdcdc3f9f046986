//! A sum of times with its error.

use serde::Serialize;

use super::units::{duration_within, percent_within, share};

/// A sum of times, and the most by which it may differ from the true one.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct TimeSum {
    pub(crate) ns: u64,
    pub(crate) error_ns: u64,
}

impl TimeSum {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { ns: self.ns.saturating_add(other.ns), error_ns: self.error_ns.saturating_add(other.error_ns) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        *self = self.plus(other);
    }

    pub(crate) fn text(self) -> String {
        duration_within(self.ns, self.error_ns)
    }

    /// In percent of a whole.
    pub(crate) fn percent(self, whole_ns: u64) -> String {
        percent_within(share(self.ns, whole_ns), share(self.error_ns, whole_ns))
    }
}
