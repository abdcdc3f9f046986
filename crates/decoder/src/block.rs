//! One static basic block: straight code up to the next branch, decoded once.

use model::{Avma, BranchKind, CodeSource, EndKind, FunctionAt, NoCode, Site, SpaceId, Target};

use crate::instruction::Instructions;
use crate::terminator::{Terminator, Undecoded};

/// Index in the block graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// A link that was not followed yet.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Straight code and the branch at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The address space of the code; the kernel's is the same in all.
    pub(crate) space: SpaceId,
    /// First instruction.
    pub(crate) start: Target,
    /// A region begins or ends at the first instruction: whatever leads there is an event.
    pub(crate) is_marked: bool,
    /// Last instruction.
    pub(crate) last: Site,
    /// How many instructions it has.
    pub(crate) instructions: u32,
    pub(crate) terminator: Terminator,
    /// The block at the branch's target, once followed.
    pub(crate) taken: BlockId,
    /// The block after the last instruction, once followed.
    pub(crate) next: BlockId,
}

/// A block is cut here, so that finding one costs a bounded time.
const MAX_INSTRUCTIONS: usize = 512;

impl Block {
    /// Decodes the block at `ip`, where `code` has these bytes; `function_at` knows the functions of its
    /// space, `next_mark` the instructions at which regions begin or end: a block ends before one.
    pub(crate) fn decode(
        bytes: &[u8],
        code: &dyn CodeSource,
        space: SpaceId,
        ip: Avma,
        mut function_at: impl FnMut(Avma) -> FunctionAt,
        next_mark: impl Fn(Avma) -> Option<Avma>,
    ) -> Self {
        let mut code_of_block = Instructions::at(ip, bytes);
        let (mut last, mut len, mut instructions) = (ip, 0, 0);
        let mut terminator = Terminator::Continue;
        let mut mark = next_mark(ip.plus(1));
        for _ in 0..MAX_INSTRUCTIONS {
            let found = match code_of_block.next() {
                Ok(decoded) => {
                    instructions += 1;
                    (last, len) = (decoded.ip, decoded.len);
                    decoded.terminator
                }
                // What precedes it can still run: an interrupt may come before.
                Err(Undecoded::Unknown) => Some(Terminator::Unknown),
                Err(Undecoded::Missing) => {
                    let why = code.code(space, last.plus(len.into())).err().unwrap_or(NoCode::Unmapped);
                    Some(Terminator::Undecodable(why))
                }
            };
            if let Some(found) = found {
                terminator = found;
                break;
            }
            let next = last.plus(len.into());
            if mark.is_some_and(|mark| mark < next) {
                mark = next_mark(next); // no instruction that runs begins at that one
            }
            if mark == Some(next) {
                break;
            }
        }
        let FunctionAt { id, at_entry } = function_at(ip);
        let function = function_at(last).id;
        Self {
            space,
            start: Target { ip, function: id, at_entry },
            is_marked: next_mark(ip) == Some(ip),
            last: Site { ip: last, function, len },
            instructions,
            terminator,
            taken: BlockId::NONE,
            next: BlockId::NONE,
        }
    }

    /// The kind of near branch at the end, if it is one.
    pub(crate) fn branch_kind(&self) -> Option<BranchKind> {
        Some(match self.terminator {
            Terminator::Conditional { .. } => BranchKind::ConditionalJump,
            Terminator::Jump { .. } => BranchKind::Jump,
            Terminator::Call { .. } => BranchKind::Call,
            Terminator::IndirectJump => BranchKind::IndirectJump,
            Terminator::IndirectCall => BranchKind::IndirectCall,
            Terminator::Return => BranchKind::Return,
            Terminator::Far | Terminator::Continue | Terminator::Undecodable(_) | Terminator::Unknown => {
                return None;
            }
        })
    }

    /// How its last instruction leaves it for `ip`, if it does, and if that is not inside of it.
    pub(crate) fn leaves_for(&self, ip: Avma) -> Option<EndKind> {
        let leaves = match self.terminator {
            Terminator::Jump { to } | Terminator::Call { to, .. } => ip == to,
            Terminator::Conditional { taken } => ip == taken || ip == self.last.next_ip(),
            Terminator::Continue | Terminator::Undecodable(_) | Terminator::Unknown => false,
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => {
                true
            }
        };
        let is_inside = self.contains(ip) && ip != self.start.ip;
        (leaves && !is_inside).then(|| self.branch_kind().map_or(EndKind::Syscall, EndKind::Branch))
    }

    /// The instruction that runs on into `ip`.
    pub(crate) fn before(&self, code: &dyn CodeSource, space: SpaceId, ip: Avma) -> Option<Site> {
        let bytes = code.code(space, self.start.ip).ok()?;
        let mut instructions = Instructions::at(self.start.ip, bytes);
        for _ in 0..MAX_INSTRUCTIONS {
            let decoded = instructions.next().ok()?;
            let site = Site { ip: decoded.ip, function: self.last.function, len: decoded.len };
            if site.next_ip() >= ip {
                return (site.next_ip() == ip).then_some(site);
            }
        }
        None
    }

    /// How many of its instructions are before `ip`, which is one of them.
    pub(crate) fn instructions_before(&self, code: &dyn CodeSource, ip: Avma) -> u32 {
        let bytes = code.code(self.space, self.start.ip).unwrap_or_default();
        let mut instructions = Instructions::at(self.start.ip, bytes);
        let mut count = 0;
        while count < self.instructions
            && let Ok(decoded) = instructions.next()
            && decoded.ip < ip
        {
            count += 1;
        }
        count
    }

    /// `ip` is one of the block's instructions (or inside one).
    pub(crate) fn contains(&self, ip: Avma) -> bool {
        self.start.ip <= ip && ip <= self.last.ip
    }
}
