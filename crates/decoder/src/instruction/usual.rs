//! The usual instructions, by their opcodes alone: how long each is, and where control goes after it.
//!
//! ```text
//! [64] [66] [REX] opcode [ModRM [SIB] [displacement]] [immediate]    a table has the form of each opcode
//! F2 or F3 [REX] 0F opcode ModRM [SIB] [displacement]                another those of scalar SSE
//! ```
//! Nearly all that compilers make is among these. Any other instruction, and any other prefix, is left to the
//! disassembler, which knows more of each and takes ten times as long.

use model::Avma;

use super::DecodedInstruction;
use crate::terminator::Terminator;

/// Bytes that are looked at: no instruction is longer.
const WINDOW: usize = 16;

/// What follows an opcode, and what it does to control.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Left to the disassembler.
    Other,
    /// Falls through, and has what [`plain`] says.
    Plain(u8),
    /// [`Form::Plain`] if the opcode in the `reg` of ModRM is one of these (bit by number).
    Group(u8, u8),
    /// [`Form::Plain`] after a prefix 66.
    Narrow(u8),
    /// `mov` of an immediate that is as wide as the register.
    Move,
    /// `lea`, which has an operand in memory.
    Lea,
    /// Group 3: `test` with an immediate, as here, or one operand.
    TestOrOne(u8),
    /// Group 5, of which some are branches.
    Group5,
    /// Branches to a relative address of this many bytes.
    Conditional(u8),
    Jump(u8),
    Call,
    Return,
}

/// There is a ModRM byte.
const MOD_RM: u8 = 0x80;
/// There is an immediate as wide as the operand, 4 bytes at most.
const WIDE: u8 = 0x40;
/// The bits with the number of bytes of an immediate.
const IMMEDIATE: u8 = 0x0f;

/// The prefix of what a thread has of its own.
const FS: u8 = 0x64;

const ONE_BYTE: [Form; 256] = one_byte();
const TWO_BYTES: [Form; 256] = two_bytes();

/// Prefixes and opcode of an instruction.
#[derive(Clone, Copy)]
struct Opcode {
    form: Form,
    /// Bytes of both.
    len: usize,
    /// There is a prefix.
    has_prefix: bool,
    /// Prefixed by 66.
    is_narrow: bool,
    /// Prefixed by REX.W.
    is_long: bool,
    /// Bytes of an immediate that is as wide as the operand.
    wide: usize,
}

impl Opcode {
    /// The opcode after `prefixes` bytes of other prefixes.
    #[inline(always)]
    fn of(code: &[u8; WINDOW], prefixes: usize) -> Self {
        let is_narrow = code[prefixes] == 0x66;
        let mut at = prefixes + usize::from(is_narrow);
        let byte = code[at];
        let has_rex = byte & 0xf0 == 0x40;
        at += usize::from(has_rex);
        let is_long = has_rex && byte & 8 != 0;
        let wide = if is_narrow && !is_long { 2 } else { 4 };
        let form = if code[at] == 0x0f {
            at += 1;
            TWO_BYTES[usize::from(code[at])]
        } else {
            ONE_BYTE[usize::from(code[at])]
        };
        let has_prefix = prefixes > 0 || is_narrow || has_rex;
        Self { form, len: at + 1, has_prefix, is_narrow, is_long, wide }
    }

    /// The length of an instruction that has what `plain` says: [`MOD_RM`], [`WIDE`], [`IMMEDIATE`].
    #[inline(always)]
    fn len_of_plain(self, code: &[u8; WINDOW], plain: u8) -> usize {
        let operand = if plain & MOD_RM != 0 { operand_len(code[self.len], code[self.len + 1]) } else { 0 };
        let wide = if plain & WIDE != 0 { self.wide } else { 0 };
        self.len + operand + wide + usize::from(plain & IMMEDIATE)
    }
}

