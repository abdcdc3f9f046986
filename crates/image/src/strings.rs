//! An ELF string table.

use std::borrow::Cow;

/// Longer names are cut: no compiler makes them, but a damaged table has no end.
const MAX_NAME_BYTES: usize = 1 << 16;

/// Names that end with a zero byte, by offset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strings<'a>(&'a [u8]);

impl<'a> Strings<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The name at `offset`, without the version that some linkers append (`memcpy@@GLIBC_2.14`).
    pub(crate) fn get(&self, offset: u32) -> &'a [u8] {
        let tail = self.0.get(offset as usize..).unwrap_or_default();
        let tail = tail.get(..MAX_NAME_BYTES).unwrap_or(tail);
        let name = memchr::memchr(0, tail).and_then(|end| tail.get(..end)).unwrap_or(tail);
        match memchr::memchr(b'@', name) {
            Some(at) if at > 0 => name.get(..at).unwrap_or(name),
            _ => name,
        }
    }

    /// The name at `offset` as text.
    pub(crate) fn text(&self, offset: u32) -> Cow<'a, str> {
        String::from_utf8_lossy(self.get(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_they_end() {
        let strings = Strings::new(b"\0main\0memcpy@@GLIBC_2.14\0@odd\0cut");
        assert_eq!(strings.get(0), b"");
        assert_eq!(strings.get(1), b"main");
        assert_eq!(strings.get(3), b"in");
        assert_eq!(strings.get(6), b"memcpy");
        assert_eq!(strings.get(25), b"@odd");
        assert_eq!(strings.get(30), b"cut");
        assert_eq!(strings.get(99), b"");
    }
}
