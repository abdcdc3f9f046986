//! Where a call is seen to begin.
//!
//! A probe is cheap where the kernel carries the instruction out itself: elsewhere the program runs a copy of
//! it, and traps again after it, which costs several times as much and differs more from call to call.  So
//! the probe goes to the first such instruction of the function's first block, if those before it only
//! compute with registers: they take some ns together, and leave the stack pointer at the return address.
//!
//! ```text
//!   f: mov  %rdi,%rbp      computes             f: sub  $24,%rsp     moves the stack pointer:
//!      test %rsi,%rsi      computes                                  the probe stays here
//!      push %rbx           <- the probe
//! ```

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
};
use model::{FileOffset, Svma};

use super::{CodeError, FunctionCode, is_direct_jump, is_emulated};

/// Where the probe of an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// In the object's file.
    pub(super) offset: FileOffset,
    /// Bytes from the function's first instruction; [`BYTES_IN_MAX`] at most.
    pub(super) bytes_in: u8,
    /// The kernel carries its instruction out.
    pub(super) is_emulated: bool,
}

/// The most bytes that a cookie holds.
const BYTES_IN_MAX: u8 = 0x7f;

impl EntryPoint {
    /// Of a function; `body`: all of its instructions, if they are known.
    ///
    /// # Errors
    /// No probe may be placed at the first instruction.
    pub(super) fn of(code: &FunctionCode<'_>, body: Option<&[Instruction]>) -> Result<Self, CodeError> {
        let part = code.parts.first().filter(|part| !part.bytes.is_empty()).ok_or(CodeError::Empty)?;
        let at = code.entry.0.wrapping_sub(part.start.0);
        let bytes = usize::try_from(at).ok().and_then(|at| part.bytes.get(at..)).unwrap_or_default();
        let first = Decoder::with_ip(64, bytes, code.entry.0, DecoderOptions::NONE).decode();
        if first.is_invalid() {
            return Err(CodeError::NoInstruction(code.entry));
        }
        if first.has_lock_prefix() {
            return Err(CodeError::LockedEntry);
        }
        let later = if is_emulated(&first) { Some(0) } else { later(code, bytes, body) };
        let bytes_in = later.unwrap_or_default();
        let offset = part.file_offset.plus(at + u64::from(bytes_in));
        Ok(Self { offset, bytes_in, is_emulated: later.is_some() })
    }
}

/// How far an emulated instruction is that each call comes to once, soon after its begin.
fn later(code: &FunctionCode<'_>, bytes: &[u8], body: Option<&[Instruction]>) -> Option<u8> {
    let mut info = InstructionInfoFactory::new();
    let decoder = Decoder::with_ip(64, bytes, code.entry.0, DecoderOptions::NONE);
    let point = decoder.into_iter().find(|instruction| !only_computes(&mut info, instruction))?;
    let bytes_in = point.ip() - code.entry.0;
    let is_jump = is_direct_jump(&point);
    // A jump may lead out of the function, or back, which the body tells.
    let stays = !is_jump || body.is_some_and(|_| is_inside(code, point.near_branch_target()));
    let is_fit = is_emulated(&point) && !point.is_call_near() && stays;
    let comes_again = body.unwrap_or_default().iter().filter(|i| is_direct_jump(i)).any(|jump| {
        let to = jump.near_branch_target();
        code.entry.0 < to && to <= point.ip()
    });
    // A table of a `switch` may lead anywhere, but not in front of a `push` of the prologue.
    let by_table = is_jump && body.unwrap_or_default().iter().any(is_indirect_jump);
    let bytes_in = u8::try_from(bytes_in).ok().filter(|bytes_in| *bytes_in <= BYTES_IN_MAX);
    bytes_in.filter(|_| is_fit && !comes_again && !by_table)
}

fn is_indirect_jump(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::IndirectBranch
}

/// Of the function, but not its entry.
fn is_inside(code: &FunctionCode<'_>, address: u64) -> bool {
    let is_in = |start: Svma, len: usize| address.wrapping_sub(start.0) < len as u64;
    address != code.entry.0 && code.parts.iter().any(|part| is_in(part.start, part.bytes.len()))
}

