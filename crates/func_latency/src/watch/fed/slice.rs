//! The program that is watched, and trace of a slice of its time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use model::Ns;
use packet::{IpPayload, Packet, Tnt};

/// Where the program's text is: `outer` and, 32 bytes further, `f`.
pub(super) const TEXT: u64 = 0x40_1000;
pub(super) const AFTER_CALL: u64 = TEXT + 5;
const SOURCE: &str = "
    .globl outer, f
    .type outer, @function
    .type f, @function
outer: call f
    jmp outer
    .size outer, . - outer
    .balign 32
f:  dec %ecx
    jnz f
    ret
    .size f, . - f
";
pub(super) const BUILD_ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];

/// Links the program.
pub(super) fn program(directory: &Path) -> PathBuf {
    let (source, program) = (directory.join("program.s"), directory.join("program"));
    fs::write(&source, SOURCE).unwrap();
    let mut link = Command::new("gcc");
    link.args(["-nostdlib", "-static", "-Wl,--build-id=0xabcdef01", "-Wl,--entry=outer", "-o"]);
    link.arg(&program).arg(format!("-Wl,-Ttext={TEXT:#x}")).arg(&source);
    assert!(link.status().unwrap().success());
    program
}

/// The trace of a slice but for its time, of which a TSC tick is a ns.
pub(super) struct Slice {
    pub(super) bytes: Vec<u8>,
    pub(super) calls: u64,
    pub(super) length_ns: u64,
}

/// Where the time of a slice is: in the TSC packet after the PSB.
const TSC_AT: usize = packet::PSB.len() + 1;

impl Slice {
    /// Calls of 200 to 1000 iterations, by dice, in at least `size` bytes. The thread is switched out at
    /// `last`.
    pub(super) fn new(dice: &mut u64, size: usize, last: u64) -> Self {
        let mut roll = |sides: u64| {
            *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*dice >> 33) % sides
        };
        let ip = |value| IpPayload { ip_bytes: 6, value };
        let mode = Packet::ModeExec { long: true, default_32: false, interrupts: false };
        let head = [
            Packet::Psb,
            Packet::Tsc(0),
            Packet::Cbr(20),
            mode,
            Packet::PsbEnd,
            Packet::TipPge(ip(AFTER_CALL)),
        ];
        let (mut bytes, mut calls, mut length_ns) = (Vec::new(), 0, 100);
        let mut put = |packet: Packet| {
            packet::encode(&packet, &mut bytes);
            bytes.len()
        };
        head.into_iter().for_each(|packet| _ = put(packet));
        let mut end = 0;
        while end < size {
            // Each jump back is taken, but for the last one; the return is compressed.
            let iterations = 200 + roll(800);
            let cycles = iterations + roll(64);
            put(Packet::Cyc(8));
            for _ in 0..iterations / 6 {
                put(Packet::Tnt(Tnt::new(0x3f, 6)));
            }
            let rest = (iterations % 6) as u8;
            if rest > 0 {
                put(Packet::Tnt(Tnt::new(0x3f, rest)));
            }
            put(Packet::Cyc(cycles));
            end = put(Packet::Tnt(Tnt::new(0b01, 2)));
            calls += 1;
            length_ns += 8 + cycles;
        }
        put(Packet::Fup(ip(last)));
        put(Packet::TipPgd(IpPayload { ip_bytes: 0, value: 0 }));
        // PADs up to whole words, as a recorder has them.
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Self { bytes, calls, length_ns }
    }

    /// Its bytes, with a time in the TSC packet.
    pub(super) fn at(&mut self, time: Ns) -> &[u8] {
        self.bytes[TSC_AT..TSC_AT + 7].copy_from_slice(&time.0.to_le_bytes()[..7]);
        &self.bytes
    }
}
