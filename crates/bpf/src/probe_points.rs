//! Where a function must be probed: its first instruction or one that soon follows it ([`mod@entry`]), and
//! each instruction with which it can be left.
//!
//! A probe inside of an instruction breaks the program that is probed. So the function's code is divided into
//! instructions from its first byte on, and refused if anything contradicts that: bytes that are none, a jump
//! into the middle of one, an end that is not the function's.

use iced_x86::{Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use model::{FileOffset, Svma};
use thiserror::Error;

use crate::wire::{Action, NONE};

mod entry;
mod region;

use entry::EntryPoint;
pub use region::{CallFrame, RegionPlace};

/// The code of a function.
#[derive(Clone, Debug)]
pub struct FunctionCode<'c> {
    /// Its first instruction; in the first part.
    pub entry: Svma,
    /// Its parts, the one with the entry first: cold code may stand elsewhere.
    pub parts: Vec<CodePart<'c>>,
}

/// Code that stands together.
#[derive(Clone, Copy, Debug)]
pub struct CodePart<'c> {
    /// Where it is linked.
    pub start: Svma,
    /// Where it is in the object's file.
    pub file_offset: FileOffset,
    /// It.
    pub bytes: &'c [u8],
}

/// An instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePoint {
    /// In the object's file.
    pub offset: FileOffset,
    /// `enum action` of `bpf/probes.h`, several of them together.
    actions: u8,
    /// The condition of a jump, as its opcode has it; of a region, with `register`, the words of its frame.
    condition: u8,
    /// The register that says where a jump goes.
    register: u8,
    /// Of an entry: how far it is from the function's first instruction.
    bytes_in: u8,
}

/// How the ends of calls are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// By probes at the instructions with which the function can be left.
    #[default]
    AtInstructions,
    /// By uretprobes: the kernel rewrites the return address of each call, and restores it when it is taken.
    ByReturnAddress,
    /// They are not: a call is told when it is entered, and ends there.
    AtEntry,
    /// Of a region: by a probe where it ends.
    AtMarks,
    /// Of a region that ends only where it begins again: by the probe there.
    AtStarts,
}

/// Where and how a function is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePoints {
    /// By offset.
    pub points: Vec<ProbePoint>,
    /// Whether there are uretprobes, besides.
    pub ends: Ends,
    /// Functions that it calls directly, each once, by address.
    pub callees: Vec<Svma>,
    /// Functions that it jumps to, each once, by address, where the jump says which.
    pub jumps_to: Vec<Svma>,
    /// Bytes of the part with the entry: a jump by register to there does not leave.
    pub first_part_len: u64,
    /// The kernel carries the entry's instruction out by itself; others cost the program another trap.
    pub entry_is_emulated: bool,
}

/// Why a function cannot be probed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CodeError {
    /// It has no code.
    #[error("it has no code that can be read")]
    Empty,
    /// Its bytes are not all instructions.
    #[error(
        "its code is not instructions throughout (at {0}), and a probe inside of one would break the program"
    )]
    NoInstruction(Svma),
    /// The kernel places no probe at an instruction with `lock` (arch/x86/kernel/uprobes.c, `is_prefix_bad`).
    #[error("an instruction that must be probed has a `lock`, where the kernel places no probe")]
    LockedEntry,
    /// No instruction begins at a place that is to be probed.
    #[error("no instruction begins at {0}, and a probe inside of one would break the program")]
    NotAnInstruction(Svma),
    /// The frame of a region is not known, or too large.
    #[error("where the frame stands at {0} is not known from the unwind table")]
    NoFrame(Svma),
    /// A jump contradicts the division into instructions.
    #[error(
        "a jump at {from} leads into the middle of an instruction, to {to}: a probe inside of one would break the program"
    )]
    MiddleOfInstruction {
        /// The jump.
        from: Svma,
        /// Where it leads.
        to: Svma,
    },
}

