//! The bits of a TNT packet.

/// Up to 47 branch results, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tnt {
    /// As packets store them: below a stop bit, the oldest in the highest place.
    payload: u64,
}

impl Default for Tnt {
    /// No result.
    fn default() -> Self {
        Self { payload: 1 }
    }
}

impl Tnt {
    /// The most bits of a short packet.
    pub const SHORT_MAX: u8 = 6;
    /// The most bits of a long packet.
    pub const LONG_MAX: u8 = 47;

    /// `len` results, the oldest in the highest bit.  Bits above `len` are ignored.
    #[must_use]
    pub const fn new(bits: u64, len: u8) -> Self {
        let len = if len > Self::LONG_MAX { Self::LONG_MAX } else { len };
        Self { payload: bits & ((1 << len) - 1) | 1 << len }
    }

    /// The results below a stop bit, which is the highest bit set: how packets store them.
    #[inline]
    #[must_use]
    pub(crate) const fn below_stop_bit(payload: u64) -> Option<Self> {
        if payload > 1 && payload >> Self::LONG_MAX <= 1 { Some(Self { payload }) } else { None }
    }

    /// The results below a stop bit, which is the highest bit set: a number that no other results have, and not 0.
    #[inline]
    #[must_use]
    pub const fn with_stop_bit(self) -> u64 {
        self.payload
    }

    /// How many results.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u8 {
        63 - self.payload.leading_zeros() as u8
    }

    /// No result.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.payload == 1
    }

    /// The results, the oldest in bit `len - 1`.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.payload & !(1 << self.len())
    }

    /// Takes the oldest result.
    #[inline]
    pub fn pop(&mut self) -> Option<bool> {
        let last = self.len().checked_sub(1)?;
        let taken = self.payload >> last & 1 != 0;
        self.drop_oldest(1);
        Some(taken)
    }

    /// The `count` oldest results, or all if there are not so many; they stay.
    #[inline]
    #[must_use]
    pub const fn oldest(self, count: u8) -> Self {
        Self { payload: self.payload >> self.len().saturating_sub(count) }
    }

    /// Takes the `count` oldest results, or all if there are not so many.
    #[inline]
    pub fn drop_oldest(&mut self, count: u8) {
        let stop = 1 << self.len().saturating_sub(count);
        self.payload = self.payload & (stop - 1) | stop;
    }

    /// Adds a youngest result; false if there is no room for one of `LONG_MAX`.
    #[must_use]
    pub fn push(&mut self, taken: bool) -> bool {
        if self.len() >= Self::LONG_MAX {
            return false;
        }
        self.payload = self.payload << 1 | u64::from(taken);
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
        assert_eq!(tnt.oldest(4), Tnt::new(0b1011, 4));
        tnt.drop_oldest(4);
        assert_eq!((tnt.oldest(4), tnt.to_string().as_str()), (Tnt::new(0, 2), "NN"));
        tnt.drop_oldest(3);
        assert!(tnt.is_empty());
    }
}
