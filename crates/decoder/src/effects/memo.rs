//! Finds effects by what they are of.
//!
//! A busy program has tens of thousands of effects, and each packet asks for another one, which says what the
//! next packet asks for: waiting for memory is much of what a packet costs. So an effect and its key are half
//! a cache line, and the memo is no larger than the effects that were met need, which also spares the
//! processor's table of pages. An effect stands at the place that its key says, or else near that, in the
//! same two lines.

use std::num::NonZeroU8;

use model::Avma;

use super::{Asked, EdgeId, Effect, End};
use crate::block::BlockId;
use crate::work::{InstructionCount, Work};

/// The key of an effect: a block, and the packet's question about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// What the packet says, mixed: another number for each.  64 bits that need no alignment.
    detail: [u8; 8],
    /// The block's number, and what `detail` is.
    block: u32,
}

impl Key {
    const NONE: Self = Self { detail: [0; 8], block: u32::MAX };

    /// By Fibonacci hashing of what the packet says, which is known long before the block is. The factor is
    /// short enough to be part of an instruction: of few bits the lowest of the product are mixed well, of an
    /// address those in its middle.
    #[inline]
    pub(super) fn new(block: BlockId, asked: Asked) -> Self {
        const GOLDEN: u64 = 0x61c8_8647;
        let of_address = |ip: Avma| ip.0.wrapping_mul(GOLDEN).rotate_left(32);
        let (mixed, kind) = match asked {
            Asked::Bits(bits) => (bits.number().wrapping_mul(GOLDEN), 0),
            Asked::Address(ip) => (of_address(ip), 1),
            Asked::End(ip) => (of_address(ip), 2),
            Asked::Start(ip) => (of_address(ip), 3),
        };
        Self { detail: mixed.to_ne_bytes(), block: block.0 | kind << 30 }
    }
}

/// Half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Entry<W> {
    key: Key,
    effect: Effect<W>,
}

const _: () = assert!(size_of::<Entry<InstructionCount>>() == 32);

impl<W: Work> Entry<W> {
    const FREE: Self = Self {
        key: Key::NONE,
        effect: Effect {
            next: BlockId::NONE,
            work: W::NONE,
            first_work: 0,
            edges: EdgeId::NONE,
            rest: NonZeroU8::MIN,
            end: End::Lost,
            prunable: None,
            calls: 0,
        },
    };
}

/// Entries that a memo begins with: 128 KB.
const FIRST: usize = 1 << 12;

/// Places that an effect may be at: two cache lines, which a processor fetches together.
const PLACES: usize = 4;

pub(super) struct Memo<W = InstructionCount> {
    /// A power of two of them, and [`PLACES`] at least. Room for the most is reserved, and only the used
    /// part of it is touched: the memo grows in place.
    entries: Vec<Entry<W>>,
    /// Entries that were added since it has grown.
    added: usize,
    /// The entries up to which it grows; then a new effect takes the place of an old one.
    most: usize,
}

impl<W: Work> Memo<W> {
    /// A memo of at most `most` entries, and at least [`PLACES`].
    pub(super) fn new(most: usize) -> Self {
        let most = 1 << most.max(PLACES).ilog2();
        let mut memo = Self { entries: Vec::with_capacity(most), added: 0, most };
        memo.clear();
        memo
    }

    #[inline]
    pub(super) fn all(&self) -> Option<Remembered<'_, W>> {
        (!self.entries.is_empty()).then_some(Remembered { entries: &self.entries })
    }

    /// Remembers the effect of a key that was not found. What takes the place of something else counts, too:
    /// effects that take turns at their places would be worked out again and again.
    pub(super) fn add(&mut self, key: Key, effect: Effect<W>) -> &Effect<W> {
        if 2 * self.added >= self.entries.len() && self.entries.len() < self.most {
            self.double();
        }
        self.put(Entry { key, effect })
    }

    /// Doubles the number of entries. The effects of one group of [`PLACES`] places now share these and as
    /// many new ones, which those of no other group come to.
    fn double(&mut self) {
        let before = self.entries.len();
        self.entries.resize(2 * before, Entry::FREE);
        self.added = 0;
        for first in (0..before).step_by(PLACES) {
            let moved: [_; PLACES] =
                std::array::from_fn(|place| std::mem::replace(&mut self.entries[first + place], Entry::FREE));
            for entry in moved.into_iter().filter(|entry| entry.key != Key::NONE) {
                self.put(entry);
            }
        }
    }

    /// At the first of its places that is free; if none is, it takes the first.
    fn put(&mut self, entry: Entry<W>) -> &Effect<W> {
        let first = place(&self.entries, entry.key);
        let mut places = (0..PLACES).map(|other| first ^ other);
        let free = places.find(|&place| self.entries[place].key == Key::NONE);
        self.added += 1;
        let stays = &mut self.entries[free.unwrap_or(first)];
        *stays = entry;
        &stays.effect
    }

    /// All effects, in no order that means anything.
    pub(super) fn effects(&mut self) -> impl Iterator<Item = &mut Effect<W>> {
        self.entries.iter_mut().filter(|entry| entry.key != Key::NONE).map(|entry| &mut entry.effect)
    }

    /// Forgets all effects.
    pub(super) fn clear(&mut self) {
        self.added = 0;
        self.entries.clear();
        self.entries.resize(FIRST.min(self.most), Entry::FREE);
    }
}

