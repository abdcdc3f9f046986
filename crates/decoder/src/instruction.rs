//! One instruction after the other: how long each is, and where control goes after it.

#[cfg(test)]
mod second_opinion;

use iced_x86::{Decoder, DecoderError, DecoderOptions, Instruction};
use model::Avma;

use crate::apx;
use crate::terminator::{Terminator, Undecoded, terminator_of};

/// An instruction that was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) ip: Avma,
    pub(crate) len: u8,
    /// `None` if it falls through.
    pub(crate) terminator: Option<Terminator>,
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

    /// The one that was given last, as the disassembler has it; invalid if it does not know it.
    pub(crate) fn last(&self) -> &Instruction {
        &self.instruction
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
