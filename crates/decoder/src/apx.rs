//! Instructions of Intel APX, which the disassembler does not know: their lengths, and the branches among
//! them.
//!
//! ```text
//! [prefixes] D5 MRXBwrxb opcode ...       REX2: instructions of legacy maps 0 and 1 (M), registers up to r31
//! D5 00 A1 imm64                          JMPABS
//! [prefixes] 62 P0 P1 P2 opcode ...       EVEX: map 4 has legacy ones with more operands, PUSH2, POP2, CCMP
//! ```
//! Intel, "Advanced Performance Extensions Architecture Specification", "REX2" and "Extended EVEX". No branch
//! is among those of EVEX. What is not listed here stays unknown: a wrong length would be worse.

use iced_x86::{Decoder, DecoderError, DecoderOptions};

use crate::terminator::{Terminator, Undecoded, terminator_of};

/// Bytes of the longest instruction.
const MAX_LEN: usize = 15;
const REX2: u8 = 0xd5;
const EVEX: u8 = 0x62;
/// Bytes of the EVEX prefix and the opcode.
const EVEX_LEN: usize = 5;
/// Bytes of `D5 00 A1 imm64`.
const JMPABS_LEN: u8 = 11;

type Length = (u8, Option<Terminator>);

/// The length of the instruction that `bytes` start with, and where control goes if it does not fall through.
pub(crate) fn decode(bytes: &[u8]) -> Result<Length, Undecoded> {
    let bytes = bytes.get(..MAX_LEN).unwrap_or(bytes);
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    match bytes.get(prefixes..) {
        Some([REX2, payload, opcode, ..]) => rex2(bytes, prefixes, *payload, *opcode),
        Some([EVEX, rest @ ..]) => evex(bytes, prefixes, rest),
        Some([_, _, _, ..]) => Err(Undecoded::Unknown),
        _ if bytes.len() < MAX_LEN => Err(Undecoded::Missing),
        _ => Err(Undecoded::Unknown),
    }
}

const fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3)
}

fn rex2(bytes: &[u8], prefixes: usize, payload: u8, opcode: u8) -> Result<Length, Undecoded> {
    let is_map_1 = payload & 0x80 != 0;
    if opcode == 0xa1 && !is_map_1 {
        let is_jmpabs = prefixes == 0 && payload & 0x08 == 0;
        return match bytes.get(..usize::from(JMPABS_LEN)) {
            // It has a TIP, as an indirect jump has: the operand may be exchanged while it runs (Linux,
            // tools/perf/util/intel-pt-decoder/intel-pt-insn-decoder.c).
            Some(_) if is_jmpabs => Ok((JMPABS_LEN, Some(Terminator::IndirectJump))),
            None if is_jmpabs => Err(Undecoded::Missing),
            _ => Err(Undecoded::Unknown),
        };
    }
    let is_reserved = match opcode >> 4 {
        row if is_map_1 => matches!(row, 0x3 | 0x8),
        0x4 | 0x7 | 0xa | 0xe => true,
        _ => is_prefix(opcode) || matches!(opcode, 0x0f | 0xc4 | 0xc5 | EVEX | REX2),
    };
    if is_reserved {
        return Err(Undecoded::Unknown);
    }
    // The same instruction with REX, which has the same operands but for the registers.
    let mut legacy = bytes.get(..prefixes).unwrap_or_default().to_vec();
    legacy.push(0x40 | payload & 0x0f);
    if is_map_1 {
        legacy.push(0x0f);
    }
    let head = legacy.len();
    legacy.extend(bytes.get(prefixes + 2..).unwrap_or_default());
    let (len, terminator) = known(&legacy)?;
    Ok((len + (prefixes + 2) as u8 - head as u8, terminator))
}