impl ProbePoint {
    /// A call begins here.
    #[must_use]
    pub const fn is_entry(&self) -> bool {
        self.actions & Action::Entry as u8 != 0
    }

    /// Of the end that a uretprobe at this entry sees.
    pub(crate) const fn returned(self) -> Self {
        Self { actions: Action::Return as u8, condition: NONE, register: NONE, ..self }
    }

    /// The cookie of its probe (`bpf/probes.h`).
    pub(crate) fn cookie(self, function: usize, is_child: bool) -> u64 {
        u64::from(self.actions)
            | u64::from(self.condition) << 8
            | u64::from(self.register) << 16
            | u64::from(is_child) << 24
            | u64::from(self.bytes_in) << 25
            | (function as u64) << 32
    }
}

impl ProbePoints {
    /// Its first instruction is one with which it can be left, or goes back to itself.
    #[must_use]
    pub fn ends_at_entry(&self) -> bool {
        self.points.iter().any(|point| point.is_entry() && point.actions != Action::Entry as u8)
    }

    /// Of a function.
    ///
    /// # Errors
    /// [`CodeError`]: nothing may be probed.
    pub fn new(code: &FunctionCode<'_>, ends: Ends) -> Result<Self, CodeError> {
        match ends {
            Ends::AtInstructions | Ends::AtMarks | Ends::AtStarts => Self::of(code).map(|(points, _)| points),
            Ends::ByReturnAddress => Self::entry_of(code, ends, Action::Entry as u8),
            // The programs do one after the other: they tell of a call that ends where it begins.
            Ends::AtEntry => Self::entry_of(code, ends, Action::Entry as u8 | Action::Return as u8),
        }
    }

    /// Its entry alone: what follows it need not be understood.
    fn entry_of(code: &FunctionCode<'_>, ends: Ends, actions: u8) -> Result<Self, CodeError> {
        let (entry, callees) = match Self::of(code) {
            Ok((body, entry)) => (entry, body.callees),
            Err(_) => (EntryPoint::of(code, None)?, Vec::new()),
        };
        let (offset, bytes_in) = (entry.offset, entry.bytes_in);
        Ok(Self {
            points: vec![ProbePoint { offset, actions, condition: NONE, register: NONE, bytes_in }],
            ends,
            callees,
            // A call goes on there.
            jumps_to: Vec::new(),
            first_part_len: code.parts.first().map_or(0, |first| first.bytes.len() as u64),
            entry_is_emulated: entry.is_emulated,
        })
    }

    /// Finds the points of a function: its entry, and the instructions at which it ends.
    ///
    /// # Errors
    /// [`CodeError`]: nothing may be probed.
    fn of(code: &FunctionCode<'_>) -> Result<(Self, EntryPoint), CodeError> {
        let first = code.parts.first().filter(|part| !part.bytes.is_empty()).ok_or(CodeError::Empty)?;
        let mut instructions = Vec::new();
        for part in &code.parts {
            divide(part, &mut instructions)?;
        }
        if !instructions.iter().any(|instruction| instruction.ip() == code.entry.0) {
            return Err(CodeError::NoInstruction(code.entry));
        }
        let entry = EntryPoint::of(code, Some(&instructions))?;
        let body = Body { code, instructions: &instructions, entry };
        body.check()?;
        let mut points: Vec<ProbePoint> = instructions.iter().filter_map(|i| body.point(i)).collect();
        points.sort_unstable_by_key(|point| point.offset);
        let callees = targets(instructions.iter().filter(|i| i.code() == Code::Call_rel32_64));
        let leaves = |i: &&Instruction| is_direct_jump(i) && body.part_of(i.near_branch_target()).is_none();
        let jumps_to = targets(instructions.iter().filter(leaves));
        let points = Self {
            points,
            ends: Ends::AtInstructions,
            callees,
            jumps_to,
            first_part_len: first.bytes.len() as u64,
            entry_is_emulated: entry.is_emulated,
        };
        Ok((points, entry))
    }
}

