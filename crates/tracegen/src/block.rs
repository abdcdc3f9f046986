//! Blocks of the emulator, and what their last instruction does.
//!
//! The instruction is told by hand-written rules, not by the library that the decoder under test uses: the
//! ground truth must not share its mistakes.

use model::Avma;

use crate::sigreturn::{Came, Onward};

/// What the last instruction of a block does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// Nothing: control goes on after it.
    FallThrough,
    /// Conditional jump (also `loop`, `jrcxz`).
    Conditional,
    /// Direct jump.
    Jump,
    /// Direct call.
    Call,
    /// Near return.
    Return,
    /// Indirect jump.
    IndirectJump,
    /// Indirect call.
    IndirectCall,
    /// `syscall`.
    Syscall,
    /// `sysret`, `iret`: back to user code.
    FarReturn,
    /// `ud2`: it faults, and is never executed.
    Invalid,
}

/// A translated block, at the addresses of the simulated recording.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First instruction.
    pub start: Avma,
    /// Last instruction.
    pub last: Avma,
    /// After the last instruction.
    pub end: Avma,
    /// Where a direct branch goes.
    pub target: Avma,
    /// Number of instructions.
    pub instructions: u32,
    /// Function of the first instruction: equal numbers, same function.
    pub first_function: u32,
    /// Function of the last instruction.
    pub last_function: u32,
    /// What the last instruction does.
    pub terminator: Terminator,
    /// The signals that it handles, if it is the first block of a handler.
    pub signal_handler: Option<Signals>,
    /// A file mapping explains it.
    pub mapped: bool,
}

/// The signals that a handler is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// An instruction raises them: `SIGSEGV` and the like.
    Faults,
    /// They come from outside.
    Events,
    /// Some of each.
    Both,
}

impl Block {
    /// Its last instruction is one of its own: one that crosses a page may begin the next block only.
    pub(crate) fn is_last_whole(&self) -> bool {
        self.last != self.end
    }

    /// A call to the next instruction (to learn the instruction pointer): hardware does not push it.
    pub(crate) fn calls_next_instruction(&self) -> bool {
        self.target == self.end
    }

    /// Whether a handler of `signals` that began after this block, and let it go on at `resume`, came because
    /// the instruction there faulted; otherwise the block was executed to its end.
    ///
    /// The emulator logs a block when it begins, and delivers what comes from outside only between two: a
    /// recursive function may return to the beginning of the block that returns.  A handler of both kinds is
    /// taken for one of events where the block's last instruction branches to `resume`.
    pub(crate) fn faulted_at(&self, resume: Avma, signals: Signals) -> bool {
        let branches_there = match self.terminator {
            Terminator::Conditional | Terminator::Jump | Terminator::Call => self.target == resume,
            _ => false,
        };
        let came_from_outside = match signals {
            Signals::Faults => false,
            Signals::Events => true,
            Signals::Both => branches_there,
        };
        (self.start..=self.last).contains(&resume) && !came_from_outside
    }
}

impl Block {
    /// Where a handler of `signals` that comes after this block may return to, if its last instruction tells.
    /// What has faulted is not known.
    pub(crate) fn goes_on(&self, signals: Signals) -> Option<Onward> {
        if signals != Signals::Events {
            return None;
        }
        match self.terminator {
            Terminator::Jump | Terminator::Call => Some(Onward::only(self.target)),
            Terminator::Conditional => Some(Onward::either(self.target, self.end)),
            // A string instruction goes on with its repetitions, and a system call may be made again.
            Terminator::FallThrough | Terminator::Syscall => Some(Onward::either(self.last, self.end)),
            _ => None,
        }
    }

    /// Where a handler of `signals` that comes after this block has come.
    pub(crate) fn came(&self, signals: Signals) -> Came {
        match self.goes_on(signals) {
            Some(onward) => Came::At(onward),
            None if signals == Signals::Events && self.terminator == Terminator::IndirectJump => Came::ByJump,
            None => Came::Anywhere,
        }
    }
}