/// The instruction takes no time that is worth telling, and leaves the stack pointer: it does not touch
/// memory, and the kernel does not carry it out.
fn only_computes(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    if instruction.is_invalid()
        || instruction.flow_control() != FlowControl::Next
        || is_emulated(instruction)
        || instruction.is_save_restore_instruction()
        || instruction.is_privileged()
    {
        return false;
    }
    let info = info.info(instruction);
    let writes = |access| matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite);
    let moves_stack = info
        .used_registers()
        .iter()
        .any(|used| used.register().full_register() == Register::RSP && writes(used.access()));
    info.used_memory().is_empty() && !moves_stack
}

#[cfg(test)]
mod tests {
    use super::super::{CodePart, Ends, ProbePoints};
    use super::*;

    const START: u64 = 0x1000;

    /// Where calls are seen to begin, and whether that is cheap, if ends are seen at instructions and if
    /// return addresses are rewritten.
    fn entries(bytes: &[u8]) -> [(u64, bool); 2] {
        let part = CodePart { start: Svma(START), file_offset: FileOffset(0x400), bytes };
        let code = FunctionCode { entry: Svma(START), parts: vec![part] };
        [Ends::AtInstructions, Ends::ByReturnAddress].map(|ends| {
            let points = ProbePoints::new(&code, ends).unwrap();
            let mut entries = points.points.iter().filter(|point| point.is_entry());
            let entry = entries.next().unwrap();
            assert_eq!(entries.next(), None);
            let bytes_in = entry.offset.0 - 0x400;
            // The address of the function follows from it.
            assert_eq!(entry.cookie(7, true) >> 25 & 0x7f, bytes_in);
            assert_eq!((entry.cookie(7, true) >> 32, entry.cookie(7, true) >> 24 & 1), (7, 1));
            (bytes_in, points.entry_is_emulated)
        })
    }

    #[test]
    fn a_push_after_what_only_computes_is_the_entry() {
        // endbr64; mov %rdi,%rax; push %rbx; pop %rbx; ret
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xf8, 0x53, 0x5b, 0xc3];
        assert_eq!(entries(&code), [(7, true); 2]);
    }

    #[test]
    fn a_jump_of_the_first_block_is() {
        // mov %rsi,%r9; test %rdi,%rdi; je to the ret; nop; ret
        let code = [0x49, 0x89, 0xf1, 0x48, 0x85, 0xff, 0x74, 1, 0x90, 0xc3];
        assert_eq!(entries(&code), [(6, true); 2]);
    }

    #[test]
    fn what_moves_the_stack_pointer_or_reads_memory_stays_after_the_probe() {
        // sub $8,%rsp; nop; ret, and mov (%rdi),%rax; push %rbx; ret, and ret alone
        assert_eq!(entries(&[0x48, 0x83, 0xec, 8, 0x90, 0xc3]), [(0, false); 2]);
        assert_eq!(entries(&[0x48, 0x8b, 0x07, 0x53, 0xc3]), [(0, false); 2]);
        assert_eq!(entries(&[0xc3]), [(0, false); 2]);
        // A call: mov %edi,%eax; call ahead; ret
        assert_eq!(entries(&[0x89, 0xf8, 0xe8, 0, 0, 0, 0, 0xc3]), [(0, false); 2]);
    }

    #[test]
    fn an_instruction_that_a_call_comes_to_again_is_not() {
        // mov %edi,%eax; test %eax,%eax; je to the ret; jmp to the test; ret
        let code = [0x89, 0xf8, 0x85, 0xc0, 0x74, 2, 0xeb, 0xfa, 0xc3];
        assert_eq!(entries(&code), [(0, false); 2]);
    }

    #[test]
    fn a_jump_that_leaves_the_function_is_not() {
        // test %eax,%eax; je out; ret
        assert_eq!(entries(&[0x85, 0xc0, 0x74, 0x40, 0xc3]), [(0, false); 2]);
    }
}
