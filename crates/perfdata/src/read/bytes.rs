//! Little-endian values from a slice; `None` where it ends.

/// What is left of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The bytes up to a NUL, which is taken, too.
    pub(super) fn terminated(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let bytes = self.take(end)?;
        self.take(1)?;
        Some(bytes)
    }

    /// A string of perf's features: length, then that many bytes, padded with NUL.
    pub(super) fn counted_string(&mut self) -> Option<String> {
        let len = usize::try_from(self.u32()?).ok()?;
        Some(text(self.take(len)?))
    }
}

/// The bytes of `bytes` from `offset`, `len` of them, if they are there.
pub(super) fn at(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    bytes.get(start..end)
}

/// The text up to the first NUL (or the end).  Bytes that are no UTF-8 become U+FFFD.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_end_where_the_slice_ends() {
        let mut c = Cursor::new(&[1, 0, 2, 0, 0, 0, 9]);
        assert_eq!((c.u16(), c.u32(), c.u16()), (Some(1), Some(2), None));
        assert_eq!(c.rest(), [9]);
    }

    #[test]
    fn ranges_that_overflow_are_none() {
        assert_eq!(at(&[1, 2, 3], 1, 2), Some(&[2, 3][..]));
        assert_eq!(at(&[1, 2, 3], 2, 2), None);
        assert_eq!(at(&[1, 2, 3], u64::MAX, u64::MAX), None);
    }

    #[test]
    fn text_ends_at_nul() {
        assert_eq!(text(b"ab\0cd"), "ab");
        assert_eq!(text(b"ab"), "ab");
    }
}