/// The kind of an instruction, and the displacement of a direct branch.
///
/// `None`: the bytes end too early.  QEMU 7.2 reports an instruction that crosses a page, and is not the
/// first of its block, as a last instruction of which it has only the bytes read so far; it was not
/// translated, and the next block starts with it.
#[must_use]
pub fn classify(bytes: &[u8]) -> Option<(Terminator, i64)> {
    let mut code = bytes;
    while let [0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65, rest @ ..] = code {
        code = rest;
    }
    if let [0x40..=0x4f, rest @ ..] = code {
        code = rest; // REX
    }
    let (&opcode, operands) = code.split_first()?;
    Some(match opcode {
        0x70..=0x7f | 0xe0..=0xe3 => (Terminator::Conditional, displacement_8(operands)?),
        0x0f => match *operands.first()? {
            0x80..=0x8f => (Terminator::Conditional, displacement_32(operands.get(1..)?)?),
            0x05 => (Terminator::Syscall, 0),
            0x0b => (Terminator::Invalid, 0),
            _ => (Terminator::FallThrough, 0),
        },
        0xe8 => (Terminator::Call, displacement_32(operands)?),
        0xe9 => (Terminator::Jump, displacement_32(operands)?),
        0xeb => (Terminator::Jump, displacement_8(operands)?),
        0xc3 => (Terminator::Return, 0),
        0xc2 => {
            operands.get(1)?;
            (Terminator::Return, 0)
        }
        0xff => (group_5(operands)?, 0),
        _ => (Terminator::FallThrough, 0),
    })
}

fn displacement_8(bytes: &[u8]) -> Option<i64> {
    bytes.first().map(|&b| i64::from(b as i8))
}

fn displacement_32(bytes: &[u8]) -> Option<i64> {
    bytes.first_chunk().map(|b| i64::from(i32::from_le_bytes(*b)))
}

