//! Finds effects by what they are of.
//!
//! A busy program has tens of thousands of effects, and each packet asks for another one, which says what the next packet
//! asks for: waiting for memory is much of what a packet costs.  So an effect and its key are half a cache line, and the
//! memo is no larger than the effects that were met need, which also spares the processor's table of pages.  An effect
//! stands at the place that its key says, or else beside that.

use model::Avma;

use super::{Asked, EdgeId, Effect, End};
use crate::block::BlockId;

/// What an effect is of: a block, and what is asked there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// What the packet says, mixed: another number for each.  64 bits that need no alignment.
    detail: [u8; 8],
    /// The block's number, and what `detail` is.
    block: u32,
}

impl Key {
    const NONE: Self = Self { detail: [0; 8], block: u32::MAX };

    /// By Fibonacci hashing of what the packet says, which is known long before the block is.  The factor is short enough to be
    /// part of an instruction: of few bits the lowest of the product are mixed well, of an address those in its middle.
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
struct Entry {
    key: Key,
    effect: Effect,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    const FREE: Self = Self {
        key: Key::NONE,
        effect: Effect {
            next: BlockId::NONE,
            work: 0,
            first_work: 0,
            edges: EdgeId::NONE,
            rest: 1,
            end: End::Lost,
            quiet: 0,
            calls: 0,
        },
    };
}

/// A memo begins with so many entries: 128 KB.
const FIRST: usize = 1 << 12;

pub(super) struct Memo {
    /// A power of two of them, two at least.
    entries: Box<[Entry]>,
    /// Those that are not free.
    used: usize,
    /// It grows to so many; then what is new takes the place of something else.
    most: usize,
}

impl Memo {
    /// A memo of at most so many entries, and at least two.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(2);
        Self { entries: free(1 << FIRST.min(most).ilog2()), used: 0, most }
    }

    #[inline]
    pub(super) fn all(&self) -> Option<Remembered<'_>> {
        (!self.entries.is_empty()).then_some(Remembered { entries: &self.entries })
    }

    /// Remembers the effect of a key that was not found.
    pub(super) fn add(&mut self, key: Key, effect: Effect) -> &Effect {
        if 2 * self.used >= self.entries.len() && self.entries.len() * 2 <= self.most {
            let larger = free(self.entries.len() * 2);
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
    fn put(&mut self, entry: Entry) -> &Effect {
        let place = place(&self.entries, entry.key);
        let free = [place, place ^ 1].into_iter().find(|&place| self.entries[place].key == Key::NONE);
        self.used += usize::from(free.is_some());
        let stays = &mut self.entries[free.unwrap_or(place)];
        *stays = entry;
        &stays.effect
    }

    /// All effects, in no order that means anything.
    pub(super) fn effects(&mut self) -> impl Iterator<Item = &mut Effect> {
        self.entries.iter_mut().filter(|entry| entry.key != Key::NONE).map(|entry| &mut entry.effect)
    }

    /// Forgets all effects.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.most);
    }
}

/// What a memo has, for who asks again and again.
#[derive(Clone, Copy)]
pub(crate) struct Remembered<'a> {
    /// One at least.
    entries: &'a [Entry],
}

impl<'a> Remembered<'a> {
    /// What is remembered of it.
    #[inline]
    pub(crate) fn find(self, block: BlockId, asked: Asked) -> Option<&'a Effect> {
        let key = Key::new(block, asked);
        let place = place(self.entries, key);
        let entry = self.entries.get(place)?;
        if entry.key == key { Some(&entry.effect) } else { self.find_beside(key, place) }
    }

    /// On its own, so that the registers are for what stands at its place, as most does.
    #[cold]
    #[inline(never)]
    fn find_beside(self, key: Key, place: usize) -> Option<&'a Effect> {
        let beside = self.entries.get(place ^ 1)?;
        (beside.key == key).then_some(&beside.effect)
    }
}

/// Where a key's effect stands.
#[inline]
fn place(entries: &[Entry], key: Key) -> usize {
    (u64::from_ne_bytes(key.detail) ^ u64::from(key.block)) as usize & entries.len().wrapping_sub(1)
}

fn free(entries: usize) -> Box<[Entry]> {
    vec![Entry::FREE; entries].into_boxed_slice()
}
