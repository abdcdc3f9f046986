//! One instruction after the other: how long each is, and where control goes after it.

#[cfg(test)]
mod second_opinion;
mod usual;

use iced_x86::{Decoder, DecoderError, DecoderOptions, Instruction};
use model::Avma;

use crate::apx;
use crate::terminator::{Terminator, Undecoded, terminator_of};

/// An instruction that was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodedInstruction {
    pub(crate) ip: Avma,
    pub(crate) len: u8,
    /// `None` if it falls through.
    pub(crate) terminator: Option<Terminator>,
}

/// The instructions of straight code.
pub(crate) struct Instructions<'a> {
    bytes: &'a [u8],
    /// Where the next one is, as an address and among the bytes.
    ip: Avma,
    position: usize,
    /// Of those that are not [`usual`]: nearly all blocks have none, and a new one costs as much as ten
    /// instructions.
    disassembler: Option<Box<Disassembler<'a>>>,
}

struct Disassembler<'a> {
    decoder: Decoder<'a>,
    instruction: Instruction,
}

impl<'a> Instructions<'a> {
    /// The instructions from `ip` on, where the code is `bytes`.
    pub(crate) fn at(ip: Avma, bytes: &'a [u8]) -> Self {
        Self { bytes, ip, position: 0, disassembler: None }
    }

    /// The next one.
    // In its caller's loop, which of most keeps no more than the length.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<DecodedInstruction, Undecoded> {
        match self.bytes.get(self.position..).and_then(usual::plain_len) {
            Some(len) => Ok(self.pass(DecodedInstruction { ip: self.ip, len, terminator: None })),
            None => self.next_of_others(),
        }
    }

    #[inline(never)]
    fn next_of_others(&mut self) -> Result<DecodedInstruction, Undecoded> {
        match usual::decode(self.ip, self.bytes.get(self.position..).unwrap_or_default()) {
            Some(decoded) => Ok(self.pass(decoded)),
            None => self.next_of_disassembler(),
        }
    }

    /// The next one, by the disassembler.
    pub(crate) fn next_of_disassembler(&mut self) -> Result<DecodedInstruction, Undecoded> {
        let Self { bytes, ip, position, disassembler } = self;
        let Disassembler { decoder, instruction } = &mut **disassembler.get_or_insert_with(|| {
            let decoder = Decoder::with_ip(64, bytes, ip.0, DecoderOptions::NONE);
            Box::new(Disassembler { decoder, instruction: Instruction::default() })
        });
        decoder.set_position(*position).map_err(|_| Undecoded::Missing)?;
        decoder.set_ip(ip.0);
        decoder.decode_out(instruction);
        if !instruction.is_invalid() {
            let terminator = terminator_of(instruction);
            let decoded = DecodedInstruction { ip: *ip, len: instruction.len() as u8, terminator };
            return Ok(self.pass(decoded));
        }
        match decoder.last_error() {
            DecoderError::NoMoreBytes => Err(Undecoded::Missing),
            _ => self.next_of_apx(),
        }
    }

    #[inline]
    fn pass(&mut self, decoded: DecodedInstruction) -> DecodedInstruction {
        self.position += usize::from(decoded.len);
        self.ip = self.ip.plus(decoded.len.into());
        decoded
    }

    /// The disassembler's last instruction: the one given last if decoded by it; invalid if unknown to it.
    pub(crate) fn disassembled(&self) -> Option<&Instruction> {
        self.disassembler.as_ref().map(|disassembler| &disassembler.instruction)
    }

    /// The next one, which the disassembler does not know.
    #[cold]
    fn next_of_apx(&mut self) -> Result<DecodedInstruction, Undecoded> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let (len, terminator) = apx::decode(rest)?;
        if usize::from(len) > rest.len() {
            return Err(Undecoded::Missing);
        }
        Ok(self.pass(DecodedInstruction { ip: self.ip, len, terminator }))
    }
}