/// Where these lead, each once.
fn targets<'i>(branches: impl Iterator<Item = &'i Instruction>) -> Vec<Svma> {
    let mut to: Vec<Svma> = branches.map(|branch| Svma(branch.near_branch_target())).collect();
    to.sort_unstable();
    to.dedup();
    to
}

fn divide(part: &CodePart<'_>, into: &mut Vec<Instruction>) -> Result<(), CodeError> {
    let mut decoder = Decoder::with_ip(64, part.bytes, part.start.0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(CodeError::NoInstruction(Svma(instruction.ip())));
        }
        into.push(instruction);
    }
    Ok(())
}

/// arch/x86/kernel/uprobes.c: `branch_setup_xol_ops` and `push_setup_xol_ops`.
fn is_emulated(instruction: &Instruction) -> bool {
    let is_push = instruction.code() == Code::Push_r64;
    let is_nop = matches!(
        instruction.code(),
        Code::Nopd | Code::Nopw | Code::Nopq | Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64
    );
    is_push
        || is_nop
        || instruction.is_jmp_short_or_near()
        || instruction.is_jcc_short_or_near()
        || instruction.is_call_near()
}

struct Body<'b> {
    code: &'b FunctionCode<'b>,
    instructions: &'b [Instruction],
    entry: EntryPoint,
}

impl Body<'_> {
    fn part_of(&self, address: u64) -> Option<&CodePart<'_>> {
        self.code.parts.iter().find(|part| address.wrapping_sub(part.start.0) < part.bytes.len() as u64)
    }

    /// Jumps inside of the function lead to instructions.
    fn check(&self) -> Result<(), CodeError> {
        let mut starts: Vec<u64> = self.instructions.iter().map(Instruction::ip).collect();
        starts.sort_unstable();
        for jump in self.instructions.iter().filter(|i| is_direct_jump(i)) {
            let to = jump.near_branch_target();
            if self.part_of(to).is_some() && starts.binary_search(&to).is_err() && !self.skips_lock(to) {
                return Err(CodeError::MiddleOfInstruction { from: Svma(jump.ip()), to: Svma(to) });
            }
        }
        Ok(())
    }

    /// `lock` alone is skipped where a program knows that it has one thread.
    fn skips_lock(&self, to: u64) -> bool {
        const LOCK: u8 = 0xf0;
        let before = to.wrapping_sub(1);
        let byte = self.part_of(before).and_then(|part| part.bytes.get((before - part.start.0) as usize));
        byte == Some(&LOCK)
    }

    fn point(&self, instruction: &Instruction) -> Option<ProbePoint> {
        let part = self.part_of(instruction.ip())?;
        let is_entry = instruction.ip() == self.code.entry.0 + u64::from(self.entry.bytes_in);
        let entry = if is_entry { Action::Entry as u8 } else { 0 };
        let way_out = self.way_out(instruction);
        let (action, condition, register) = way_out
            .map_or((0, NONE, NONE), |(action, condition, register)| (action as u8, condition, register));
        let actions = entry | action;
        (actions != 0).then_some(ProbePoint {
            offset: part.file_offset.plus(instruction.ip() - part.start.0),
            actions,
            condition,
            register,
            bytes_in: if is_entry { self.entry.bytes_in } else { 0 },
        })
    }

    /// How control leaves the function here, or goes back to its entry: with which condition, and where the
    /// register says.
    fn way_out(&self, instruction: &Instruction) -> Option<(Action, u8, u8)> {
        match instruction.flow_control() {
            FlowControl::Return => Some((Action::Return, NONE, NONE)),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
                if is_direct_jump(instruction) =>
            {
                let to = instruction.near_branch_target();
                let condition = condition(instruction);
                if to == self.code.entry.0 {
                    return Some((Action::Loop, condition, NONE));
                }
                self.part_of(to).is_none().then_some((Action::Jump, condition, NONE))
            }
            FlowControl::IndirectBranch => {
                indirect(instruction).map(|register| (Action::Jump, NONE, register))
            }
            _ => None,
        }
    }
}