/// The entries of a memo, for repeated look-ups.
#[derive(Clone, Copy)]
pub(crate) struct Remembered<'a, W> {
    /// One at least.
    entries: &'a [Entry<W>],
}

impl<'a, W: Work> Remembered<'a, W> {
    /// What is remembered of it.
    #[inline]
    pub(crate) fn find(self, block: BlockId, asked: Asked) -> Option<&'a Effect<W>> {
        let key = Key::new(block, asked);
        let place = place(self.entries, key);
        let entry = self.entries.get(place)?;
        if entry.key == key {
            return Some(&entry.effect);
        }
        // Of those that are not at their first place most are in the other half of its line.
        let beside = self.entries.get(place ^ 1)?;
        if beside.key == key { Some(&beside.effect) } else { self.find_near(key, place) }
    }

    /// On its own, to keep the registers for effects at their first place, as most are.
    #[cold]
    #[inline(never)]
    fn find_near(self, key: Key, first: usize) -> Option<&'a Effect<W>> {
        let mut others = (2..PLACES).filter_map(|other| self.entries.get(first ^ other));
        others.find(|entry| entry.key == key).map(|entry| &entry.effect)
    }
}

/// The first place of a key's effect.
#[inline]
fn place<W>(entries: &[Entry<W>], key: Key) -> usize {
    (u64::from_ne_bytes(key.detail) ^ u64::from(key.block)) as usize & entries.len().wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of some blocks, which differ in nothing else.
    fn keys(blocks: impl Iterator<Item = u32>) -> Vec<Key> {
        blocks.map(|block| Key::new(BlockId(block), Asked::Address(Avma(0x1234)))).collect()
    }

    fn has(memo: &Memo, key: Key) -> bool {
        let place = place(&memo.entries, key);
        [place, place ^ 1].iter().any(|&place| memo.entries[place].key == key)
            || memo.all().unwrap().find_near(key, place).is_some()
    }

    fn add(memo: &mut Memo, key: Key) {
        let Entry { effect, .. } = Entry::FREE;
        memo.add(key, Effect { work: InstructionCount(key.block), ..effect });
    }

    #[test]
    fn growing_loses_nothing() {
        let mut memo: Memo = Memo::new(1 << 16);
        let keys = keys(0..1 << 14);
        keys.iter().for_each(|key| add(&mut memo, *key));
        assert_eq!(memo.entries.len(), 1 << 15);
        for key in keys {
            let effect =
                memo.all().unwrap().find(BlockId(key.block & 0x3fff_ffff), Asked::Address(Avma(0x1234)));
            assert_eq!(effect.map(|effect| effect.work), Some(InstructionCount(key.block)));
        }
    }

    #[test]
    fn those_of_one_place_are_beside_each_other() {
        let mut memo: Memo = Memo::new(FIRST);
        let keys = keys((0..5).map(|number| number * FIRST as u32));
        keys.iter().for_each(|key| add(&mut memo, *key));
        assert_eq!(keys.iter().filter(|key| has(&memo, **key)).count(), PLACES);
    }

    #[test]
    fn it_grows_for_those_that_take_turns() {
        let mut memo: Memo = Memo::new(1 << 16);
        let keys = keys((0..5).map(|number| number * FIRST as u32));
        for key in keys.iter().cycle().take(2 * FIRST) {
            if !has(&memo, *key) {
                add(&mut memo, *key);
            }
        }
        assert_eq!(memo.entries.len(), 2 * FIRST);
        assert!(keys.iter().all(|key| has(&memo, *key)));
    }
}
