//! Functions that do nothing: of a known first and last instruction, so in assembly.
#![allow(unsafe_code, reason = "assembly is called through a C signature")]

use std::arch::global_asm;

// `int3` keeps what jumps out of a function apart from where it jumps to.
global_asm!(
    ".pushsection .text.func_latency_idle, \"ax\", @progbits",
    "func_latency_idle_push: push rbp",
    "pop rbp",
    "ret",
    "int3",
    "func_latency_idle_nop: .byte 0x0f, 0x1f, 0x44, 0, 0",
    "ret",
    "int3",
    "func_latency_idle_mov: mov eax, edi",
    "ret",
    "int3",
    "func_latency_idle_push_again: push rbp",
    "pop rbp",
    "ret",
    "int3",
    "func_latency_idle_nop_again: .byte 0x0f, 0x1f, 0x44, 0, 0",
    "ret",
    "int3",
    "func_latency_idle_mov_again: mov eax, edi",
    "ret",
    "int3",
    "func_latency_idle_push_jump: push rbp",
    "pop rbp",
    ".byte 0xeb, 1",
    "int3",
    "ret",
    "int3",
    "func_latency_idle_mov_jump: mov eax, edi",
    ".byte 0xeb, 1",
    "int3",
    "ret",
    ".globl func_latency_idle_push, func_latency_idle_nop, func_latency_idle_mov",
    ".globl func_latency_idle_push_again, func_latency_idle_nop_again, func_latency_idle_mov_again",
    ".globl func_latency_idle_push_jump, func_latency_idle_mov_jump",
    ".popsection",
);

unsafe extern "C" {
    fn func_latency_idle_push();
    fn func_latency_idle_nop();
    fn func_latency_idle_mov();
    fn func_latency_idle_push_again();
    fn func_latency_idle_nop_again();
    fn func_latency_idle_mov_again();
    fn func_latency_idle_push_jump();
    fn func_latency_idle_mov_jump();
}

/// One of them.
#[derive(Clone, Copy)]
pub(crate) struct Idle(unsafe extern "C" fn(), &'static [u8]);

/// The kernel carries its first instruction out; it returns.
pub(crate) const PUSH: Idle = Idle(func_latency_idle_push, &[0x55, 0x5d, 0xc3]);
/// Begins with five bytes of `nop`, which some kernels turn into a call.
pub(crate) const NOP: Idle = Idle(func_latency_idle_nop, &[0x0f, 0x1f, 0x44, 0, 0, 0xc3]);
/// The kernel does not carry its first instruction out; it returns.
pub(crate) const MOV: Idle = Idle(func_latency_idle_mov, &[0x89, 0xf8, 0xc3]);
/// Copies of these three, to be probed in another way at the same time.
pub(crate) const AGAIN: [Idle; 3] = [
    Idle(func_latency_idle_push_again, PUSH.1),
    Idle(func_latency_idle_nop_again, NOP.1),
    Idle(func_latency_idle_mov_again, MOV.1),
];
/// Begins like [`PUSH`] and leaves by a jump.
pub(crate) const PUSH_JUMP: Idle = Idle(func_latency_idle_push_jump, &[0x55, 0x5d, 0xeb, 1]);
/// Begins like [`MOV`] and leaves by a jump.
pub(crate) const MOV_JUMP: Idle = Idle(func_latency_idle_mov_jump, &[0x89, 0xf8, 0xeb, 1]);

impl Idle {
    pub(crate) fn call(&self) {
        // SAFETY: it takes nothing, returns nothing, and leaves stack and saved registers as they were.
        unsafe { (self.0)() }
    }

    pub(crate) fn address(&self) -> u64 {
        self.0 as usize as u64
    }

    /// Its code: what the assembler makes of it.
    pub(crate) const fn code(&self) -> &'static [u8] {
        self.1
    }
}
