//! The bits of a TNT packet.

/// Up to 47 branch results, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tnt {
    /// The results, the youngest in the lowest bit, below a stop bit: as packets store them.
    results: u64,
}

/// No result, only the stop bit.
const EMPTY: u64 = 1;

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
        let stop = 1 << if len > Self::LONG_MAX { Self::LONG_MAX } else { len };
        Self { results: bits & (stop - 1) | stop }
    }

    /// The results below a stop bit, which is the highest bit set; there is one result at least.
    #[inline]
    #[must_use]
    pub(crate) const fn below_stop_bit(payload: u64) -> Option<Self> {
        if payload > EMPTY { Some(Self { results: payload }) } else { None }
    }

    /// The results that have this [`Self::number`]; for 0, which is the number of none, an empty `Tnt`.
    #[inline]
    #[must_use]
    pub const fn of_number(number: u64) -> Self {
        Self { results: if number == 0 { EMPTY } else { number } }
    }

    /// A number that no other results have; below `1 << (n + 1)` for up to `n` of them.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.results
    }

    /// How many results.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u8 {
        self.results.ilog2() as u8
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
        self.results ^ 1 << self.len()
    }

    /// Takes the oldest result.
    #[inline]
    pub fn pop(&mut self) -> Option<bool> {
        let left = self.len().checked_sub(1)?;
        let taken = self.results >> left & 1 != 0;
        *self = Self::new(self.results, left);
        Some(taken)
    }

    /// The `N` oldest results, or all if there are fewer; they stay.
    #[inline]
    #[must_use]
    pub const fn oldest<const N: u8>(self) -> Self {
        Self { results: self.results >> self.len().saturating_sub(N) }
    }

    /// Takes the `count` oldest results, or all if there are fewer.
    #[inline]
    pub fn drop_oldest(&mut self, count: u8) {
        *self = Self::new(self.results, self.len().saturating_sub(count));
    }

    /// Adds a youngest result; false if there is no room for one of `LONG_MAX`.
    #[must_use]
    pub fn push(&mut self, taken: bool) -> bool {
        if self.len() >= Self::LONG_MAX {
            return false;
        }
        self.results = self.results << 1 | u64::from(taken);
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
        let mut numbers: Vec<_> = all.iter().map(|tnt| tnt.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), numbers.last()), (all.len(), Some(&511)));
        let long = Tnt::new(0x5555_2aaa_5555, 47);
        assert_eq!(long.oldest::<8>(), Tnt::new(long.bits() >> 39, 8));
    }
}
