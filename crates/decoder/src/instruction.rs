//! One instruction after the other: how long each is, and where control goes after it.

#[cfg(test)]
mod second_opinion;

use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction};
use model::Avma;

use crate::apx;
use crate::block::Terminator;

/// An instruction that was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) ip: Avma,
    pub(crate) len: u8,
    /// `None` if it falls through.
    pub(crate) terminator: Option<Terminator>,
}

/// Why an instruction was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecoded {
    /// Bytes of it are missing.
    Missing,
    /// The disassembler does not know it.
    Unknown,
}

/// The instructions of straight code.
pub(crate) struct Instructions<'a> {
    decoder: Decoder<'a>,
    bytes: &'a [u8],
    instruction: Instruction,
}

impl<'a> Instructions<'a> {
    /// The instructions from `ip` on, where the code is `bytes`.
    pub(crate) fn at(ip: Avma, bytes: &'a [u8]) -> Self {
        let decoder = Decoder::with_ip(64, bytes, ip.0, DecoderOptions::NONE);
        Self { decoder, bytes, instruction: Instruction::default() }
    }

    /// The next one.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Decoded, Undecoded> {
        let (position, ip) = (self.decoder.position(), self.decoder.ip());
        self.decoder.decode_out(&mut self.instruction);
        if self.instruction.is_invalid() {
            return self.next_of_apx(position, ip);
        }
        let len = self.instruction.len() as u8;
        Ok(Decoded { ip: Avma(ip), len, terminator: terminator_of(&self.instruction) })
    }

    /// The next one, which the disassembler does not know.
    #[cold]
    fn next_of_apx(&mut self, position: usize, ip: u64) -> Result<Decoded, Undecoded> {
        if self.decoder.last_error() == DecoderError::NoMoreBytes {
            return Err(Undecoded::Missing);
        }
        let (len, terminator) = apx::decode(self.bytes.get(position..).unwrap_or_default())?;
        self.decoder.set_position(position + usize::from(len)).map_err(|_| Undecoded::Missing)?;
        self.decoder.set_ip(ip.wrapping_add(u64::from(len)));
        Ok(Decoded { ip: Avma(ip), len, terminator })
    }
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
