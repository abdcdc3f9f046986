//! Answers about code, remembered: each distinct address is asked for once.

use std::hash::BuildHasher;

use model::{Avma, FunctionAt, FunctionId, FunctionKind, SpaceId};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::call_site::{call_before, is_after_call};
use crate::children::{Child, ChildKey};
use crate::place::Place;
use crate::request::Surroundings;

/// Addresses that each of the caches remembers; a full cache is emptied.
const CACHE_MAX: usize = 1 << 20;

/// Addresses that are at hand, a power of two.
const LAST_LEN: usize = 1 << 6;

/// What is known of addresses.  Most questions are about those that were asked about last.
struct Cache<T> {
    known: FxHashMap<(SpaceId, Avma), T>,
    last: [Option<((SpaceId, Avma), T)>; LAST_LEN],
}

impl<T: Copy> Default for Cache<T> {
    fn default() -> Self {
        Self { known: FxHashMap::default(), last: [None; LAST_LEN] }
    }
}

impl<T: Copy> Cache<T> {
    #[inline]
    fn get(&mut self, key: (SpaceId, Avma), ask: impl FnOnce() -> T) -> T {
        let last = FxBuildHasher.hash_one(key.1.0) as usize % LAST_LEN;
        match self.last[last] {
            Some((of, known)) if of == key => known,
            _ => {
                let known = self.remember(key, ask);
                self.last[last] = Some((key, known));
                known
            }
        }
    }

    #[inline(never)]
    fn remember(&mut self, key: (SpaceId, Avma), ask: impl FnOnce() -> T) -> T {
        if self.known.len() >= CACHE_MAX {
            self.known.clear();
        }
        *self.known.entry(key).or_insert_with(ask)
    }
}

/// Functions, places and call sites of the traced processes.
pub(crate) struct CodeMap<'a> {
    around: Surroundings<'a>,
    /// By the function's number.
    kinds: Vec<Option<FunctionKind>>,
    functions: Cache<FunctionAt>,
    places: Cache<Option<Place>>,
    sites: Cache<Option<Avma>>,
    after_calls: Cache<bool>,
    are_landing_pads: Cache<bool>,
    pads_of_calls: Cache<Option<Avma>>,
}

impl<'a> CodeMap<'a> {
    pub(crate) fn new(around: Surroundings<'a>) -> Self {
        Self {
            around,
            kinds: Vec::new(),
            functions: Cache::default(),
            places: Cache::default(),
            sites: Cache::default(),
            after_calls: Cache::default(),
            are_landing_pads: Cache::default(),
            pads_of_calls: Cache::default(),
        }
    }

    pub(crate) fn kind(&self, id: FunctionId) -> FunctionKind {
        self.around.functions.kind(id)
    }

    /// The same, of a function that is entered: asked at every call.
    #[inline(always)]
    pub(crate) fn kind_of_entered(&mut self, id: FunctionId) -> FunctionKind {
        match self.kinds.get(id.0 as usize) {
            Some(Some(kind)) => *kind,
            _ => self.remember_kind(id),
        }
    }

    #[cold]
    fn remember_kind(&mut self, id: FunctionId) -> FunctionKind {
        let (kind, number) = (self.kind(id), id.0 as usize);
        if number >= self.kinds.len() && number < CACHE_MAX {
            self.kinds.resize(number + 1, None);
        }
        if let Some(known) = self.kinds.get_mut(number) {
            *known = Some(kind);
        }
        kind
    }

    /// A call from `from` to a place inside the same function: part of it, neither frame nor child.
    pub(crate) fn is_inner_call(&self, from: FunctionId, to: FunctionId, at_entry: bool) -> bool {
        to == from && !at_entry && self.kind(from) == FunctionKind::Symbol
    }

    /// The functions are parts of different objects.
    pub(crate) fn in_other_object(&self, one: FunctionId, other: FunctionId) -> bool {
        self.around.functions.object(one) != self.around.functions.object(other)
    }

    pub(crate) fn function_at(&mut self, space: SpaceId, ip: Avma) -> FunctionAt {
        let functions = self.around.functions;
        self.functions.get((space, ip), || functions.function_at(space, ip))
    }

    /// `None` for code that belongs to no object.
    pub(crate) fn place(&mut self, space: SpaceId, ip: Option<Avma>) -> Option<Place> {
        let ip = ip?;
        let functions = self.around.functions;
        self.places
            .get((space, ip), || functions.place(space, ip).map(|(object, svma)| Place { object, svma }))
    }

    /// The key of a child of an ended call: the same for one place's sites in several address spaces.
    pub(crate) fn name(&mut self, child: Child) -> ChildKey {
        let site = self.place(child.space, child.site.get());
        ChildKey { kind: child.kind, function: child.function, site }
    }

