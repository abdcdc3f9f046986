//! How the trace was recorded, in libipt's words.

use model::Recording;

use crate::abi::{Config, Cpu, Errata, VENDOR_INTEL};
use crate::sys;

/// The configuration of a recording's decoders, without the bytes of trace.
pub(crate) fn config(recording: &Recording<'_>) -> Config {
    let pt = &recording.pt;
    let cpu = recording.cpu_model.and_then(|cpu| {
        let narrow = |n: u32| u8::try_from(n).ok();
        let (family, model, stepping) =
            (u16::try_from(cpu.family).ok()?, narrow(cpu.model)?, narrow(cpu.stepping)?);
        Some(Cpu { vendor: VENDOR_INTEL, family, model, stepping })
    });
    let (ebx, eax) = pt.tsc_ctc_ratio;
    Config {
        size: size_of::<Config>(),
        begin: std::ptr::null_mut(),
        end: std::ptr::null_mut(),
        unknown_packet: [std::ptr::null_mut(); 2],
        cpu: cpu.unwrap_or_default(),
        errata: cpu.as_ref().map_or_else(Errata::default, sys::errata),
        cpuid_0x15_eax: eax,
        cpuid_0x15_ebx: ebx,
        mtc_freq: pt.mtc_period.unwrap_or(0),
        // 0: libipt then calibrates CYC with MTC only.
        nom_freq: u8::try_from(pt.max_nonturbo_ratio).unwrap_or(0),
        flags: [0; 4],
        addr_filter: [0; 17],
    }
}
