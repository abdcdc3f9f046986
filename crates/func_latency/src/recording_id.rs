//! Names a recording, and its code, by their content: every copy has the same name, and no other has it.

use image::Image;
use model::{AuxBuffer, AuxOwner, Recording};

/// Bytes of a buffer's first and of its last piece that enter the name: with the lengths and times of all,
/// enough to differ, and no reading of gigabytes.
const SAMPLE: usize = 4096;

/// The name of a recording: `r` and 16 hexadecimal digits, so that no reader takes it for a number.
pub(crate) fn of(recording: &Recording<'_>) -> String {
    let mut hash = Fnv::default();
    let texts = [&recording.hostname, &recording.kernel_release];
    texts.into_iter().for_each(|text| hash.text(text.as_deref().unwrap_or_default()));
    recording.command_line.iter().for_each(|word| hash.text(word));
    let (from, to) = recording.time_span.map_or((0, 0), |(from, to)| (from.0, to.0));
    let real = recording.clock_offsets.realtime_ns.unwrap_or_default().cast_unsigned();
    [from, to, real, recording.sideband.len() as u64].into_iter().for_each(|number| hash.number(number));
    recording.buffers.iter().for_each(|buffer| add_buffer(&mut hash, buffer));
    format!("r{:016x}", hash.0)
}

/// The name of a recording's code as it was found: numbers of functions and objects are of it.
pub(crate) fn of_code(image: &Image) -> String {
    let mut hash = Fnv::default();
    for object in image.objects() {
        hash.text(image.object_name(object));
        hash.text(&image.object_build_id(object).unwrap_or_default());
        hash.number(image.object_error(object).is_none().into());
    }
    for function in image.functions() {
        hash.number(function.0.into());
        hash.number(image.function_entry(function).map_or(u64::MAX, |entry| entry.0));
    }
    format!("c{:016x}", hash.0)
}

fn add_buffer(hash: &mut Fnv, buffer: &AuxBuffer<'_>) {
    let (kind, owner) = match buffer.owner {
        AuxOwner::Cpu(cpu) => (0, i64::from(cpu.0)),
        AuxOwner::Thread(tid) => (1, i64::from(tid.0)),
    };
    let numbers = [u64::from(buffer.index), kind, owner.cast_unsigned(), buffer.len()];
    numbers.into_iter().for_each(|number| hash.number(number));
    for piece in buffer.pieces.first().into_iter().chain(buffer.pieces.last()) {
        hash.number(piece.offset.0);
        hash.bytes(piece.bytes.get(..SAMPLE).unwrap_or(piece.bytes));
        hash.bytes(piece.bytes.rchunks(SAMPLE).next().unwrap_or_default());
    }
}

/// FNV-1a with 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// With its length, so that two texts are not one that is cut elsewhere.
    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{AuxOffset, AuxPiece, ClockOffsets, Ns};

    fn recording(bytes: &[u8]) -> Recording<'_> {
        let piece = AuxPiece { offset: AuxOffset(0), bytes, file_offset: 77 };
        let owner = AuxOwner::Thread(model::Tid(7));
        let buffer = AuxBuffer { index: 0, owner, pieces: vec![piece], records: vec![] };
        Recording {
            buffers: vec![buffer],
            hostname: Some("db7".to_owned()),
            time_span: Some((Ns(1), Ns(2))),
            ..Recording::default()
        }
    }

    #[test]
    fn what_differs_has_another_name() {
        let bytes = vec![7; 3 * SAMPLE];
        let name = of(&recording(&bytes));
        assert_eq!((name.len(), name.starts_with('r')), (17, true));
        assert_eq!(of(&recording(&bytes)), name);
        let mut end = bytes.clone();
        end[3 * SAMPLE - 1] = 8;
        let others = [
            recording(&end),
            recording(&bytes[1..]),
            Recording { hostname: Some("db8".to_owned()), ..recording(&bytes) },
            Recording { time_span: Some((Ns(1), Ns(3))), ..recording(&bytes) },
            Recording {
                clock_offsets: ClockOffsets { realtime_ns: Some(1), ..ClockOffsets::default() },
                ..recording(&bytes)
            },
        ];
        for other in &others {
            assert_ne!(of(other), name);
        }
    }

    /// The published values of the algorithm.
    #[test]
    fn the_hash_is_fnv_1a() {
        let of = |text: &str| {
            let mut hash = Fnv::default();
            hash.bytes(text.as_bytes());
            hash.0
        };
        assert_eq!((of(""), of("a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
    }
}
