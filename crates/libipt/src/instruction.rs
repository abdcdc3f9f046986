//! What kind of branch an instruction of libipt is.

use model::{Avma, BranchKind, EndKind};

use crate::abi::{Insn, class};

/// The kind of a near branch; `None` for all else.
pub(crate) fn branch_kind(insn: &Insn) -> Option<BranchKind> {
    Some(match (insn.iclass, is_indirect(insn)) {
        (class::CALL, false) => BranchKind::Call,
        (class::CALL, true) => BranchKind::IndirectCall,
        (class::JUMP, false) => BranchKind::Jump,
        (class::JUMP, true) => BranchKind::IndirectJump,
        (class::RETURN, _) => BranchKind::Return,
        (class::COND_JUMP, _) => BranchKind::ConditionalJump,
        _ => return None,
    })
}

/// How control left with this instruction; `None` if it is no branch: it ran on past the end of the IP
/// filter's range.
pub(crate) fn end_kind(insn: &Insn) -> Option<EndKind> {
    match insn.iclass {
        class::FAR_CALL | class::FAR_RETURN | class::FAR_JUMP => Some(EndKind::Syscall),
        _ => branch_kind(insn).map(EndKind::Branch),
    }
}

/// The address after an instruction.
pub(crate) fn next_ip(insn: &Insn) -> Avma {
    Avma(insn.ip).plus(insn.size.into())
}

/// libipt does not say which calls and jumps are indirect: `FF /2` to `/5` are, after legacy prefixes and
/// REX (SDM volume 2, "CALL", "JMP").
fn is_indirect(insn: &Insn) -> bool {
    let opcode = insn.raw.iter().take(insn.size.into()).find(|byte| !is_prefix(**byte));
    opcode == Some(&0xff)
}

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(iclass: u32, bytes: &[u8]) -> Insn {
        let mut insn = Insn { ip: 0x1000, iclass, size: bytes.len() as u8, ..Insn::default() };
        insn.raw[..bytes.len()].copy_from_slice(bytes);
        insn
    }

    #[test]
    fn calls_and_jumps_are_told_apart_by_their_opcode() {
        for (class, bytes, kind) in [
            (class::CALL, &[0xe8, 0, 0, 0, 0][..], BranchKind::Call),
            (class::CALL, &[0x67, 0xe8, 0, 0, 0, 0], BranchKind::Call),
            (class::CALL, &[0x41, 0xff, 0xd3], BranchKind::IndirectCall),
            (class::CALL, &[0xff, 0x15, 0, 0, 0, 0], BranchKind::IndirectCall),
            (class::JUMP, &[0xeb, 0xfe], BranchKind::Jump),
            (class::JUMP, &[0x3e, 0xff, 0xe0], BranchKind::IndirectJump),
            (class::JUMP, &[0xf2, 0xff, 0x25, 0, 0, 0, 0], BranchKind::IndirectJump),
            (class::RETURN, &[0xf3, 0xc3], BranchKind::Return),
            (class::COND_JUMP, &[0x0f, 0x84, 0, 0, 0, 0], BranchKind::ConditionalJump),
        ] {
            assert_eq!(branch_kind(&insn(class, bytes)), Some(kind), "{bytes:02x?}");
        }
        let syscall = insn(class::FAR_CALL, &[0x0f, 0x05]);
        assert_eq!((branch_kind(&syscall), end_kind(&syscall)), (None, Some(EndKind::Syscall)));
        assert_eq!(next_ip(&syscall), Avma(0x1002));
    }
}
