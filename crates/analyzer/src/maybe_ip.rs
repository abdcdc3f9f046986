//! An instruction's address that may not be known, as large as one: each frame has several.

use model::Avma;
use serde::{Deserialize, Serialize};

/// An instruction's address, if it is known. No instruction has address 0, which is kept for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct MaybeIp(Avma);

impl MaybeIp {
    pub(crate) const UNKNOWN: Self = Self(Avma(0));

    #[inline(always)]
    pub(crate) fn is(self, ip: Avma) -> bool {
        self.0 == ip
    }

    #[inline(always)]
    pub(crate) fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }

    pub(crate) fn get(self) -> Option<Avma> {
        self.is_known().then_some(self.0)
    }
}

impl From<Avma> for MaybeIp {
    #[inline(always)]
    fn from(ip: Avma) -> Self {
        Self(ip)
    }
}
