//! Streams that a fuzzer makes from streams: packets are moved, changed and made up, and stay packets.
//!
//! Changing bytes rarely gives what a trace unit could have sent; a TNT bit that is flipped, a TIP that goes
//! elsewhere, a packet that is missing or comes twice is what the decoder meets.

use packet::{Context, IpPayload, Packet, Tnt, decode, encode};

use crate::{flow, program};

/// A generator of numbers that depends on its seed alone (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Changes the packets of the [`crate::flow`] input in `data[..size]`; returns its new size, at most
/// `max_size`.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let max_size = max_size.min(data.len());
    let (head, stream) = match data.get(..size).and_then(|input| input.split_first_chunk::<{ flow::HEAD }>())
    {
        Some((head, stream)) => (*head, stream),
        None => ([0; flow::HEAD], &[][..]),
    };
    let mut packets = split(stream);
    let mut numbers = Numbers(u64::from(seed));
    for _ in 0..=numbers.below(4) {
        change(&mut packets, &mut numbers);
    }
    let mut out = head.to_vec();
    for packet in packets {
        out.extend(packet);
    }
    out.truncate(max_size);
    data[..out.len()].copy_from_slice(&out);
    out.len()
}

/// The packets' bytes; what is no packet stays together with what follows it.
fn split(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = vec![];
    while !stream.is_empty() {
        let len = decode(stream, Context::Flow).map_or(1, |(_, len)| len);
        let (packet, rest) = stream.split_at(len);
        packets.push(packet.to_vec());
        stream = rest;
    }
    packets
}

fn change(packets: &mut Vec<Vec<u8>>, numbers: &mut Numbers) {
    let at = numbers.below(packets.len());
    let other = numbers.below(packets.len());
    match numbers.below(7) {
        0 if !packets.is_empty() => drop(packets.remove(at)),
        1 if !packets.is_empty() => packets.swap(at, other),
        // A part of the stream comes again, or is missing.
        2 if !packets.is_empty() => {
            let end = packets.len().min(at + numbers.below(12));
            let part = packets[at..end].to_vec();
            packets.splice(other..other, part);
        }
        3 if !packets.is_empty() => drop(packets.drain(at..packets.len().min(at + numbers.below(12)))),
        4 | 5 if !packets.is_empty() => {
            if let Ok((packet, _)) = decode(&packets[at], Context::Flow) {
                packets[at] = bytes(&vary(packet, numbers));
            }
        }
        _ => packets.insert(at, bytes(&any(numbers))),
    }
}

fn bytes(packet: &Packet) -> Vec<u8> {
    let mut out = vec![];
    encode(packet, &mut out);
    out
}

/// A packet of the same kind that says something else.
fn vary(packet: Packet, numbers: &mut Numbers) -> Packet {
    match packet {
        Packet::Tnt(tnt) => Packet::Tnt(Tnt::new(tnt.bits() ^ 1 << numbers.below(8), tnt.len())),
        Packet::Tip(_) => Packet::Tip(address(numbers)),
        Packet::TipPge(_) => Packet::TipPge(address(numbers)),
        Packet::TipPgd(_) => Packet::TipPgd(address(numbers)),
        Packet::Fup(_) => Packet::Fup(address(numbers)),
        Packet::Tsc(tsc) => Packet::Tsc((tsc ^ 1 << numbers.below(56)) & ((1 << 56) - 1)),
        Packet::Cyc(cycles) => Packet::Cyc(cycles ^ 1 << numbers.below(60)),
        Packet::Mtc(ctc) => Packet::Mtc(ctc.wrapping_add(numbers.below(5) as u8)),
        Packet::Cbr(_) => Packet::Cbr(numbers.next() as u8),
        _ => any(numbers),
    }
}

/// An address in or near the program, in the kernel, or none.
fn address(numbers: &mut Numbers) -> IpPayload {
    let inside = numbers.next() & 0xfff;
    match numbers.below(8) {
        0 => IpPayload::NONE,
        1 => IpPayload { ip_bytes: 3, value: numbers.next() >> 16 },
        2 => IpPayload { ip_bytes: 6, value: 0xffff_ffff_8100_0000 + inside },
        3 => IpPayload { ip_bytes: 1, value: inside },
        _ => IpPayload { ip_bytes: 3, value: program::START + inside },
    }
}

fn any(numbers: &mut Numbers) -> Packet {
    match numbers.below(20) {
        0 => Packet::Psb,
        1 => Packet::PsbEnd,
        2 => Packet::Ovf,
        3 => Packet::Tip(address(numbers)),
        4 => Packet::TipPge(address(numbers)),
        5 => Packet::TipPgd(address(numbers)),
        6 => Packet::Fup(address(numbers)),
        7 => Packet::Tnt(Tnt::new(numbers.next(), 1 + numbers.below(6) as u8)),
        8 => Packet::Tnt(Tnt::new(numbers.next(), 1 + numbers.below(47) as u8)),
        9 => Packet::Tsc(numbers.next() >> 8),
        10 => Packet::Tma { ctc: numbers.next() as u16, fast: numbers.below(512) as u16 },
        11 => Packet::Mtc(numbers.next() as u8),
        12 => Packet::Cyc(numbers.next() >> (3 + numbers.below(61))),
        13 => Packet::Cbr(numbers.next() as u8),
        14 => Packet::ModeExec { long: numbers.below(8) > 0, default_32: false, interrupts: false },
        15 => Packet::ModeTsx { in_transaction: numbers.below(2) > 0, aborted: numbers.below(2) > 0 },
        16 => Packet::Pip { cr3: numbers.next() >> 12 << 5 & ((1 << 52) - 1), non_root: false },
        17 => Packet::Ptw { value: numbers.next(), wide: true, ip: numbers.below(2) > 0 },
        18 => Packet::TraceStop,
        _ => Packet::Pad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutated_stream_is_still_packets() {
        let stream =
            [Packet::Psb, Packet::PsbEnd, Packet::TipPge(IpPayload { ip_bytes: 3, value: program::START })];
        let mut data = vec![0; 4096];
        let mut size = flow::HEAD;
        for packet in stream.iter().cycle().take(100) {
            let bytes = bytes(packet);
            data[size..size + bytes.len()].copy_from_slice(&bytes);
            size += bytes.len();
        }
        for seed in 0..1000 {
            let mut changed = data.clone();
            let new_size = mutate(&mut changed, size, 4096, seed);
            let mut rest = &changed[flow::HEAD..new_size];
            while !rest.is_empty() {
                let (_, len) = decode(rest, Context::Flow).unwrap();
                rest = &rest[len..];
            }
        }
    }

    #[test]
    fn it_keeps_to_its_room() {
        let mut data = vec![0x55; 64];
        for seed in 0..1000 {
            assert!(mutate(&mut data, 64, 64, seed) <= 64);
            assert!(mutate(&mut data, 0, 3, seed) <= 3);
        }
    }
}