/// Opcode ff: `operands` starts with the ModRM byte and must hold all of the operand.
fn group_5(operands: &[u8]) -> Option<Terminator> {
    let &modrm = operands.first()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let (mut base, mut len) = (rm, 1);
    if mode != 3 && rm == 4 {
        base = operands.get(1)? & 7; // SIB
        len += 1;
    }
    len += match mode {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    operands.get(..len)?;
    Some(match modrm >> 3 & 7 {
        2 => Terminator::IndirectCall,
        4 => Terminator::IndirectJump,
        _ => Terminator::FallThrough,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_instructions() {
        use Terminator::*;
        let table: &[(&[u8], Terminator, i64)] = &[
            (&[0x74, 0x10], Conditional, 16),                         // je
            (&[0x0f, 0x85, 0xfe, 0xff, 0xff, 0xff], Conditional, -2), // jne
            (&[0x2e, 0x0f, 0x84, 1, 0, 0, 0], Conditional, 1),        // je with hint
            (&[0xe2, 0xf0], Conditional, -16),                        // loop
            (&[0x67, 0xe3, 0x05], Conditional, 5),                    // jecxz
            (&[0xeb, 0x80], Jump, -128),
            (&[0xe9, 0, 1, 0, 0], Jump, 256),
            (&[0xf2, 0xe9, 0, 1, 0, 0], Jump, 256), // bnd jmp
            (&[0xe8, 0xfb, 0xff, 0xff, 0xff], Call, -5),
            (&[0x67, 0xe8, 0, 0, 0, 0], Call, 0), // addr32 call (relaxed TLS)
            (&[0xc3], Return, 0),
            (&[0xf3, 0xc3], Return, 0), // repz ret
            (&[0xc2, 8, 0], Return, 0),
            (&[0xff, 0xe0], IndirectJump, 0),                   // jmp *%rax
            (&[0x3e, 0xff, 0xe0], IndirectJump, 0),             // notrack
            (&[0x41, 0xff, 0xe3], IndirectJump, 0),             // jmp *%r11
            (&[0xf2, 0xff, 0x25, 1, 2, 3, 4], IndirectJump, 0), // bnd jmp *x(%rip)
            (&[0xff, 0x24, 0xc5, 1, 2, 3, 4], IndirectJump, 0), // jmp *table(,%rax,8)
            (&[0xff, 0xd0], IndirectCall, 0),
            (&[0xff, 0x50, 0x18], IndirectCall, 0), // call *0x18(%rax)
            (&[0x41, 0xff, 0x94, 0x24, 1, 0, 0, 0], IndirectCall, 0), // call *1(%r12)
            (&[0xff, 0x15, 1, 2, 3, 4], IndirectCall, 0),
            (&[0xff, 0x30], FallThrough, 0), // push (%rax)
            (&[0x0f, 0x05], Syscall, 0),
            (&[0x0f, 0x0b], Invalid, 0), // ud2
            (&[0x90], FallThrough, 0),
            (&[0x48, 0x89, 0xe5], FallThrough, 0),
            (&[0xf3, 0x48, 0xab], FallThrough, 0), // rep stos
        ];
        for (bytes, terminator, displacement) in table {
            assert_eq!(classify(bytes), Some((*terminator, *displacement)), "{bytes:02x?}");
        }
    }

    /// From 0x100 to 0x109.
    fn block(terminator: Terminator, target: u64) -> Block {
        Block {
            start: Avma(0x100),
            last: Avma(0x108),
            end: Avma(0x109),
            target: Avma(target),
            instructions: 4,
            first_function: 1,
            last_function: 1,
            terminator,
            signal_handler: None,
            mapped: true,
        }
    }

    #[test]
    fn where_a_handler_returns_to_follows_from_the_last_instruction() {
        let goes_on = |terminator| block(terminator, 0x200).goes_on(Signals::Events);
        let (last, end, target) = (Avma(0x108), Avma(0x109), Avma(0x200));
        assert_eq!(goes_on(Terminator::Call), Some(Onward::only(target)));
        assert_eq!(goes_on(Terminator::Conditional), Some(Onward::either(target, end)));
        assert_eq!(goes_on(Terminator::Syscall), Some(Onward::either(last, end)));
        assert_eq!(goes_on(Terminator::Return), None);
        assert_eq!(block(Terminator::Call, 0x200).goes_on(Signals::Both), None);
    }

    #[test]
    fn a_handler_that_goes_on_inside_the_block_was_called_by_a_fault() {
        let returns = block(Terminator::Return, 0x109);
        for signals in [Signals::Faults, Signals::Both] {
            let faults = [0xff, 0x100, 0x104, 0x108, 0x109].map(|ip| returns.faulted_at(Avma(ip), signals));
            assert_eq!(faults, [false, true, true, true, false]);
        }
        // A recursive function returned to where its caller goes on, in the code that returns.
        assert!(!returns.faulted_at(Avma(0x100), Signals::Events));
        let loops = block(Terminator::Conditional, 0x100);
        let both = |ip| loops.faulted_at(Avma(ip), Signals::Both);
        assert!(!both(0x100) && both(0x104) && loops.faulted_at(Avma(0x100), Signals::Faults));
    }

    #[test]
    fn cut_instructions_are_not_guessed() {
        let whole: &[&[u8]] = &[
            &[0x74, 0x10],
            &[0x0f, 0x85, 1, 2, 3, 4],
            &[0xe8, 1, 2, 3, 4],
            &[0xc2, 8, 0],
            &[0x41, 0xff, 0x94, 0x24, 1, 0, 0, 0],
            &[0xff, 0x24, 0xc5, 1, 2, 3, 4],
            &[0xff, 0x50, 0x18],
        ];
        for bytes in whole {
            for cut in 0..bytes.len() {
                assert_eq!(classify(&bytes[..cut]), None, "{:02x?}", &bytes[..cut]);
            }
        }
    }
}