    /// The call that returns to `ret` and can have entered `entry`.
    pub(crate) fn call_before(&mut self, space: SpaceId, ret: Avma, entry: Option<Avma>) -> Option<Avma> {
        let Surroundings { code, functions, .. } = self.around;
        self.sites.get((space, ret), || {
            let bytes = |len: u64| code.code(space, Avma(ret.0.checked_sub(len)?)).ok();
            let is_stub = |to: Avma| functions.kind(functions.function_at(space, to).id) == FunctionKind::Plt;
            call_before(ret, entry, bytes, is_stub)
        })
    }

    /// A call may return to `ip`.
    pub(crate) fn is_after_call(&mut self, space: SpaceId, ip: Avma) -> bool {
        let code = self.around.code;
        self.after_calls.get((space, ip), || {
            is_after_call(|len: u64| code.code(space, Avma(ip.0.checked_sub(len)?)).ok())
        })
    }

    /// A landing pad begins at `ip`.
    pub(crate) fn is_landing_pad(&mut self, space: SpaceId, ip: Avma) -> bool {
        let functions = self.around.functions;
        self.are_landing_pads.get((space, ip), || functions.is_landing_pad(space, ip))
    }

    /// Where an exception that passes through the call which returns to `ret` goes on.
    pub(crate) fn pad_of_call(&mut self, space: SpaceId, ret: Avma) -> Option<Avma> {
        let functions = self.around.functions;
        self.pads_of_calls.get((space, ret), || functions.pad_of_call(space, ret))
    }

    /// The code at `ip` makes the system call with which handlers of signals return.
    pub(crate) fn is_restorer(&self, space: SpaceId, ip: Avma) -> bool {
        let code = self.around.code.code(space, ip).unwrap_or_default();
        RESTORERS.iter().any(|restorer| code.starts_with(restorer))
    }

    /// The system call in front of `ip` is a restorer's.
    pub(crate) fn is_after_restorer(&self, space: SpaceId, ip: Avma) -> bool {
        RESTORERS.iter().any(|restorer| {
            let start = ip.0.checked_sub(restorer.len() as u64);
            let code = start.and_then(|start| self.around.code.code(space, Avma(start)).ok());
            code.is_some_and(|code| code.starts_with(restorer))
        })
    }
}

/// `mov $__NR_rt_sigreturn, %rax` or `%eax`, `syscall`: what libgcc's unwinder knows it by, too
/// (`x86_64_fallback_frame_state`).
const RESTORERS: [&[u8]; 2] = [b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05", b"\xb8\x0f\0\0\0\x0f\x05"];

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use model::{CodeSource, FunctionLookup, NoCode, Ns, ObjectId, Pid, Svma};

    use super::*;

    /// Counts how often it is asked.
    #[derive(Default)]
    struct Asked {
        code: AtomicU32,
        functions: AtomicU32,
        places: AtomicU32,
    }

    impl CodeSource for Asked {
        fn space(&self, _: Pid, _: Ns) -> SpaceId {
            SpaceId(0)
        }

        fn code(&self, _: SpaceId, _: Avma) -> Result<&[u8], NoCode> {
            self.code.fetch_add(1, Ordering::Relaxed);
            Ok(&[0xe8, 0, 0, 0, 0])
        }
    }

    impl FunctionLookup for Asked {
        fn function_at(&self, _: SpaceId, _: Avma) -> FunctionAt {
            self.functions.fetch_add(1, Ordering::Relaxed);
            FunctionAt::UNKNOWN
        }

        fn place(&self, _: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)> {
            self.places.fetch_add(1, Ordering::Relaxed);
            Some((ObjectId(1), Svma(ip.0)))
        }

        fn kind(&self, _: FunctionId) -> FunctionKind {
            FunctionKind::Symbol
        }

        fn object(&self, _: FunctionId) -> Option<ObjectId> {
            None
        }
    }

    /// Whether an address is after a call was looked up in the code each time.
    #[test]
    fn no_address_is_asked_for_twice() {
        let asked = Asked::default();
        let mut map =
            CodeMap::new(Surroundings { code: &asked, functions: &asked, ..crate::nowhere::surroundings() });
        let mut counts = || {
            let (space, ip) = (SpaceId(3), Avma(0x1005));
            assert!(map.is_after_call(space, ip));
            assert_eq!(map.call_before(space, ip, Some(Avma(0x1005))), Some(Avma(0x1000)));
            assert_eq!(map.function_at(space, ip), FunctionAt::UNKNOWN);
            assert_eq!(map.place(space, Some(ip)), Some(Place { object: ObjectId(1), svma: Svma(0x1005) }));
            [&asked.code, &asked.functions, &asked.places].map(|count| count.load(Ordering::Relaxed))
        };
        let first = counts();
        assert!(first.iter().all(|n| *n > 0), "{first:?}");
        assert_eq!(counts(), first);
    }
}
