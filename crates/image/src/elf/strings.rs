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
        let version = if self.versioned { b'@' } else { 0 };
        let end = match memchr::memchr2(0, version, tail) {
            Some(0) => memchr::memchr(0, tail), // a name may begin with an @
            end => end,
        };
        end.and_then(|end| tail.get(..end)).unwrap_or(tail)
    }

    /// The name at `offset` as text.
    pub(crate) fn text(&self, offset: u32) -> Cow<'a, str> {
        String::from_utf8_lossy(self.get(offset))
    }
}

/// Which names of a table have a word, found in one pass over the table: names that have not are not looked
/// at.
pub(crate) struct WithWord {
    /// Where the string begins that has it, and where it stands; ascending.
    at: Vec<(usize, usize)>,
}

impl WithWord {
    pub(crate) fn new(strings: Strings<'_>, word: &[u8]) -> Self {
        let table = strings.bytes;
        let finder = memchr::memmem::Finder::new(word);
        let mut at = Vec::new();
        let mut from = 0;
        while let Some(found) = table.get(from..).and_then(|rest| finder.find(rest)) {
            let place = from + found;
            let before = table.get(..place).unwrap_or_default();
            at.push((memchr::memrchr(0, before).map_or(0, |end| end + 1), place));
            from = place + 1;
        }
        Self { at }
    }

    /// The name at `offset`, or the version after it, has the word.  A name may be the end of a longer one.
    pub(crate) fn has(&self, offset: u32) -> bool {
        let offset = offset as usize;
        let (Some((first, _)), Some((_, last))) = (self.at.first(), self.at.last()) else { return false };
        if offset < *first || *last < offset {
            return false; // most names: words stand together where they stand
        }
        let next = self.at.partition_point(|(_, place)| *place < offset);
        self.at.get(next).is_some_and(|(start, _)| *start <= offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_word() {
        let table = b"\0main\0cococo\0f.cold\0g";
        let with = |word: &str| {
            let names = WithWord::new(Strings::new(table), word.as_bytes());
            (0..table.len() as u32).filter(|offset| names.has(*offset)).collect::<Vec<_>>()
        };
        assert_eq!(with(".cold"), [13, 14]);
        assert_eq!(with("coco"), [6, 7, 8]);
        assert_eq!(with("in"), [1, 2, 3]);
        assert_eq!(with("x"), []);
        assert_eq!(with("g"), [20]);
    }

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
