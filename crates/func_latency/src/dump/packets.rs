//! Packets: `buffer offset packet`.

use std::io::{self, Write};

use decoder::packets;
use model::{AuxBuffer, AuxOffset, AuxOwner, Ns, Recording, Tsc, TscClock};
use packet::{Packet, PacketError};

use crate::config::DumpConfig;
use crate::filter::{TidSet, TimeWindow};
use crate::messages;

pub(super) fn dump(out: &mut dyn Write, recording: &Recording<'_>, config: &DumpConfig) -> io::Result<()> {
    let per_cpu = |b: &AuxBuffer<'_>| matches!(b.owner, AuxOwner::Cpu(_));
    if config.tids != TidSet::default() && recording.buffers.iter().any(per_cpu) {
        messages::note("the buffers are per CPU and hold all threads' packets: -T leaves none out");
    }
    let window = config.window.zip(recording.clock);
    if config.window.is_some() && window.is_none() {
        messages::warn("the recording does not say how its clock relates to perf's: --ti leaves nothing out");
    }
    for buffer in &recording.buffers {
        if matches!(buffer.owner, AuxOwner::Thread(tid) if !config.tids.contains(tid)) {
            continue;
        }
        match window {
            Some((window, clock)) => in_window(out, buffer, window, clock, recording.tsc_near(clock))?,
            None => {
                for (at, packet) in packets(&buffer.pieces) {
                    line(out, buffer.index, at, &packet)?;
                }
            }
        }
    }
    Ok(())
}

/// The stretches from one TSC packet to the next that overlap the window.
fn in_window(
    out: &mut dyn Write,
    buffer: &AuxBuffer<'_>,
    window: TimeWindow,
    clock: TscClock,
    near: Tsc,
) -> io::Result<()> {
    // A second reader runs ahead to where a stretch ends.
    let mut ahead = packets(&buffer.pieces).filter_map(|(at, packet)| match packet {
        Ok(Packet::Tsc(tsc)) => Some((at, clock.to_ns(Tsc::of_packet(tsc, near)))),
        _ => None,
    });
    let mut next = ahead.next();
    let mut from = Ns(0);
    for (at, packet) in packets(&buffer.pieces) {
        if let Some((_, time)) = next.filter(|(next_at, _)| *next_at <= at) {
            from = time;
            next = ahead.next();
        }
        if from > window.to {
            break;
        }
        let to = next.map_or(Ns::MAX, |(_, time)| time);
        if to >= window.from {
            line(out, buffer.index, at, &packet)?;
        }
    }
    Ok(())
}

fn line(
    out: &mut dyn Write,
    buffer: u32,
    at: AuxOffset,
    packet: &Result<Packet, PacketError>,
) -> io::Result<()> {
    match packet {
        Ok(packet) => writeln!(out, "{buffer} {:#010x} {packet}", at.0),
        Err(error) => writeln!(out, "{buffer} {:#010x} BAD {error}", at.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::AuxPiece;

    #[test]
    fn window_is_cut_at_tsc_packets() {
        // The packets have the low 56 bits of the clock's 64.
        let zero = 7 << 56;
        let mut bytes = vec![];
        for tsc in [zero + 100, zero + 200, zero + 300] {
            let low_56 = tsc & ((1 << 56) - 1);
            for packet in [Packet::Psb, Packet::Tsc(low_56), Packet::PsbEnd, Packet::Mtc(1)] {
                packet::encode(&packet, &mut bytes);
            }
        }
        let buffer = AuxBuffer {
            index: 3,
            owner: AuxOwner::Thread(model::Tid(1)),
            pieces: vec![AuxPiece { offset: AuxOffset(0), bytes: &bytes, file_offset: 0 }],
            records: vec![],
        };
        let clock = TscClock { shift: 0, mult: 1, zero: 0 };
        let dump = |from, to| {
            let mut out = vec![];
            let window = TimeWindow { from: Ns(zero + from), to: Ns(zero.saturating_add(to)) };
            in_window(&mut out, &buffer, window, clock, Tsc(zero + 1)).unwrap();
            String::from_utf8(out).unwrap()
        };
        let inner = "3 0x0000002c TSC 0xc8\n3 0x00000034 PSBEND\n3 0x00000036 MTC 0x1\n3 0x00000038 PSB\n";
        assert_eq!(dump(210, 290), inner);
        assert_eq!(dump(0, u64::MAX).lines().count(), 12);
        assert_eq!(dump(301, 400).lines().count(), 3);
    }
}
