//! The parts of `intel-pt.h` (libipt 2.0) that we use, as C lays them out. `abi_test.rs` holds every size and
//! offset against the header.

use std::ffi::{c_char, c_int, c_void};

/// `struct pt_version`.
#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: u8,
    pub(crate) minor: u8,
    pub(crate) patch: u16,
    pub(crate) build: u32,
    pub(crate) ext: *const c_char,
}

/// `enum pt_cpu_vendor`: Intel.
pub(crate) const VENDOR_INTEL: u32 = 1;

/// `struct pt_cpu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) vendor: u32,
    pub(crate) family: u16,
    pub(crate) model: u8,
    pub(crate) stepping: u8,
}

/// `struct pt_errata`: ten bits that `pt_cpu_errata` sets.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Errata {
    pub(crate) bits: u32,
    pub(crate) reserved: [u32; 15],
}

/// `struct pt_config`.
#[repr(C)]
pub(crate) struct Config {
    pub(crate) size: usize,
    pub(crate) begin: *mut u8,
    pub(crate) end: *mut u8,
    /// `decode.callback` and `decode.context`: not used.
    pub(crate) unknown_packet: [*mut c_void; 2],
    pub(crate) cpu: Cpu,
    pub(crate) errata: Errata,
    pub(crate) cpuid_0x15_eax: u32,
    pub(crate) cpuid_0x15_ebx: u32,
    pub(crate) mtc_freq: u8,
    pub(crate) nom_freq: u8,
    pub(crate) flags: [u32; 4],
    /// `struct pt_conf_addr_filter`: not used.
    pub(crate) addr_filter: [u64; 17],
}

/// `pt_conf_flags.variant.block.end_on_call`, in the first word of [`Config::flags`].
pub(crate) const END_ON_CALL: u32 = 1;

/// `enum pt_insn_class`.
pub(crate) mod class {
    pub(crate) const ERROR: u32 = 0;
    pub(crate) const CALL: u32 = 2;
    pub(crate) const RETURN: u32 = 3;
    pub(crate) const JUMP: u32 = 4;
    pub(crate) const COND_JUMP: u32 = 5;
    pub(crate) const FAR_CALL: u32 = 6;
    pub(crate) const FAR_RETURN: u32 = 7;
    pub(crate) const FAR_JUMP: u32 = 8;
}

/// `struct pt_insn`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Insn {
    pub(crate) ip: u64,
    pub(crate) isid: c_int,
    pub(crate) mode: u32,
    pub(crate) iclass: u32,
    pub(crate) raw: [u8; 15],
    pub(crate) size: u8,
    /// `speculative`, `truncated`.
    pub(crate) bits: u32,
}

/// `struct pt_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Block {
    pub(crate) ip: u64,
    pub(crate) end_ip: u64,
    pub(crate) isid: c_int,
    pub(crate) mode: u32,
    pub(crate) iclass: u32,
    pub(crate) ninsn: u16,
    pub(crate) raw: [u8; 15],
    pub(crate) size: u8,
    /// `speculative`, `truncated`.
    pub(crate) bits: u8,
}

/// `enum pt_event_type`.
pub(crate) mod event {
    pub(crate) const ENABLED: u32 = 0;
    pub(crate) const DISABLED: u32 = 1;
    pub(crate) const ASYNC_DISABLED: u32 = 2;
    pub(crate) const ASYNC_BRANCH: u32 = 3;
    pub(crate) const OVERFLOW: u32 = 6;
    pub(crate) const EXEC_MODE: u32 = 7;
}

/// Bits of [`Event::bits`].
pub(crate) mod event_bits {
    pub(crate) const IP_SUPPRESSED: u32 = 1;
    pub(crate) const STATUS_UPDATE: u32 = 1 << 1;
    pub(crate) const HAS_TSC: u32 = 1 << 2;
}

/// `struct pt_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Event {
    pub(crate) kind: u32,
    pub(crate) bits: u32,
    pub(crate) tsc: u64,
    pub(crate) lost_mtc: u32,
    pub(crate) lost_cyc: u32,
    pub(crate) reserved: [u64; 2],
    /// The union.  Its first address (or mode), and its second.
    pub(crate) variant: [u64; 3],
}

/// `enum pt_status_flag`.
pub(crate) mod status {
    pub(crate) const EVENT_PENDING: c_int = 1;
    pub(crate) const IP_SUPPRESSED: c_int = 1 << 1;
    pub(crate) const EOS: c_int = 1 << 2;
    use super::c_int;
}

/// `enum pt_error_code`, as far as we tell them apart.
pub(crate) mod error {
    use super::c_int;
    pub(crate) const INTERNAL: c_int = 1;
    pub(crate) const BAD_OPC: c_int = 4;
    pub(crate) const BAD_PACKET: c_int = 5;
    pub(crate) const EOS: c_int = 7;
    pub(crate) const NOMAP: c_int = 13;
    pub(crate) const BAD_INSN: c_int = 14;
}
