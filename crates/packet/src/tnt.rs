//! The bits of a TNT packet.

/// Up to 47 branch results, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tnt {
    /// The results from the highest bit on, oldest first, and a stop bit behind the youngest: taking some is a shift.
    results: u64,
}

/// No result, only the stop bit.
const EMPTY: u64 = 1 << 63;

impl Default for Tnt {
    /// No result.
    fn default() -> Self {
        Self { results: EMPTY }
    }
}

impl Tnt {
    /// The most bits of a short packet.
    pub const SHORT_MAX: u8 = 6;
    /// The most bits of a long packet.
    pub const LONG_MAX: u8 = 47;

    /// `len` results, the oldest in the highest bit.  Bits above `len` are ignored.
    #[inline]
    #[must_use]
    pub const fn new(bits: u64, len: u8) -> Self {
        let len = if len > Self::LONG_MAX { Self::LONG_MAX } else { len };
        Self { results: (bits << 1 | 1) << (63 - len) }
    }

    /// The results below a stop bit, which is the highest bit set: how packets store them.
    #[inline]
    #[must_use]
    pub(crate) const fn below_stop_bit(payload: u64) -> Option<Self> {
        if payload <= 1 {
            return None;
        }
        Some(Self { results: (payload << 1 | 1) << payload.leading_zeros() })
    }

    /// How many results.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u8 {
        63 - self.results.trailing_zeros() as u8
    }

    /// No result.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.results == EMPTY
    }

    /// The results, the oldest in bit `len - 1`.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.results >> 1 >> (63 - self.len())
    }

    /// A number that no other results have; below `1 << (n + 1)` for up to `n` of [`Self::oldest`].
    #[inline]
    #[must_use]
    pub const fn number<const N: u8>(self) -> u64 {
        self.results >> (63 - N)
    }

    /// Takes the oldest result.
    #[inline]
    pub fn pop(&mut self) -> Option<bool> {
        let taken = !self.is_empty() && self.results & EMPTY != 0;
        let popped = (!self.is_empty()).then_some(taken);
        self.drop_oldest(1);
        popped
    }

    /// The `N` oldest results, or all if there are not so many; they stay.  `N` is at most [`Self::LONG_MAX`].
    #[inline]
    #[must_use]
    pub const fn oldest<const N: u8>(self) -> Self {
        let stop = EMPTY >> N;
        if self.results & (stop - 1) == 0 {
            self
        } else {
            Self { results: self.results & !(stop - 1) | stop }
        }
    }

    /// Takes the `count` oldest results, or all if there are not so many.
    #[inline]
    pub fn drop_oldest(&mut self, count: u8) {
        let left = self.results.checked_shl(count.into()).unwrap_or(0);
        self.results = if left == 0 { EMPTY } else { left };
    }

    /// Adds a youngest result; false if there is no room for one of `LONG_MAX`.
    #[must_use]
    pub fn push(&mut self, taken: bool) -> bool {
        if self.len() >= Self::LONG_MAX {
            return false;
        }
        *self = Self::new(self.bits() << 1 | u64::from(taken), self.len() + 1);
        true
    }
}

impl std::fmt::Display for Tnt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = *self;
        while let Some(taken) = rest.pop() {
            f.write_str(if taken { "T" } else { "N" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_first() {
        let mut tnt = Tnt::default();
        for taken in [true, false, false] {
            assert!(tnt.push(taken));
        }
        assert_eq!(tnt, Tnt::new(0b100, 3));
        assert_eq!(tnt.to_string(), "TNN");
        assert_eq!(
            (tnt.pop(), tnt.pop(), tnt.pop(), tnt.pop()),
            (Some(true), Some(false), Some(false), None)
        );
    }

    #[test]
    fn the_oldest_come_first() {
        let mut tnt = Tnt::new(0b10_1100, 6);
        assert_eq!(tnt.oldest::<4>(), Tnt::new(0b1011, 4));
        tnt.drop_oldest(4);
        assert_eq!((tnt.oldest::<4>(), tnt.to_string().as_str()), (Tnt::new(0, 2), "NN"));
        tnt.drop_oldest(3);
        assert!(tnt.is_empty());
    }

    #[test]
    fn numbers_differ() {
        let all: Vec<_> =
            (0..=8).flat_map(|len| (0..1_u64 << len).map(move |bits| Tnt::new(bits, len))).collect();
        let mut numbers: Vec<_> = all.iter().map(|tnt| tnt.number::<8>()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), numbers.last()), (all.len(), Some(&511)));
        let long = Tnt::new(0x5555_2aaa_5555, 47);
        assert_eq!(long.oldest::<8>(), Tnt::new(long.bits() >> 39, 8));
    }
}
