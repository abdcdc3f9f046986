//! Finds effects by what they are of.
//!
//! A busy program has tens of thousands of effects, and each packet asks for another one, which says what the next packet
//! asks for: waiting for memory is much of what a packet costs.  So an effect and its key are half a cache line, and the
//! memo is no larger than the effects that were met need, which also spares the processor's table of pages.  An effect
//! stands at the place that its key says, or else beside that, in the same line.

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

    /// By Fibonacci hashing of what the packet says, which is known long before the block is: that costs nothing more.
    #[inline]
    pub(super) fn new(block: BlockId, asked: Asked) -> Self {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let (detail, kind) = match asked {
            Asked::Bits(bits) => (bits.number(), 0),
            Asked::Address(ip) => (ip.0, 1),
        };
        let mixed = detail.wrapping_mul(GOLDEN).rotate_left(32);
        Self { detail: mixed.to_ne_bytes(), block: block.0 | kind << 30 }
    }
}

/// Half a line of the memo.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    effect: Effect,
}

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([Entry; 2]);

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    const EMPTY: Self = Self(
        [Entry {
            key: Key::NONE,
            effect: Effect {
                next: BlockId::NONE,
                work: 0,
                first_work: 0,
                edges: EdgeId::NONE,
                rest: 1,
                end: End::Lost,
                returns: false,
                calls: false,
            },
        }; 2],
    );
}

/// A memo begins with so many lines: 128 KB.
const FIRST_LINES: usize = 1 << 11;

pub(super) struct Memo {
    /// A power of two of them.
    lines: Box<[Line]>,
    /// Entries that are not free.
    used: usize,
    /// It grows to so many lines; then what is new takes the place of something else.
    most: usize,
}

impl Memo {
    /// A memo of at most so many entries, and at least a line of them.
    pub(super) fn new(most: usize) -> Self {
        let most = (most / 2).max(1);
        let lines = 1 << FIRST_LINES.min(most).ilog2();
        Self { lines: empty(lines), used: 0, most }
    }

    /// The line of a key's effect, and which half of it is its place: by a bit that no block's number changes.
    #[inline]
    fn place(&self, key: Key) -> (usize, usize) {
        let detail = u64::from_ne_bytes(key.detail);
        let line = (detail ^ u64::from(key.block)) as usize & (self.lines.len() - 1);
        (line, (detail as u32 >> 31) as usize)
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<&Effect> {
        let (line, half) = self.place(key);
        let Line(entries) = &self.lines[line];
        let entry = &entries[half];
        if entry.key == key {
            return Some(&entry.effect);
        }
        let beside = &entries[1 - half];
        (beside.key == key).then_some(&beside.effect)
    }

    /// Remembers the effect of a key that was not found.
    pub(super) fn add(&mut self, key: Key, effect: Effect) -> &Effect {
        if self.used >= self.lines.len() && self.lines.len() * 2 <= self.most {
            let larger = empty(self.lines.len() * 2);
            self.used = 0;
            for Line(entries) in std::mem::replace(&mut self.lines, larger) {
                for entry in entries.into_iter().filter(|entry| entry.key != Key::NONE) {
                    self.put(entry);
                }
            }
        }
        self.put(Entry { key, effect })
    }

    /// At its place if that is free; else beside it if that is; else it takes its place.
    fn put(&mut self, entry: Entry) -> &Effect {
        let (line, half) = self.place(entry.key);
        let Line(entries) = &mut self.lines[line];
        let free = [half, 1 - half].into_iter().find(|&half| entries[half].key == Key::NONE);
        self.used += usize::from(free.is_some());
        let stays = &mut entries[free.unwrap_or(half)];
        *stays = entry;
        &stays.effect
    }

    /// All effects, in no order that means anything.
    pub(super) fn effects(&mut self) -> impl Iterator<Item = &mut Effect> {
        let entries = self.lines.iter_mut().flat_map(|Line(entries)| entries);
        entries.filter(|entry| entry.key != Key::NONE).map(|entry| &mut entry.effect)
    }

    /// Forgets all effects.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.most * 2);
    }
}

fn empty(lines: usize) -> Box<[Line]> {
    vec![Line::EMPTY; lines].into_boxed_slice()
}
