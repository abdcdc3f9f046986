//! Finds blocks by where they start.
//!
//! Blocks that are near each other run after each other, and code that is met for the first time costs
//! little but waiting for memory. So the blocks of 64 bytes of code have their places in one cache line,
//! and a place says enough of a block to know that it is another one without looking at it.

use model::{Avma, SpaceId};

use crate::block::{Block, BlockId};

/// Where a block may be found.
#[derive(Clone, Copy, Debug)]
struct BlockPlace {
    /// The lower half of the address that the block starts at.
    low: u32,
    id: BlockId,
}

const FREE: BlockPlace = BlockPlace { low: 0, id: BlockId::NONE };

/// Places that an index begins with: 32 KB.
const FIRST_PLACES: usize = 1 << 12;

/// A hash table without keys: the blocks have them.
pub(super) struct Index {
    /// A power of two of them, at least twice the number of blocks: or none.
    places: Vec<BlockPlace>,
}

impl Index {
    /// An index that grows in place up to `blocks` blocks.
    pub(super) fn new(blocks: usize) -> Self {
        Self { places: Vec::with_capacity(2 * blocks) }
    }

    /// The one of `blocks`, all of which were added, that starts at `ip`.
    pub(super) fn find(&self, blocks: &[Block], space: SpaceId, ip: Avma) -> Option<BlockId> {
        let mut at = self.first_place(space, ip);
        loop {
            let place = self.places.get(at).filter(|place| place.id != BlockId::NONE)?;
            if place.low == ip.0 as u32 {
                let block = &blocks[place.id.0 as usize];
                if block.start.ip == ip && block.space == space {
                    return Some(place.id);
                }
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }

    /// Adds the last one of `blocks`; the others were added before.
    pub(super) fn add(&mut self, blocks: &[Block]) {
        let mut new = blocks.len() - 1;
        if blocks.len() * 2 > self.places.len() {
            let places = (self.places.len() * 2).max(FIRST_PLACES);
            self.places.clear();
            self.places.resize(places, FREE);
            new = 0;
        }
        for (id, block) in blocks.iter().enumerate().skip(new) {
            let Avma(ip) = block.start.ip;
            let mut at = self.first_place(block.space, block.start.ip);
            while self.places[at].id != BlockId::NONE {
                at = (at + 1) & (self.places.len() - 1);
            }
            self.places[at] = BlockPlace { low: ip as u32, id: BlockId(id as u32) };
        }
    }

    pub(super) fn clear(&mut self) {
        self.places.fill(FREE);
    }

    /// The place where looking for a block begins: in the line of its 64 bytes of code the one of its eight.
    fn first_place(&self, SpaceId(space): SpaceId, Avma(ip): Avma) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let line = (ip >> 6 ^ u64::from(space) << 26).wrapping_mul(GOLDEN);
        (line.rotate_left(32) << 3 | ip >> 3 & 7) as usize & self.places.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use model::{FunctionId, Site, Target};

    use super::*;
    use crate::terminator::Terminator;

    fn block(space: u32, ip: u64) -> Block {
        let (ip, function) = (Avma(ip), FunctionId::UNKNOWN);
        Block {
            space: SpaceId(space),
            start: Target { ip, function, at_entry: false },
            is_marked: false,
            last: Site { ip, function, len: 1 },
            instructions: 1,
            terminator: Terminator::Return,
            taken: BlockId::NONE,
            next: BlockId::NONE,
        }
    }

    #[test]
    fn all_blocks_are_found_and_no_others() {
        let mut blocks = vec![];
        let mut index = Index::new(1 << 10);
        let (near, far, kernel) = (0x40_0000, 0x7f01_0040_0000, 0xffff_ffff_8040_0000_u64);
        for base in [near, far, kernel] {
            for (ip, space) in (base..base + 3000).flat_map(|ip| [(ip, 1), (ip, 2)]) {
                assert_eq!(index.find(&blocks, SpaceId(space), Avma(ip)), None, "{space} {ip:#x}");
                blocks.push(block(space, ip));
                index.add(&blocks);
            }
        }
        for (id, block) in blocks.iter().enumerate() {
            let found = index.find(&blocks, block.space, block.start.ip);
            assert_eq!(found, Some(BlockId(id as u32)));
        }
    }
}
