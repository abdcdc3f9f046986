//! What an input consists of: numbers and texts at its begin, and the rest.

/// Takes an input apart; where it ends, everything is 0 or empty.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// At most so many.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Up to 255 bytes, of which the first says how many.
    pub(crate) fn text(&mut self) -> String {
        let len = self.byte();
        String::from_utf8_lossy(self.bytes(len.into())).into_owned()
    }

    /// Up to 65,535 bytes, of which the first two say how many.
    pub(crate) fn block(&mut self) -> &'a [u8] {
        let len = u16::from_le_bytes([self.byte(), self.byte()]);
        self.bytes(len.into())
    }

    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }
}
