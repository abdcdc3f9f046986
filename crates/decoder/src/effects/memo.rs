//! Finds effects by what they are of.
//!
//! A busy program has tens of thousands of effects, and each packet asks for another one: looking at memory that no cache
//! has is most of what a packet costs.  So an effect fills one cache line, its key with it, and the memo is no larger than
//! the effects that were met need, which also spares the processor's table of pages.  An effect stands at the place
//! that its key says, or else beside that, in the line that processors fetch along with it.

use model::Avma;
use packet::Tnt;

use super::{BITS, Calls, Effect, End};
use crate::block::BlockId;

/// What an effect is of: a block, and what a packet says there or what is returned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    detail: u64,
    /// The block's number, and what `detail` is.
    block: u32,
}

impl Key {
    const NONE: Self = Self { detail: 0, block: u32::MAX };

    #[inline]
    pub(super) fn bits(block: BlockId, bits: Tnt) -> Self {
        Self { detail: bits.number::<BITS>(), block: block.0 }
    }

    #[inline]
    pub(super) fn address(block: BlockId, ip: Avma) -> Self {
        Self { detail: ip.0, block: block.0 | 1 << 30 }
    }

    #[inline]
    pub(super) fn returns(block: BlockId, call: BlockId, bits: Tnt) -> Self {
        Self { detail: u64::from(call.0) << (BITS + 1) | bits.number::<BITS>(), block: block.0 | 1 << 31 }
    }

    /// Fibonacci hashing, to one of so many places.
    #[inline]
    fn place(self, places: usize) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.detail.rotate_left(32) ^ u64::from(self.block)).wrapping_mul(GOLDEN);
        (((mixed >> 32) * places as u64) >> 32) as usize
    }
}

/// A place of the memo: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry {
    key: Key,
    effect: Effect,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    const EMPTY: Self = Self {
        key: Key::NONE,
        effect: Effect {
            next: BlockId::NONE,
            end: End::Lost,
            bits: 0,
            returns: false,
            is_at_return: false,
            work: 0,
            first_work: 0,
            edges: None,
            calls: Calls::None,
            failure: 0,
        },
    };
}

/// Where an effect is in the memo, until the next one is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(usize);

/// A memo begins with so many places: 256 KB.
const FIRST_PLACES: usize = 1 << 12;

pub(super) struct Memo {
    entries: Box<[Entry]>,
    used: usize,
    /// It grows to so many places; then what is new takes the place of something else.
    most: usize,
}

impl Memo {
    /// A memo of at most so many places, and at least one.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { entries: empty(most.min(FIRST_PLACES)), used: 0, most }
    }

    #[inline]
    pub(super) fn get(&self, Place(place): Place) -> &Effect {
        &self.entries[place].effect
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<Place> {
        let place = key.place(self.entries.len());
        if self.entries[place].key == key {
            return Some(Place(place));
        }
        let beside = place ^ 1;
        let is_beside = self.entries.get(beside).is_some_and(|entry| entry.key == key);
        is_beside.then_some(Place(beside))
    }

    /// Remembers the effect of a key that was not found.
    pub(super) fn add(&mut self, key: Key, effect: Effect) -> Place {
        if self.used * 2 >= self.entries.len() && self.entries.len() < self.most {
            let larger = empty((self.entries.len() * 2).min(self.most));
            self.used = 0;
            for entry in std::mem::replace(&mut self.entries, larger) {
                if entry.key != Key::NONE {
                    self.put(entry);
                }
            }
        }
        self.put(Entry { key, effect })
    }

    /// At its place if that is free; else beside it if that is; else it takes its place.
    fn put(&mut self, entry: Entry) -> Place {
        let place = entry.key.place(self.entries.len());
        let is_free = |place: usize| self.entries.get(place).is_some_and(|entry| entry.key == Key::NONE);
        let free = [place, place ^ 1].into_iter().find(|&place| is_free(place));
        self.used += usize::from(free.is_some());
        let place = free.unwrap_or(place);
        self.entries[place] = entry;
        Place(place)
    }

    /// Forgets all effects.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.most);
    }
}

fn empty(places: usize) -> Box<[Entry]> {
    vec![Entry::EMPTY; places].into_boxed_slice()
}
