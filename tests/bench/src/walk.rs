//! The bare walk over the packets: the least that any decoder has to do.

use std::hint::black_box;

use model::AuxBuffer;
use packet::{Context, Packet};

use crate::Counts;
use crate::opened::Opened;

/// Reads every packet, and counts the branches that took one: bits of TNT (conditional branches and
/// compressed returns), and TIP (indirect branches and other returns).
pub(crate) fn walk(opened: &Opened<'_>) -> Counts {
    let (mut packets, mut branches, mut bytes) = (0, 0, 0);
    for buffer in &opened.recording.buffers {
        bytes += buffer.len();
        let (of_buffer, taken) = walk_buffer(buffer);
        packets += of_buffer;
        branches += taken;
    }
    vec![("packets", packets), ("branches", branches), ("bytes", bytes)]
}

fn walk_buffer(buffer: &AuxBuffer<'_>) -> (u64, u64) {
    let (mut packets, mut branches) = (0, 0);
    for piece in &buffer.pieces {
        let mut at = 0;
        while let Some(rest) = piece.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match packet::decode(rest, Context::Flow) {
                Ok((packet, len)) => {
                    packets += 1;
                    match black_box(packet) {
                        Packet::Tnt(tnt) => branches += u64::from(tnt.len()),
                        Packet::Tip(_) => branches += 1,
                        _ => (),
                    }
                    at += len;
                }
                // Damage, or a packet that goes on in the next piece.
                Err(_) => match packet::find_psb(piece.bytes, at + 1) {
                    Some(psb) => at = psb,
                    None => break,
                },
            }
        }
    }
    (packets, branches)
}
