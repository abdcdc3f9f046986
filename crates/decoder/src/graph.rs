//! The block graph: every block that was reached, in one array, linked by index.
//!
//! Each worker has a graph of its own; it never changes the decoded events, only the speed.

mod index;

use std::hint::black_box;

use model::{Avma, FunctionStretch, NoCode, SpaceId};

use crate::Context;
use crate::block::{Block, BlockId};
use index::Index;

/// Blocks that are enough (about 100 MB).
const MAX_BLOCKS: usize = 1 << 20;
/// Blocks that have room before they are moved: 4 MB; only the used part of it is ever touched.
pub(crate) const FIRST_BLOCKS: usize = 1 << 16;

pub(crate) struct BlockGraph {
    blocks: Vec<Block>,
    index: Index,
    /// The function that was met last, of a space: most new blocks are near.
    function: Option<(SpaceId, FunctionStretch)>,
}

impl BlockGraph {
    pub(crate) fn new() -> Self {
        let (blocks, index) = (Vec::with_capacity(FIRST_BLOCKS), Index::new(FIRST_BLOCKS));
        Self { blocks, index, function: None }
    }

    /// The block with this id.
    #[inline]
    pub(crate) fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// The block that starts at `ip`.
    pub(crate) fn at(&mut self, context: &Context<'_>, space: SpaceId, ip: Avma) -> Result<BlockId, NoCode> {
        let space = space_of(space, ip);
        // A block that is met for the first time has neither its code nor its place in the index in a
        // cache: a processor waits for both at once.
        let bytes = context.code.code(space, ip)?;
        black_box(bytes.first().copied());
        if let Some(id) = self.index.find(&self.blocks, space, ip) {
            return Ok(id);
        }
        let function_at = |ip| match &self.function {
            Some((of, stretch)) if *of == space && stretch.addresses.contains(&ip) => stretch.at(ip),
            _ => {
                let stretch = context.functions.stretch_around(space, ip);
                self.function.insert((space, stretch)).1.at(ip)
            }
        };
        let next_mark = |ip| context.functions.next_mark(space, ip);
        let block = Block::decode(bytes, context.code, space, ip, function_at, next_mark);
        let id = BlockId(self.blocks.len() as u32);
        self.blocks.push(block);
        self.index.add(&self.blocks);
        Ok(id)
    }

    /// The block at the target of `from`'s direct branch.
    #[inline]
    pub(crate) fn taken(
        &mut self,
        context: &Context<'_>,
        space: SpaceId,
        from: BlockId,
        to: Avma,
    ) -> Result<BlockId, NoCode> {
        let known = self.blocks[from.0 as usize].taken;
        if known != BlockId::NONE {
            return Ok(known);
        }
        let id = self.at(context, space, to)?;
        self.blocks[from.0 as usize].taken = id;
        Ok(id)
    }

    /// The block after `from`'s last instruction.
    #[inline]
    pub(crate) fn next(
        &mut self,
        context: &Context<'_>,
        space: SpaceId,
        from: BlockId,
    ) -> Result<BlockId, NoCode> {
        let block = &self.blocks[from.0 as usize];
        if block.next != BlockId::NONE {
            return Ok(block.next);
        }
        let ip = block.last.next_ip();
        let id = self.at(context, space, ip)?;
        self.blocks[from.0 as usize].next = id;
        Ok(id)
    }

    /// The address after the call that ends `call`.
    pub(crate) fn return_address(&self, call: BlockId) -> Avma {
        self.block(call).last.next_ip()
    }

    /// The block after the call that ends `call`, which may have been made in another address space.
    pub(crate) fn return_site(
        &mut self,
        context: &Context<'_>,
        space: SpaceId,
        call: BlockId,
    ) -> Result<BlockId, NoCode> {
        let ip = self.return_address(call);
        if self.block(call).space == space_of(space, ip) {
            self.next(context, space, call)
        } else {
            self.at(context, space, ip)
        }
    }

    /// Forgets all blocks: others have their room.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.index.clear();
    }

    /// There is too much of it: time to begin anew.
    pub(crate) fn is_full(&self) -> bool {
        self.blocks.len() > MAX_BLOCKS
    }
}

/// The kernel is the same in all address spaces.
fn space_of(space: SpaceId, ip: Avma) -> SpaceId {
    if ip.is_kernel() { SpaceId::default() } else { space }
}