/// An instruction that the disassembler knows.
fn known(bytes: &[u8]) -> Result<Length, Undecoded> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let instruction = decoder.decode();
    match decoder.last_error() {
        DecoderError::None => Ok((instruction.len() as u8, terminator_of(&instruction))),
        DecoderError::NoMoreBytes => Err(Undecoded::Missing),
        _ => Err(Undecoded::Unknown),
    }
}

fn evex(bytes: &[u8], prefixes: usize, rest: &[u8]) -> Result<Length, Undecoded> {
    let [p0, p1, _, opcode, modrm, ..] = *rest else { return Err(Undecoded::Missing) };
    let map = p0 & 7;
    if map != 4 {
        // With base and index below r16, the disassembler knows those of AVX-512.
        let mut below = bytes.to_vec();
        if let Some([_, p0, p1, ..]) = below.get_mut(prefixes..) {
            (*p0, *p1) = (*p0 & !0x08, *p1 | 0x04);
        }
        match known(&below) {
            Err(Undecoded::Unknown) => (),
            found => return found,
        }
    }
    let is_16_bit = p1 & 0x83 == 1; // the prefix 66, and not W
    let immediate = immediate(map, opcode, modrm >> 3 & 7, is_16_bit).ok_or(Undecoded::Unknown)?;
    let operand = rest.get(EVEX_LEN - 1..).unwrap_or_default();
    let len = prefixes + EVEX_LEN + operand_len(operand).ok_or(Undecoded::Missing)? + immediate;
    match bytes.get(..len) {
        Some(_) => Ok((len as u8, None)),
        None if bytes.len() < MAX_LEN => Err(Undecoded::Missing),
        None => Err(Undecoded::Unknown),
    }
}

/// Bytes of an instruction's immediate operand; `reg` is the field of its ModRM byte.
const fn immediate(map: u8, opcode: u8, reg: u8, is_16_bit: bool) -> Option<usize> {
    let operand_size = if is_16_bit { 2 } else { 4 };
    Some(match (map, opcode) {
        (1, 0x90..=0x93) => 0,                                                  // KMOV
        (2, 0x49 | 0x4a | 0x4b | 0xe0..=0xef | 0xf2 | 0xf3 | 0xf5..=0xf7) => 0, // AMX, CMPccXADD, BMI
        (3, 0xf0) => 1,                                                         // RORX
        (4, 0x24 | 0x2c | 0x6b | 0x80 | 0x83 | 0xc0 | 0xc1) => 1,
        (4, 0x69 | 0x81) => operand_size,
        (4, 0xf6) if reg < 2 => 1, // TEST
        (4, 0xf7) if reg < 2 => operand_size,
        (4, 0x8f) if reg != 0 => return None,
        (4, 0xff) if !matches!(reg, 0 | 1 | 6) => return None,
        (4, 0x00..=0x3b) if opcode & 4 == 0 => 0, // ADD to CMP
        (4, 0x40..=0x4f | 0x60 | 0x61 | 0x65 | 0x66 | 0x84 | 0x85 | 0x88 | 0x8a | 0x8b | 0x8f) => 0,
        (4, 0xa5 | 0xad | 0xaf | 0xd0..=0xd3 | 0xf0..=0xf2 | 0xf4..=0xf9 | 0xfc | 0xfe | 0xff) => 0,
        (7, 0xf6 | 0xf8) => 4, // WRMSRNS, RDMSR, URDMSR, UWRMSR
        _ => return None,
    })
}

