//! Our layouts against the C compiler's, of the installed header.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use crate::abi::{self, Block, Config, Cpu, Errata, Event, Insn, Version};

/// A C expression, and what it must be.
fn expected() -> Vec<(String, u64)> {
    let mut all = Vec::new();
    let mut add = |c: &str, rust: usize| all.push((c.to_owned(), rust as u64));
    macro_rules! layout {
        ($rust:ident = $c:literal: $($field:ident = $member:literal),* $(,)?) => {
            add(concat!("sizeof(struct ", $c, ")"), size_of::<$rust>());
            $(add(concat!("offsetof(struct ", $c, ", ", $member, ")"), offset_of!($rust, $field));)*
        };
    }
    layout!(Version = "pt_version": major = "major", minor = "minor", patch = "patch", build = "build", ext = "ext");
    layout!(Cpu = "pt_cpu": vendor = "vendor", family = "family", model = "model", stepping = "stepping");
    layout!(Errata = "pt_errata": reserved = "reserved");
    layout!(Config = "pt_config": size = "size", begin = "begin", end = "end", unknown_packet = "decode", cpu = "cpu",
        errata = "errata", cpuid_0x15_eax = "cpuid_0x15_eax", cpuid_0x15_ebx = "cpuid_0x15_ebx",
        mtc_freq = "mtc_freq", nom_freq = "nom_freq", flags = "flags", addr_filter = "addr_filter");
    layout!(Insn = "pt_insn": ip = "ip", isid = "isid", mode = "mode", iclass = "iclass", raw = "raw", size = "size");
    layout!(Block = "pt_block": ip = "ip", end_ip = "end_ip", isid = "isid", mode = "mode", iclass = "iclass",
        ninsn = "ninsn", raw = "raw", size = "size");
    layout!(Event = "pt_event": kind = "type", tsc = "tsc", lost_mtc = "lost_mtc", lost_cyc = "lost_cyc",
        reserved = "reserved", variant = "variant");
    let variant = offset_of!(Event, variant);
    for (member, word) in [
        ("enabled.ip", 0),
        ("disabled.ip", 0),
        ("async_disabled.at", 0),
        ("async_disabled.ip", 1),
        ("async_branch.from", 0),
        ("async_branch.to", 1),
        ("overflow.ip", 0),
        ("exec_mode.ip", 1),
    ] {
        add(&format!("offsetof(struct pt_event, variant.{member})"), variant + 8 * word);
    }
    constants(&mut |c, rust| all.push((c.to_owned(), rust)));
    all
}

fn constants(add: &mut dyn FnMut(&str, u64)) {
    for (name, value) in [
        ("pcv_intel", abi::VENDOR_INTEL),
        ("ptic_error", abi::class::ERROR),
        ("ptic_call", abi::class::CALL),
        ("ptic_return", abi::class::RETURN),
        ("ptic_jump", abi::class::JUMP),
        ("ptic_cond_jump", abi::class::COND_JUMP),
        ("ptic_far_call", abi::class::FAR_CALL),
        ("ptic_far_return", abi::class::FAR_RETURN),
        ("ptic_far_jump", abi::class::FAR_JUMP),
        ("ptev_enabled", abi::event::ENABLED),
        ("ptev_disabled", abi::event::DISABLED),
        ("ptev_async_disabled", abi::event::ASYNC_DISABLED),
        ("ptev_async_branch", abi::event::ASYNC_BRANCH),
        ("ptev_overflow", abi::event::OVERFLOW),
        ("ptev_exec_mode", abi::event::EXEC_MODE),
        ("((struct pt_conf_flags) { .variant.block.end_on_call = 1 }).variant.reserved[0]", abi::END_ON_CALL),
        ("bits((struct pt_event) { .ip_suppressed = 1 })", abi::event_bits::IP_SUPPRESSED),
        ("bits((struct pt_event) { .status_update = 1 })", abi::event_bits::STATUS_UPDATE),
        ("bits((struct pt_event) { .has_tsc = 1 })", abi::event_bits::HAS_TSC),
    ] {
        add(name, u64::from(value));
    }
    for (name, value) in [
        ("pts_event_pending", abi::status::EVENT_PENDING),
        ("pts_ip_suppressed", abi::status::IP_SUPPRESSED),
        ("pts_eos", abi::status::EOS),
        ("pte_internal", abi::error::INTERNAL),
        ("pte_bad_opc", abi::error::BAD_OPC),
        ("pte_bad_packet", abi::error::BAD_PACKET),
        ("pte_eos", abi::error::EOS),
        ("pte_nomap", abi::error::NOMAP),
        ("pte_bad_insn", abi::error::BAD_INSN),
    ] {
        add(name, value.unsigned_abs().into());
    }
}

#[test]
fn layouts_are_those_of_the_header() {
    let expected = expected();
    // The flags of an event stand after its type.
    let mut source = "#include <intel-pt.h>\n#include <stddef.h>\n#include <stdio.h>\n\
        static unsigned bits(struct pt_event e) { return ((unsigned *) &e)[1]; }\nint main(void) {\n"
        .to_owned();
    for (c, _) in &expected {
        let _ = writeln!(source, "    printf(\"%llu\\n\", (unsigned long long) ({c}));");
    }
    source.push_str("    return 0;\n}\n");
    let directory = tempfile::tempdir().unwrap();
    let (file, program) = (directory.path().join("probe.c"), directory.path().join("probe"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&file).status().unwrap();
    assert!(compiled.success(), "the probe does not compile");
    let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let found: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(found.len(), expected.len());
    for ((c, rust), c_value) in expected.iter().zip(found) {
        assert_eq!(*rust, c_value, "{c}");
    }
}
