//! libipt's block decoder as a program would use it that wants calls and is in a hurry: no events of ours
//! come of it. It is what `cargo xtask bench` measures our decoder against.

use std::hint::black_box;
use std::path::Path;

use model::{Avma, FileOffset, Recording};

use crate::abi::{Block, END_ON_CALL, Event, error};
use crate::config::config;
use crate::sys::{BlockDecoder, FileImage, Status};

/// What was asked for could not be had from libipt.
#[derive(Debug, thiserror::Error)]
#[error("libipt has no memory, or does not accept how the trace was recorded")]
pub struct Refused;

/// Code of mapped files.
pub struct MappedFiles(FileImage);

impl MappedFiles {
    /// None yet.
    ///
    /// # Errors
    /// libipt is out of memory.
    pub fn new() -> Result<Self, Refused> {
        FileImage::new().map(Self).ok_or(Refused)
    }

    /// Maps a part of a file, over anything that is mapped there; false if the file cannot be read.
    pub fn map(&mut self, file: &Path, offset: FileOffset, len: u64, start: Avma) -> bool {
        self.0.add(file, offset, len, start)
    }
}

/// What block decoding gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Blocks, which end at calls and wherever the trace is needed.
    pub blocks: u64,
    /// Instructions in them.
    pub instructions: u64,
    /// Places where decoding gave up until the next PSB.
    pub errors: u64,
}

/// Decodes a stream; `timed`: the time of each block is asked for, too.
///
/// # Errors
/// See [`Refused`].
pub fn decode_blocks(
    recording: &Recording<'_>,
    files: &mut MappedFiles,
    trace: &[u8],
    timed: bool,
) -> Result<BlockCounts, Refused> {
    let mut config = config(recording);
    config.flags[0] |= END_ON_CALL;
    let mut decoder = BlockDecoder::new(config, trace, &mut files.0).ok_or(Refused)?;
    let mut counts = BlockCounts::default();
    let mut read_to = None;
    loop {
        let synchronised = decoder.sync_forward();
        let ended = match synchronised.error() {
            None => decode_to_error(&mut decoder, synchronised, timed, &mut counts),
            Some(error) => error,
        };
        if ended == error::EOS {
            return Ok(counts);
        }
        counts.errors += 1;
        // Where it makes no progress it never will.
        if read_to.replace(decoder.offset()) == Some(decoder.offset()) {
            return Ok(counts);
        }
    }
}

/// Decodes up to the first error; the end is one, too.
fn decode_to_error(
    decoder: &mut BlockDecoder<'_>,
    mut status: Status,
    timed: bool,
    counts: &mut BlockCounts,
) -> i32 {
    let (mut block, mut event) = (Block::default(), Event::default());
    loop {
        while status.event_pending() {
            status = decoder.event(&mut event);
        }
        if status.is_at_end() {
            return error::EOS;
        }
        if let Some(error) = status.error() {
            return error;
        }
        status = decoder.next(&mut block);
        if block.ninsn > 0 {
            counts.blocks += 1;
            counts.instructions += u64::from(block.ninsn);
            black_box(&block);
            if timed {
                black_box(decoder.time());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{LastIp, Packet, Tnt};

    /// Twice around a loop, the second time over two more instructions, and then tracing stops.
    fn trace(out: &mut Vec<u8>) {
        let mut last_ip = LastIp::default();
        let mut tip = || last_ip.compress(0x1000);
        let packets = [
            Packet::Psb,
            Packet::Tsc(1000),
            Packet::ModeExec { long: true, default_32: false, interrupts: true },
            Packet::Fup(tip()),
            Packet::PsbEnd,
            Packet::Tnt(Tnt::new(1, 1)),
            Packet::Tip(tip()),
            Packet::Tnt(Tnt::new(0, 1)),
            Packet::TipPgd(packet::IpPayload { ip_bytes: 0, value: 0 }),
        ];
        packets.iter().for_each(|packet| packet::encode(packet, out));
    }

    #[test]
    fn blocks_of_a_file() {
        // jz +2; nop; nop; jmp *rax
        let code = [0x74, 2, 0x90, 0x90, 0xff, 0xe0];
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &code).unwrap();
        let mut files = MappedFiles::new().unwrap();
        assert!(files.map(file.path(), FileOffset(0), 6, Avma(0x1000)));
        assert!(!files.map(Path::new("/no/such/file"), FileOffset(0), 6, Avma(0x2000)));
        let mut bytes = Vec::new();
        trace(&mut bytes);
        for timed in [false, true] {
            let counts = decode_blocks(&Recording::default(), &mut files, &bytes, timed).unwrap();
            assert_eq!(counts, BlockCounts { blocks: 4, instructions: 6, errors: 0 });
        }
        // What is no packet is an error: it costs the block before it, and decoding goes on at the next PSB.
        let mut damaged = bytes.clone();
        damaged.extend([0x02, 0xff]);
        trace(&mut damaged);
        let counts = decode_blocks(&Recording::default(), &mut files, &damaged, false).unwrap();
        assert_eq!(counts, BlockCounts { blocks: 7, instructions: 9, errors: 1 });
    }
}