/// The length of the instruction that `bytes` start with, if it is a usual one that falls through and is of
/// no group.
#[inline(always)]
pub(super) fn plain_len(bytes: &[u8]) -> Option<u8> {
    let code: &[u8; WINDOW] = bytes.first_chunk()?;
    let opcode = Opcode::of(code, 0);
    let Form::Plain(plain) = opcode.form else { return None };
    Some(opcode.len_of_plain(code, plain) as u8)
}

/// The instruction at `ip` that `bytes` start with, if it is a usual one and not near their end.
pub(super) fn decode(ip: Avma, bytes: &[u8]) -> Option<DecodedInstruction> {
    let code: &[u8; WINDOW] = bytes.first_chunk()?;
    if let [0xf2 | 0xf3, ..] = code {
        return Some(DecodedInstruction { ip, len: scalar_len(code)?, terminator: None });
    }
    let opcode = Opcode::of(code, usize::from(code[0] == FS));
    let reg = code[opcode.len] >> 3 & 7;
    let falls_through = |plain| {
        let len = opcode.len_of_plain(code, plain) as u8;
        Some(DecodedInstruction { ip, len, terminator: None })
    };
    let branch =
        |len: usize, branch| Some(DecodedInstruction { ip, len: len as u8, terminator: Some(branch) });
    let relative = |bytes: u8| {
        let wide: [u8; 4] = code[opcode.len..].first_chunk().copied().unwrap_or_default();
        let distance = if bytes == 1 { i32::from(wide[0] as i8) } else { i32::from_le_bytes(wide) };
        let len = opcode.len + usize::from(bytes);
        (len, Avma(ip.0.wrapping_add(len as u64).wrapping_add_signed(distance.into())))
    };
    match opcode.form {
        Form::Plain(plain) => falls_through(plain),
        Form::Group(regs, plain) if regs >> reg & 1 != 0 => falls_through(plain),
        Form::Narrow(plain) if opcode.is_narrow => falls_through(plain),
        Form::Move if opcode.is_long => falls_through(8),
        Form::Move => falls_through(WIDE),
        Form::Lea if code[opcode.len] < 0xc0 => falls_through(MOD_RM),
        Form::TestOrOne(plain) if reg == 0 => falls_through(plain),
        Form::TestOrOne(_) if reg > 1 => falls_through(MOD_RM),
        Form::Group5 if matches!(reg, 0 | 1 | 6) => falls_through(MOD_RM),
        Form::Group5 if reg == 2 && !opcode.is_narrow => {
            branch(opcode.len_of_plain(code, MOD_RM), Terminator::IndirectCall)
        }
        Form::Group5 if reg == 4 && !opcode.is_narrow => {
            branch(opcode.len_of_plain(code, MOD_RM), Terminator::IndirectJump)
        }
        // Prefixes of other branches are for the disassembler.
        _ if opcode.has_prefix => None,
        Form::Return => branch(opcode.len, Terminator::Return),
        Form::Conditional(bytes) => {
            let (len, taken) = relative(bytes);
            branch(len, Terminator::Conditional { taken })
        }
        Form::Jump(bytes) => {
            let (len, to) = relative(bytes);
            branch(len, Terminator::Jump { to })
        }
        Form::Call => {
            let (len, to) = relative(4);
            branch(len, Terminator::Call { to, push: to != ip.plus(len as u64) })
        }
        _ => None,
    }
}

/// The length of an instruction of scalar SSE, or of another one that has F2 or F3 in front of 0F.
fn scalar_len(code: &[u8; WINDOW]) -> Option<u8> {
    let rex = usize::from(code[1] & 0xf0 == 0x40);
    let [0x0f, opcode, mod_rm, next, ..] = *code.get(1 + rex..)? else { return None };
    let is_of_both = matches!(opcode, 0x10 | 0x11 | 0x2a | 0x2c | 0x2d | 0x51 | 0x58..=0x5a | 0x5c..=0x5f);
    // MOVDQU, MOVQ, POPCNT, TZCNT, LZCNT; ENDBR64.
    let is_of_f3 =
        matches!(opcode, 0x6f | 0x7e | 0x7f | 0xb8 | 0xbc | 0xbd) || opcode == 0x1e && mod_rm == 0xfa;
    let is_known = is_of_both || is_of_f3 && code[0] == 0xf3;
    is_known.then(|| (3 + rex + operand_len(mod_rm, next)) as u8)
}

