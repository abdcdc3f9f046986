//! Instructions as text, for listings of code.

use iced_x86::{FastFormatter, Instruction};
use model::Avma;

use crate::instruction::Instructions;
use crate::terminator::Terminator;

/// An instruction of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disassembled {
    /// Its address.
    pub ip: Avma,
    /// Its length in bytes.
    pub len: u8,
    /// Mnemonic and operands; of a direct branch the mnemonic alone.
    pub text: String,
    /// Where a direct branch goes.
    pub target: Option<Avma>,
}

/// The instructions from `ip` on, where the code is `bytes`, up to one that is not known or not whole.
pub fn disassemble(ip: Avma, bytes: &[u8]) -> impl Iterator<Item = Disassembled> + '_ {
    let mut instructions = Instructions::at(ip, bytes);
    let mut formatter = FastFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_uppercase_hex(false);
    options.set_use_hex_prefix(true);
    std::iter::from_fn(move || {
        let decoded = instructions.next_of_disassembler().ok()?;
        let target = match decoded.terminator {
            Some(
                Terminator::Conditional { taken: to } | Terminator::Jump { to } | Terminator::Call { to, .. },
            ) => Some(to),
            _ => None,
        };
        let text = text_of(instructions.disassembled()?, target.is_some(), &mut formatter);
        Some(Disassembled { ip: decoded.ip, len: decoded.len, text, target })
    })
}

fn text_of(instruction: &Instruction, is_direct: bool, formatter: &mut FastFormatter) -> String {
    if instruction.is_invalid() {
        return "(APX)".to_owned(); // of which only length and target are known
    }
    if is_direct {
        return format!("{:?}", instruction.mnemonic()).to_lowercase();
    }
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_listed_up_to_one_that_is_not_whole() {
        // xor eax, eax; cmp [rdi + 8], eax; jne 0x1000; call 0x2000; ret; a part of a move
        let code = b"\x31\xc0\x39\x47\x08\x75\xf9\xe8\xf4\x0f\0\0\xc3\x48\x8b";
        let found: Vec<_> = disassemble(Avma(0x1000), code).collect();
        let of = |one: &Disassembled| (one.ip.0, one.len, one.text.clone(), one.target.map(|to| to.0));
        let expect = [
            (0x1000, 2, "xor eax, eax".to_owned(), None),
            (0x1002, 3, "cmp [rdi+0x8], eax".to_owned(), None),
            (0x1005, 2, "jne".to_owned(), Some(0x1000)),
            (0x1007, 5, "call".to_owned(), Some(0x2000)),
            (0x100c, 1, "ret".to_owned(), None),
        ];
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expect);
    }
}
