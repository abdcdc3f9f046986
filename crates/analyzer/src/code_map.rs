//! Answers about code, remembered: each distinct address is asked for once.

use model::{Avma, FunctionAt, FunctionId, FunctionKind, SpaceId};
use rustc_hash::FxHashMap;

use crate::call_site::call_before;
use crate::report::Place;
use crate::request::Surroundings;

/// Addresses that each of the caches remembers; a full cache is emptied.
const CACHE_MAX: usize = 1 << 20;

type Cache<T> = FxHashMap<(SpaceId, Avma), T>;

/// Functions, places and call sites of the traced processes.
pub(crate) struct CodeMap<'a> {
    around: Surroundings<'a>,
    functions: Cache<FunctionAt>,
    places: Cache<Option<Place>>,
    sites: Cache<Option<Avma>>,
}

impl<'a> CodeMap<'a> {
    pub(crate) fn new(around: Surroundings<'a>) -> Self {
        Self { around, functions: Cache::default(), places: Cache::default(), sites: Cache::default() }
    }

    pub(crate) fn kind(&self, id: FunctionId) -> FunctionKind {
        self.around.functions.kind(id)
    }

    /// The functions are parts of different objects.
    pub(crate) fn in_other_object(&self, one: FunctionId, other: FunctionId) -> bool {
        self.around.functions.object(one) != self.around.functions.object(other)
    }

    pub(crate) fn function_at(&mut self, space: SpaceId, ip: Avma) -> FunctionAt {
        let functions = self.around.functions;
        remember(&mut self.functions, (space, ip), || functions.function_at(space, ip))
    }

    /// `None` for address 0, which stands for "no site", and for code that belongs to no object.
    pub(crate) fn place(&mut self, space: SpaceId, ip: Avma) -> Option<Place> {
        if ip == Avma(0) {
            return None;
        }
        let functions = self.around.functions;
        remember(&mut self.places, (space, ip), || {
            functions.place(space, ip).map(|(object, svma)| Place { object, svma })
        })
    }

    /// The call that returns to `ret` and can have entered `entry`.
    pub(crate) fn call_before(&mut self, space: SpaceId, ret: Avma, entry: Avma) -> Option<Avma> {
        let Surroundings { code, functions, .. } = self.around;
        remember(&mut self.sites, (space, ret), || {
            let bytes = |len: u64| code.code(space, Avma(ret.0.checked_sub(len)?)).ok();
            let is_stub = |to: Avma| functions.kind(functions.function_at(space, to).id) == FunctionKind::Plt;
            call_before(ret, entry, bytes, is_stub)
        })
    }
}

fn remember<T: Copy>(cache: &mut Cache<T>, key: (SpaceId, Avma), ask: impl FnOnce() -> T) -> T {
    if let Some(&known) = cache.get(&key) {
        return known;
    }
    if cache.len() >= CACHE_MAX {
        cache.clear();
    }
    let answer = ask();
    cache.insert(key, answer);
    answer
}