/// `jrcxz` and `loop` are no such jumps: no compiler leaves a function by them.
fn is_direct_jump(instruction: &Instruction) -> bool {
    instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near()
}

/// The low four bits of the opcode of `Jcc` (SDM volume 2, appendix B.1.4.7): iced has them in this order.
fn condition(instruction: &Instruction) -> u8 {
    match instruction.condition_code() {
        ConditionCode::None => NONE,
        condition => condition as u8 - 1,
    }
}

/// The register that an indirect jump goes by, or none; `None` if it is one of a `switch`, by a table with an
/// index.
///
/// Whether it leaves is known when it is made: only then is the stack pointer what it was at the entry.
fn indirect(jump: &Instruction) -> Option<u8> {
    if jump.op0_kind() == OpKind::Register {
        return Some(jump.op0_register().number() as u8);
    }
    (jump.memory_index() == Register::None).then_some(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    fn points(bytes: &[u8]) -> Result<Vec<(u64, u8, u8, u8)>, CodeError> {
        let part = CodePart { start: Svma(START), file_offset: FileOffset(0x400), bytes };
        let code = FunctionCode { entry: Svma(START), parts: vec![part] };
        let points = ProbePoints::new(&code, Ends::AtInstructions)?.points;
        Ok(points.into_iter().map(|p| (p.offset.0 - 0x400, p.actions, p.condition, p.register)).collect())
    }

    #[test]
    fn entry_and_returns() {
        // push %rbp; pop %rbp; ret; ret $8
        assert_eq!(
            points(&[0x55, 0x5d, 0xc3, 0xc2, 8, 0]),
            Ok(vec![(0, 1, NONE, NONE), (2, 2, NONE, NONE), (3, 2, NONE, NONE)])
        );
        assert_eq!(points(&[0xc3]), Ok(vec![(0, 3, NONE, NONE)]));
    }

    #[test]
    fn jumps_that_leave_and_jumps_to_the_entry() {
        // nop; je out; jg entry; jmp to the nop after; nop; jmp out
        let code = [0x90, 0x0f, 0x84, 0, 1, 0, 0, 0x7f, 0xf7, 0xeb, 1, 0x90, 0xe9, 0, 1, 0, 0];
        assert_eq!(
            points(&code),
            Ok(vec![(0, 1, NONE, NONE), (1, 4, 4, NONE), (7, 8, 15, NONE), (12, 4, NONE, NONE)])
        );
    }

    #[test]
    fn indirect_jumps() {
        // jmp *%rax; jmp *%r11; jmp *0x10(%rdi); jmp *(,%rax,8) is a switch; jmp *disp(%rip)
        let code = [
            &[0xff, 0xe0][..],
            &[0x41, 0xff, 0xe3],
            &[0xff, 0x67, 0x10],
            &[0xff, 0x24, 0xc5, 0, 0, 0, 0],
            &[0xff, 0x25, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(
            points(&code),
            Ok(vec![(0, 5, NONE, 0), (2, 4, NONE, 11), (5, 4, NONE, NONE), (15, 4, NONE, NONE)])
        );
    }

    #[test]
    fn a_cold_part_is_part_of_the_function() {
        // jmp cold; ret    cold: jmp back; ret
        let hot = CodePart {
            start: Svma(0x1000),
            file_offset: FileOffset(0),
            bytes: &[0xe9, 0xfb, 0x0f, 0, 0, 0xc3],
        };
        let cold = CodePart {
            start: Svma(0x2000),
            file_offset: FileOffset(0x800),
            bytes: &[0xe9, 0, 0xf0, 0xff, 0xff, 0xc3],
        };
        let points =
            ProbePoints::of(&FunctionCode { entry: Svma(0x1000), parts: vec![hot, cold] }).unwrap().0.points;
        assert_eq!(
            points.iter().map(|p| (p.offset.0, p.actions)).collect::<Vec<_>>(),
            [(0, 1), (5, 2), (0x805, 2)]
        );
    }

    #[test]
    fn what_is_not_instructions_throughout_is_refused() {
        assert_eq!(points(&[]), Err(CodeError::Empty));
        assert_eq!(points(&[0x90, 0x06, 0xc3]), Err(CodeError::NoInstruction(Svma(0x1001))));
        assert_eq!(points(&[0x90, 0xe8, 0]), Err(CodeError::NoInstruction(Svma(0x1001))));
        // jmp into the middle of mov $imm32, %eax
        let middle = CodeError::MiddleOfInstruction { from: Svma(0x1000), to: Svma(0x1003) };
        assert_eq!(points(&[0xeb, 1, 0xb8, 0, 0, 0, 0, 0xc3]), Err(middle));
        assert_eq!(points(&[0xf0, 0xff, 0x07, 0xc3]), Err(CodeError::LockedEntry)); // lock incl (%rdi)
        // je after the lock of lock cmpxchg
        assert!(points(&[0x74, 1, 0xf0, 0x0f, 0xb1, 0x0f, 0xc3]).is_ok());
    }

    /// A uretprobe needs no more of a function than its first instruction.
    #[test]
    fn the_entry_alone_of_code_that_is_not_instructions_throughout() {
        let bytes = [0x55, 0x06, 0xc3]; // push %rbp; nothing; ret
        let part = CodePart { start: Svma(START), file_offset: FileOffset(0x400), bytes: &bytes };
        let code = FunctionCode { entry: Svma(START), parts: vec![part] };
        let points = ProbePoints::new(&code, Ends::ByReturnAddress).unwrap();
        assert_eq!((points.points.len(), points.points[0].offset), (1, FileOffset(0x400)));
        assert!(points.points[0].is_entry() && points.entry_is_emulated && points.callees.is_empty());
        assert!(ProbePoints::new(&code, Ends::AtInstructions).is_err());
    }

    /// The programs begin the call and end it, one after the other.
    #[test]
    fn a_call_that_is_told_at_its_entry_has_one_probe() {
        let bytes = [0x55, 0x5d, 0xc3]; // push %rbp; pop %rbp; ret
        let part = CodePart { start: Svma(START), file_offset: FileOffset(0x400), bytes: &bytes };
        let code = FunctionCode { entry: Svma(START), parts: vec![part] };
        let points = ProbePoints::new(&code, Ends::AtEntry).unwrap();
        let actions: Vec<_> = points.points.iter().map(|p| (p.offset.0, p.actions, p.is_entry())).collect();
        assert_eq!((actions, points.ends), (vec![(0x400, 3, true)], Ends::AtEntry));
    }

    #[test]
    fn functions_that_it_jumps_to_each_once() {
        // je 0x1100; jmp 0x1100; jmp *%rax; jmp to the je
        let code = [0x0f, 0x84, 0xfa, 0, 0, 0, 0xe9, 0xf5, 0, 0, 0, 0xff, 0xe0, 0xeb, 0xf1];
        let part = CodePart { start: Svma(START), file_offset: FileOffset(0), bytes: &code };
        let points = ProbePoints::of(&FunctionCode { entry: Svma(START), parts: vec![part] }).unwrap().0;
        assert_eq!(points.jumps_to, [Svma(0x1100)]);
    }

    #[test]
    fn callees_each_once() {
        // call 0x1100; call 0x1100; call *%rax; ret
        let code = [0xe8, 0xfb, 0, 0, 0, 0xe8, 0xf6, 0, 0, 0, 0xff, 0xd0, 0xc3];
        let part = CodePart { start: Svma(START), file_offset: FileOffset(0), bytes: &code };
        let points = ProbePoints::of(&FunctionCode { entry: Svma(START), parts: vec![part] }).unwrap().0;
        assert_eq!(points.callees, [Svma(0x1100)]);
        assert_eq!((points.first_part_len, points.entry_is_emulated), (13, true));
    }
}