/// Bytes of ModRM, SIB and displacement; none if they are not all there.
fn operand_len(operand: &[u8]) -> Option<usize> {
    let modrm = *operand.first()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(1);
    }
    let (sib, base) = if rm == 4 { (1, *operand.get(1)? & 7) } else { (0, rm) };
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(1 + sib + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are those that LLVM 22 makes.
    #[rustfmt::skip]
    const KNOWN: &[(&str, &[u8], Option<Terminator>)] = &[
        ("jmpabs $0x1122334455667788", &[0xd5, 0x00, 0xa1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11], Some(Terminator::IndirectJump)),
        ("push %r16", &[0xd5, 0x10, 0x50], None),
        ("{rex2} push %rax", &[0xd5, 0x00, 0x50], None),
        ("pushp %r17", &[0xd5, 0x18, 0x51], None),
        ("push2 %r18, %r19", &[0x62, 0xfc, 0x64, 0x10, 0xff, 0xf2], None),
        ("push2p %r12, %r13", &[0x62, 0xd4, 0x94, 0x18, 0xff, 0xf4], None),
        ("pop2 %r20, %r21", &[0x62, 0xfc, 0x54, 0x10, 0x8f, 0xc4], None),
        ("popp %r22", &[0xd5, 0x18, 0x5e], None),
        ("mov 0x10(%r16,%r17,2), %r18", &[0xd5, 0x78, 0x8b, 0x54, 0x48, 0x10], None),
        ("movl $0x12345678, 0x100(%r20)", &[0xd5, 0x10, 0xc7, 0x84, 0x24, 0x00, 0x01, 0x00, 0x00, 0x78, 0x56, 0x34, 0x12], None),
        ("call *%r16", &[0xd5, 0x10, 0xff, 0xd0], Some(Terminator::IndirectCall)),
        ("call *0x8(%r17)", &[0xd5, 0x10, 0xff, 0x51, 0x08], Some(Terminator::IndirectCall)),
        ("jmp *%r18", &[0xd5, 0x10, 0xff, 0xe2], Some(Terminator::IndirectJump)),
        ("jmp *0x1000(%r19,%r20,8)", &[0xd5, 0x30, 0xff, 0xa4, 0xe3, 0x00, 0x10, 0x00, 0x00], Some(Terminator::IndirectJump)),
        ("imul %r16, %r17", &[0xd5, 0xd8, 0xaf, 0xc8], None),
        ("movzbl (%r21), %eax", &[0xd5, 0x90, 0xb6, 0x45, 0x00], None),
        ("cmove %r16, %r17", &[0xd5, 0xd8, 0x44, 0xc8], None),
        ("add $0x12345678, %r16, %r17", &[0x62, 0xfc, 0xf4, 0x10, 0x81, 0xc0, 0x78, 0x56, 0x34, 0x12], None),
        ("add $0x1234, %r16w, %r17w", &[0x62, 0xfc, 0x75, 0x10, 0x81, 0xc0, 0x34, 0x12], None),
        ("add $5, (%r16), %r17", &[0x62, 0xfc, 0xf4, 0x10, 0x83, 0x00, 0x05], None),
        ("imul $0x12345678, (%r16), %r17", &[0xd5, 0x58, 0x69, 0x08, 0x78, 0x56, 0x34, 0x12], None),
        ("shld $3, %r16, %r17, %r18", &[0x62, 0xec, 0xec, 0x10, 0x24, 0xc1, 0x03], None),
        ("{nf} sub %r16, %r17", &[0x62, 0xec, 0xfc, 0x0c, 0x29, 0xc1], None),
        ("ccmpel {dfv=cf} $0x7f, 0x10(%r16)", &[0x62, 0xfc, 0x0c, 0x04, 0x83, 0x78, 0x10, 0x7f], None),
        ("ccmpel {dfv=cf} $0x12345678, %r16d", &[0x62, 0xfc, 0x0c, 0x04, 0x81, 0xf8, 0x78, 0x56, 0x34, 0x12], None),
        ("ctestzq {dfv=of} $0x12345678, %r16", &[0x62, 0xfc, 0xc4, 0x04, 0xf7, 0xc0, 0x78, 0x56, 0x34, 0x12], None),
        ("cfcmove 0x10(%r18), %r19", &[0x62, 0xec, 0xfc, 0x08, 0x44, 0x5a, 0x10], None),
        ("setzuc %r16b", &[0x62, 0xfc, 0x7f, 0x18, 0x42, 0xc0], None),
        ("inc %r16, %r17", &[0x62, 0xfc, 0xf4, 0x10, 0xff, 0xc0], None),
        ("adcx %r16, %r17, %r18", &[0x62, 0xec, 0xed, 0x10, 0x66, 0xc8], None),
        ("movbe %r16, 0x1000(%r17)", &[0x62, 0xec, 0xfc, 0x08, 0x61, 0x81, 0x00, 0x10, 0x00, 0x00], None),
        ("popcnt %r16, %r17", &[0xf3, 0xd5, 0xd8, 0xb8, 0xc8], None),
        ("crc32q %r16, %r17", &[0x62, 0xec, 0xfc, 0x08, 0xf1, 0xc8], None),
        ("andn (%r16), %r17, %r18", &[0x62, 0xea, 0xf4, 0x00, 0xf2, 0x10], None),
        ("rorx $3, (%r16), %r17", &[0x62, 0xeb, 0xff, 0x08, 0xf0, 0x08, 0x03], None),
        ("mulx %r16, %r17, %r18", &[0x62, 0xea, 0xf7, 0x00, 0xf6, 0xd0], None),
        ("kmovq (%r16), %k1", &[0x62, 0xf9, 0xfc, 0x08, 0x90, 0x08], None),
        ("cmpbexadd %r16, %r17, 0x10(%r18)", &[0x62, 0xea, 0xfd, 0x00, 0xe6, 0x4a, 0x10], None),
        ("vaddps 0x40(%r16,%r17), %zmm1, %zmm2", &[0x62, 0xf9, 0x70, 0x48, 0x58, 0x54, 0x08, 0x01], None),
        ("vmovdqu64 (%r20), %zmm16", &[0x62, 0xe9, 0xfe, 0x48, 0x6f, 0x04, 0x24], None),
        ("bextr %r16, (%r17), %r18", &[0x62, 0xea, 0xfc, 0x00, 0xf7, 0x11], None),
        ("lock incl (%r16)", &[0xf0, 0xd5, 0x10, 0xff, 0x00], None),
        ("movdir64b (%r16), %r17", &[0x62, 0xec, 0x7d, 0x08, 0xf8, 0x08], None),
    ];

    #[test]
    fn lengths_and_branches() {
        for (text, bytes, terminator) in KNOWN {
            let mut longer = bytes.to_vec();
            longer.extend([0x90; MAX_LEN]);
            assert_eq!(decode(&longer), Ok((bytes.len() as u8, *terminator)), "{text}");
            for len in 1..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Err(Undecoded::Missing), "{len} bytes of {text}");
            }
        }
    }

    #[test]
    fn what_is_reserved_stays_unknown() {
        let unknown: [&[u8]; 9] = [
            &[0xd5, 0x00, 0xe8, 0, 0, 0, 0],                   // CALL rel32
            &[0xd5, 0x80, 0x84, 0, 0, 0, 0],                   // JE rel32
            &[0xd5, 0x00, 0x74, 0],                            // JE rel8
            &[0xd5, 0x00, 0x0f, 0x05],                         // SYSCALL by the escape byte
            &[0xd5, 0x00, 0x48, 0x89, 0xc8],                   // REX after REX2
            &[0x66, 0xd5, 0x00, 0xa1, 0, 0, 0, 0, 0, 0, 0, 0], // JMPABS with a prefix
            &[0x62, 0xfc, 0x7c, 0x08, 0xff, 0xd0],             // no CALL in map 4
            &[0x62, 0xfc, 0x7c, 0x08, 0xe8, 0, 0, 0, 0],
            &[0x06, 0x90, 0x90], // PUSH ES
        ];
        for bytes in unknown {
            let mut longer = bytes.to_vec();
            longer.extend([0x90; MAX_LEN]);
            assert_eq!(decode(&longer), Err(Undecoded::Unknown), "{bytes:02x?}");
        }
    }
}
