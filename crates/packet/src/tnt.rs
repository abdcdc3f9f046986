//! The bits of a TNT packet.

/// Up to 47 branch results, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tnt {
    /// Oldest result in bit `len - 1`, youngest in bit 0.
    bits: u64,
    len: u8,
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
        Self { bits: bits & ((1 << len) - 1), len }
    }

    /// The results below a stop bit, which is the highest bit set: how packets store them.
    #[inline]
    #[must_use]
    pub(crate) const fn below_stop_bit(payload: u64) -> Option<Self> {
        match payload.checked_ilog2() {
            Some(len) if len > 0 => Some(Self::new(payload, len as u8)),
            _ => None,
        }
    }

    /// How many results.
    #[must_use]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// No result.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The results, the oldest in bit `len - 1`.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// Takes the oldest result.
    #[inline]
    pub fn pop(&mut self) -> Option<bool> {
        self.len = self.len.checked_sub(1)?;
        Some(self.bits >> self.len & 1 != 0)
    }

    /// The `count` oldest results, or all if there are not so many; they stay.
    #[inline]
    #[must_use]
    pub const fn oldest(self, count: u8) -> Self {
        let len = if self.len < count { self.len } else { count };
        Self::new(self.bits >> (self.len - len), len)
    }

    /// Takes the `count` oldest results, or all if there are not so many.
    #[inline]
    pub fn drop_oldest(&mut self, count: u8) {
        self.len = self.len.saturating_sub(count);
    }

    /// Adds a youngest result; false if there is no room for one of `LONG_MAX`.
    #[must_use]
    pub fn push(&mut self, taken: bool) -> bool {
        if self.len >= Self::LONG_MAX {
            return false;
        }
        let kept = self.bits & ((1 << self.len) - 1);
        self.bits = kept << 1 | u64::from(taken);
        self.len += 1;
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
