//! One static basic block: straight code up to the next branch, decoded once.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use model::{Avma, BranchKind, CodeSource, EndKind, FunctionAt, NoCode, Site, SpaceId, Target};

/// Index in the block graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// A link that was not followed yet.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminator {
    /// Conditional jump: a TNT bit decides.
    Conditional { taken: Avma },
    /// Direct jump.
    Jump { to: Avma },
    /// Direct call.  `push`: it is not to the next instruction.
    Call { to: Avma, push: bool },
    /// Indirect jump: a TIP tells.
    IndirectJump,
    /// Indirect call.
    IndirectCall,
    /// Near return: a TNT bit if compressed, else a TIP.
    Return,
    /// System call, software interrupt, `iret`: a TIP or TIP.PGD tells.
    Far,
    /// No branch: the block was cut because it was long.
    Continue,
    /// The next instruction cannot be decoded: the bytes end, or are not an instruction.
    Undecodable(NoCode),
}

/// Straight code and the branch at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Whose code it is; the kernel's is the same in all.
    pub(crate) space: SpaceId,
    /// First instruction.
    pub(crate) start: Target,
    /// Last instruction.
    pub(crate) last: Site,
    /// How many instructions it has.
    pub(crate) instructions: u32,
    pub(crate) terminator: Terminator,
    /// The block at the branch's target, once followed.
    pub(crate) taken: BlockId,
    /// The block behind the last instruction, once followed.
    pub(crate) next: BlockId,
}

/// A block is cut here, so that finding one costs a bounded time.
const MAX_INSTRUCTIONS: usize = 512;

impl Block {
    /// Decodes the block at `ip`, where `code` has these bytes; `function_at` knows the functions of its space.
    pub(crate) fn decode(
        bytes: &[u8],
        code: &dyn CodeSource,
        space: SpaceId,
        ip: Avma,
        mut function_at: impl FnMut(Avma) -> FunctionAt,
    ) -> Self {
        let mut decoder = Decoder::with_ip(64, bytes, ip.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut last = ip;
        let mut len = 0;
        let mut terminator = Terminator::Continue;
        let mut instructions = 0;
        for _ in 0..MAX_INSTRUCTIONS {
            let at = Avma(decoder.ip());
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                // What precedes it can still run: an interrupt may come before.
                let why = code.code(space, at).err().unwrap_or(NoCode::Unmapped);
                terminator = Terminator::Undecodable(why);
                break;
            }
            instructions += 1;
            last = at;
            len = instruction.len();
            if let Some(found) = terminator_of(&instruction) {
                terminator = found;
                break;
            }
        }
        let FunctionAt { id, at_entry } = function_at(ip);
        let function = function_at(last).id;
        Self {
            space,
            start: Target { ip, function: id, at_entry },
            last: Site { ip: last, function, len: len as u8 },
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
            Terminator::Far | Terminator::Continue | Terminator::Undecodable(_) => return None,
        })
    }

    /// How its last instruction leaves it for `ip`, if it does, and if that is not inside of it.
    pub(crate) fn leaves_for(&self, ip: Avma) -> Option<EndKind> {
        let leaves = match self.terminator {
            Terminator::Jump { to } | Terminator::Call { to, .. } => ip == to,
            Terminator::Conditional { taken } => ip == taken || ip == self.last.next_ip(),
            Terminator::Continue | Terminator::Undecodable(_) => false,
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
        let mut decoder = Decoder::with_ip(64, bytes, self.start.ip.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        for _ in 0..MAX_INSTRUCTIONS {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() || instruction.next_ip() > ip.0 {
                return None;
            }
            if instruction.next_ip() == ip.0 {
                let len = instruction.len() as u8;
                return Some(Site { ip: Avma(instruction.ip()), function: self.last.function, len });
            }
        }
        None
    }

    /// `ip` is one of the block's instructions (or inside one).
    pub(crate) fn contains(&self, ip: Avma) -> bool {
        self.start.ip <= ip && ip <= self.last.ip
    }
}

/// `None` for an instruction that falls through.
fn terminator_of(instruction: &Instruction) -> Option<Terminator> {
    Some(match instruction.flow_control() {
        FlowControl::Next => return None,
        FlowControl::ConditionalBranch => {
            Terminator::Conditional { taken: Avma(instruction.near_branch_target()) }
        }
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
            Terminator::Jump { to: Avma(instruction.near_branch_target()) }
        }
        FlowControl::Call if instruction.is_call_near() => {
            let to = Avma(instruction.near_branch_target());
            Terminator::Call { to, push: to.0 != instruction.next_ip() }
        }
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Terminator::IndirectJump,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Terminator::IndirectCall,
        FlowControl::Return if is_near_return(instruction.code()) => Terminator::Return,
        // XBEGIN continues behind itself; an abort is an asynchronous event (MODE.TSX, FUP, TIP).
        FlowControl::XbeginXabortXend => return None,
        // To their own code they fall through: a VM exit is an asynchronous event.
        FlowControl::Call if is_hypercall(instruction.code()) => return None,
        _ => Terminator::Far,
    })
}

fn is_hypercall(code: Code) -> bool {
    use Code::{Tdcall, Vmcall, Vmgexit, Vmgexit_F2, Vmmcall};
    matches!(code, Vmcall | Vmmcall | Vmgexit | Vmgexit_F2 | Tdcall)
}

fn is_near_return(code: Code) -> bool {
    matches!(
        code,
        Code::Retnq | Code::Retnq_imm16 | Code::Retnd | Code::Retnd_imm16 | Code::Retnw | Code::Retnw_imm16
    )
}
