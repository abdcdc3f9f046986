//! Where control goes after an instruction, as the disassembler tells.

use iced_x86::{Code, FlowControl, Instruction};
use model::{Avma, NoCode};

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
    /// No branch: the block was cut because it was long, or because a region begins or ends after it.
    Continue,
    /// The next instruction is not there, or not all of it.
    Undecodable(NoCode),
    /// The next instruction is one that the disassembler does not know.
    Unknown,
}

/// Why an instruction was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecoded {
    /// Bytes of it are missing.
    Missing,
    /// The disassembler does not know it.
    Unknown,
}

/// `None` for an instruction that falls through.
pub(crate) fn terminator_of(instruction: &Instruction) -> Option<Terminator> {
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
        // XBEGIN continues after itself; an abort is an asynchronous event (MODE.TSX, FUP, TIP).
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
