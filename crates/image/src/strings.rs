//! An ELF string table.

use std::borrow::Cow;

/// Longer names are cut: no compiler makes them, but a damaged table has no end.
const MAX_NAME_BYTES: usize = 1 << 16;

/// Names that end with a zero byte, by offset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strings<'a> {
    bytes: &'a [u8],
    /// A linker may have appended versions (`memcpy@@GLIBC_2.14`).
    versioned: bool,
}

impl<'a> Strings<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, versioned: true }
    }

    /// Names of no linker: an `@` is part of them (`~load node_modules/@scope/a.js:1`).
    pub(crate) fn of_run_time_code(bytes: &'a [u8]) -> Self {
        Self { bytes, versioned: false }
    }

    /// The name at `offset`, without a version.
    pub(crate) fn get(&self, offset: u32) -> &'a [u8] {
        let tail = self.bytes.get(offset as usize..).unwrap_or_default();
        let tail = tail.get(..MAX_NAME_BYTES).unwrap_or(tail);
        let name = memchr::memchr(0, tail).and_then(|end| tail.get(..end)).unwrap_or(tail);
        match memchr::memchr(b'@', name) {
            Some(at) if at > 0 && self.versioned => name.get(..at).unwrap_or(name),
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
        assert_eq!(Strings::of_run_time_code(b"~a @scope/b.js\0").get(0), b"~a @scope/b.js");
    }
}