/// Bytes of a ModRM byte and of the SIB byte and displacement after it; `next`: the byte after it.
#[inline(always)]
fn operand_len(mod_rm: u8, next: u8) -> usize {
    let has_sib = mod_rm < 0xc0 && mod_rm & 7 == 4;
    let base = if has_sib { next & 7 } else { mod_rm & 7 };
    let displacement = match mod_rm >> 6 {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    1 + usize::from(has_sib) + displacement
}

/// Opcodes of one byte (SDM volume 2, appendix A).
const fn one_byte() -> [Form; 256] {
    let mut forms = [Form::Other; 256];
    let mut row = 0;
    // ADD, OR, ADC, SBB, AND, SUB, XOR, CMP.
    while row < 0x40 {
        let mut form = 0;
        while form < 4 {
            forms[row + form] = Form::Plain(MOD_RM);
            form += 1;
        }
        forms[row + 4] = Form::Plain(1);
        forms[row + 5] = Form::Plain(WIDE);
        row += 8;
    }
    fill(&mut forms, 0x50, 0x5f, Form::Plain(0)); // PUSH, POP
    forms[0x63] = Form::Plain(MOD_RM); // MOVSXD
    forms[0x68] = Form::Plain(WIDE); // PUSH
    forms[0x69] = Form::Plain(MOD_RM | WIDE); // IMUL
    forms[0x6a] = Form::Plain(1);
    forms[0x6b] = Form::Plain(MOD_RM | 1);
    fill(&mut forms, 0x70, 0x7f, Form::Conditional(1));
    forms[0x80] = Form::Plain(MOD_RM | 1);
    forms[0x81] = Form::Plain(MOD_RM | WIDE);
    forms[0x83] = Form::Plain(MOD_RM | 1);
    fill(&mut forms, 0x84, 0x8b, Form::Plain(MOD_RM)); // TEST, XCHG, MOV
    forms[0x8d] = Form::Lea;
    forms[0x90] = Form::Plain(0); // NOP
    forms[0x98] = Form::Plain(0); // CBW, CWDE, CDQE
    forms[0x99] = Form::Plain(0);
    forms[0xa8] = Form::Plain(1); // TEST
    forms[0xa9] = Form::Plain(WIDE);
    fill(&mut forms, 0xb0, 0xb7, Form::Plain(1)); // MOV
    fill(&mut forms, 0xb8, 0xbf, Form::Move);
    let shifts = Form::Group(0b1011_1111, MOD_RM | 1);
    forms[0xc0] = shifts;
    forms[0xc1] = shifts;
    forms[0xc3] = Form::Return;
    forms[0xc6] = Form::Group(1, MOD_RM | 1); // MOV
    forms[0xc7] = Form::Group(1, MOD_RM | WIDE);
    fill(&mut forms, 0xd0, 0xd3, Form::Group(0b1011_1111, MOD_RM));
    forms[0xe8] = Form::Call;
    forms[0xe9] = Form::Jump(4);
    forms[0xeb] = Form::Jump(1);
    forms[0xf6] = Form::TestOrOne(MOD_RM | 1);
    forms[0xf7] = Form::TestOrOne(MOD_RM | WIDE);
    forms[0xfe] = Form::Group(0b11, MOD_RM); // INC, DEC
    forms[0xff] = Form::Group5;
    forms
}

/// Opcodes after 0F.
const fn two_bytes() -> [Form; 256] {
    let mut forms = [Form::Other; 256];
    // Moves, arithmetic and logic of SSE, with and without 66.
    let vectors = [
        0x10, 0x11, 0x14, 0x15, 0x28, 0x29, 0x2e, 0x2f, 0x51, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5c, 0x5d,
        0x5e, 0x5f, 0x60, 0x61, 0x62, 0x6e, 0x6f, 0x74, 0x75, 0x76, 0x7e, 0x7f, 0xd4, 0xda, 0xdb, 0xde, 0xdf,
        0xeb, 0xef, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe,
    ];
    let mut number = 0;
    while number < vectors.len() {
        forms[vectors[number]] = Form::Plain(MOD_RM);
        number += 1;
    }
    forms[0x6c] = Form::Narrow(MOD_RM); // PUNPCKLQDQ
    forms[0x70] = Form::Plain(MOD_RM | 1); // PSHUFD
    forms[0xd6] = Form::Narrow(MOD_RM); // MOVQ
    forms[0x1f] = Form::Plain(MOD_RM); // NOP
    fill(&mut forms, 0x40, 0x4f, Form::Plain(MOD_RM)); // CMOVcc
    fill(&mut forms, 0x80, 0x8f, Form::Conditional(4));
    fill(&mut forms, 0x90, 0x9f, Form::Plain(MOD_RM)); // SETcc
    forms[0xa3] = Form::Plain(MOD_RM); // BT
    forms[0xaf] = Form::Plain(MOD_RM); // IMUL
    forms[0xb6] = Form::Plain(MOD_RM); // MOVZX
    forms[0xb7] = Form::Plain(MOD_RM);
    forms[0xba] = Form::Group(0b1111_0000, MOD_RM | 1); // BT, BTS, BTR, BTC
    forms[0xbc] = Form::Plain(MOD_RM); // BSF, BSR
    forms[0xbd] = Form::Plain(MOD_RM);
    forms[0xbe] = Form::Plain(MOD_RM); // MOVSX
    forms[0xbf] = Form::Plain(MOD_RM);
    fill(&mut forms, 0xc8, 0xcf, Form::Plain(0)); // BSWAP
    forms
}

const fn fill(forms: &mut [Form; 256], first: usize, last: usize, form: Form) {
    let mut opcode = first;
    while opcode <= last {
        forms[opcode] = form;
        opcode += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Instructions;
    use super::*;

    /// All opcodes with all ModRM bytes and prefixes are as the disassembler has them, or left to it.
    #[test]
    fn the_disassembler_agrees() {
        let prefixes: [&[u8]; 7] = [&[], &[0x66], &[FS], &[FS, 0x66], &[0xf2], &[0xf3], &[0xf3, 0x66]];
        let rex = (0x40..=0x4f).map(Some).chain([None]);
        let mut usual = 0;
        for (prefix, rex) in rex.flat_map(|rex| prefixes.map(|prefix| (prefix, rex))) {
            for (escape, opcode) in (0..=255).flat_map(|opcode| [(false, opcode), (true, opcode)]) {
                for (mod_rm, sib) in (0..=255).flat_map(|mod_rm| [(mod_rm, 0x25), (mod_rm, 0xa4)]) {
                    let escape: &[u8] = if escape { &[0x0f] } else { &[] };
                    let operands = [opcode, mod_rm, sib, 0xf1, 0x02, 0x83, 0x94];
                    let mut code = [prefix, rex.as_slice(), escape, &operands].concat();
                    code.resize(WINDOW, 0x90);
                    usual += u32::from(is_usual(&code));
                }
            }
        }
        assert!(usual > 5_000_000, "{usual} are usual ones");
    }

    /// It is; then the disassembler agrees.
    fn is_usual(code: &[u8]) -> bool {
        let ip = Avma(0x7fff_0000);
        let (found, plain) = (decode(ip, code), plain_len(code));
        if let Some(len) = plain {
            assert_eq!(found, Some(DecodedInstruction { ip, len, terminator: None }), "{code:02x?}");
        }
        if let Some(found) = found {
            let expect = Instructions::at(ip, code).next_of_disassembler();
            assert_eq!(Ok(found), expect, "{code:02x?}");
        }
        found.is_some()
    }

    #[test]
    fn what_may_be_cut_is_left_to_the_disassembler() {
        assert!(decode(Avma(0), &[0x90; 15]).is_none());
        assert!(decode(Avma(0), &[0x55; 15]).is_none());
        assert!(decode(Avma(0), &[0x55; 16]).is_some_and(|found| found.len == 1));
    }
}
