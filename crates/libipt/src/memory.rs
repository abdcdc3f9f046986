//! The traced program's code, as libipt reads it: some bytes at an address of the address space that is set.

use std::cell::Cell;

use model::{Avma, CodeSource, NoCode, SpaceId};

/// Code of one address space at a time.
pub(crate) struct Memory<'a> {
    code: &'a dyn CodeSource,
    space: Cell<SpaceId>,
    /// The last answer: instructions follow one another.
    last: Cell<(Avma, &'a [u8])>,
    /// Why the last read failed.
    missing: Cell<Option<NoCode>>,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(code: &'a dyn CodeSource, space: SpaceId) -> Self {
        Self { code, space: Cell::new(space), last: Cell::new((Avma(0), &[])), missing: Cell::new(None) }
    }

    /// Reads from this address space from now on.
    pub(crate) fn set_space(&self, space: SpaceId) {
        if self.space.replace(space) != space {
            self.last.set((Avma(0), &[]));
        }
    }

    /// The bytes from `ip` on; `None` if there are none.
    pub(crate) fn read(&self, ip: Avma) -> Option<&'a [u8]> {
        let (start, bytes) = self.last.get();
        let known = usize::try_from(ip.minus(start)).ok().and_then(|skip| bytes.get(skip..));
        if let Some(bytes) = known.filter(|bytes| !bytes.is_empty()) {
            return Some(bytes);
        }
        match self.code.code(self.space.get(), ip) {
            Ok(bytes) => {
                self.last.set((ip, bytes));
                Some(bytes)
            }
            Err(why) => {
                self.missing.set(Some(why));
                None
            }
        }
    }

    /// Why the last read failed.
    pub(crate) fn missing(&self) -> Option<NoCode> {
        self.missing.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Ns, ObjectId, Pid};

    struct Bytes;

    impl CodeSource for Bytes {
        fn space(&self, _: Pid, _: Ns) -> SpaceId {
            SpaceId(0)
        }

        fn code(&self, space: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
            let bytes: &[u8] = if space == SpaceId(0) { &[1, 2, 3] } else { &[4, 5, 6] };
            let at = usize::try_from(ip.minus(Avma(0x1000))).unwrap_or(usize::MAX);
            bytes.get(at..).filter(|b| !b.is_empty()).ok_or(NoCode::MissingObject(ObjectId(7)))
        }
    }

    #[test]
    fn reads_on_in_what_it_has_but_not_in_another_space() {
        let memory = Memory::new(&Bytes, SpaceId(0));
        assert_eq!(memory.read(Avma(0x1000)), Some(&[1, 2, 3][..]));
        assert_eq!(memory.read(Avma(0x1002)), Some(&[3][..]));
        assert_eq!(memory.read(Avma(0x0fff)), None);
        memory.set_space(SpaceId(1));
        assert_eq!(memory.read(Avma(0x1001)), Some(&[5, 6][..]));
        assert_eq!(memory.read(Avma(0x1003)), None);
        assert_eq!(memory.missing(), Some(NoCode::MissingObject(ObjectId(7))));
    }
}
