//! Functions that do nothing: of a known first instruction, so in assembly.
#![allow(unsafe_code, reason = "assembly is called through a C signature")]

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.func_latency_idle, \"ax\", @progbits",
    ".globl func_latency_idle_push, func_latency_idle_mov",
    "func_latency_idle_push: push rbp",
    "pop rbp",
    "ret",
    "func_latency_idle_mov: mov eax, edi",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn func_latency_idle_push();
    fn func_latency_idle_mov();
}

/// One of them.
pub(crate) struct Idle(unsafe extern "C" fn(), &'static [u8]);

/// The kernel carries its first instruction out.
pub(crate) const PUSH: Idle = Idle(func_latency_idle_push, &[0x55, 0x5d, 0xc3]);
/// The kernel does not.
pub(crate) const MOV: Idle = Idle(func_latency_idle_mov, &[0x89, 0xf8, 0xc3]);

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
