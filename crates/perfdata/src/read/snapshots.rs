//! Snapshots (`perf record -S`): each AUXTRACE record is a copy of the whole ring, or of what was written
//! since the last one if the ring has not wrapped.
//!
//! ```text
//! written   ----------------------------------------------------------->
//! snapshot 1    [==================]
//! snapshot 2             [=========##########]        == is there twice, ## is new
//! snapshot 3                                     [##################]     what is between was overwritten
//! ```
//!
//! perf pads each copy with zeros to eight bytes (`auxtrace_mmap__read`), which are not in the stream, and
//! gives them places in the ring, which say nothing of the order or of what is new. Only the bytes do: a PSB+
//! with its TSC stands in a stream once (tools/perf/util/intel-pt-decoder/intel-pt-decoder.c looks for it,
//! too). The new parts get offsets of a stream that goes on; where something is missing it has a hole.
//! Tracing stops while perf copies, so an [`AuxRecord`] says at the end of each that nothing was observed
//! after it: of all but the last, if the ring ends where that does. The kernel says where: whenever tracing
//! stops, its AUX record has the ring's head and size (`pt_event_stop` in arch/x86/events/intel/pt.c). So is
//! the copy that perf makes at its exit (`perf record -Se`), when events are disabled.

use memchr::memmem::Finder;
use model::{AuxOffset, AuxPiece, AuxRecord};

/// perf pads payloads with zeros to this many bytes.
pub(super) const PAYLOAD_ALIGN: u64 = 8;

/// Ends every PSB, whatever its alignment (SDM vol. 3, "PSB packet").
const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];
/// PSB and TSC, with some of the packets around.
const FINGERPRINT: usize = 48;
/// How much is missing where it is not known.  Larger than any packet, so that nothing is read across.
const HOLE: u64 = 64;

/// The new parts of snapshots that are in the order of the file, and where each ends. `last_said`: the
/// kernel's last record on the ring.
pub(super) fn joined(
    snapshots: Vec<AuxPiece<'_>>,
    last_said: Option<AuxRecord>,
) -> (Vec<AuxPiece<'_>>, Vec<AuxRecord>) {
    let mut pieces: Vec<AuxPiece<'_>> = Vec::with_capacity(snapshots.len());
    let mut records: Vec<AuxRecord> = Vec::with_capacity(snapshots.len());
    let mut last: Option<AuxPiece<'_>> = None;
    let mut end = AuxOffset(0);
    let finder = Finder::new(&PSB);
    for snapshot in snapshots {
        let common = last.and_then(|last| {
            let goes_on = || goes_on(last, snapshot).map(|padding| Common { old: 0, padding });
            overlap(&finder, last.bytes, snapshot.bytes).or_else(goes_on)
        });
        let hole = if last.is_some() && common.is_none() { HOLE } else { 0 };
        let Common { old, padding } = common.unwrap_or_default();
        if let (Some(piece), Some(record)) = (pieces.last_mut(), records.last_mut()) {
            piece.bytes = piece.bytes.get(..piece.bytes.len().saturating_sub(padding)).unwrap_or_default();
            record.size = piece.bytes.len() as u64;
            end = record.end();
        }
        last = Some(snapshot);
        let Some(bytes @ [_, ..]) = snapshot.bytes.get(old..) else { continue };
        let offset = end.plus(hole);
        end = offset.plus(bytes.len() as u64);
        pieces.push(AuxPiece { offset, bytes, file_offset: snapshot.file_offset + old as u64 });
        let size = bytes.len() as u64;
        records.push(AuxRecord { offset, size, flags: AuxRecord::OVERWRITE, time: None });
    }
    let has_all = last.zip(last_said).is_some_and(|(last, said)| ends_at_head(last, said));
    if let Some(record) = records.last_mut().filter(|_| has_all) {
        record.flags = 0;
    }
    (pieces, records)
}

/// The ring had nothing more than this snapshot when tracing stopped for the last time.
fn ends_at_head(last: AuxPiece<'_>, said: AuxRecord) -> bool {
    let (head, ring) = (said.offset.0, said.size);
    let end = last.offset.plus(last.bytes.len() as u64).0;
    let ends_there = |padding: usize| (end.saturating_sub(padding as u64)) % ring == head % ring;
    said.flags == AuxRecord::OVERWRITE && ring > 0 && (0..=most_padding(last.bytes)).any(ends_there)
}

/// What a snapshot has in common with the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Common {
    /// The number of its first bytes that end the one before.
    old: usize,
    /// Zeros of padding after them in the one before.
    padding: usize,
}

/// The padding of a snapshot after which the next one goes on in the ring.
fn goes_on(last: AuxPiece<'_>, next: AuxPiece<'_>) -> Option<usize> {
    let padding = last.offset.plus(last.bytes.len() as u64).0.checked_sub(next.offset.0)?;
    usize::try_from(padding).ok().filter(|&padding| padding <= most_padding(last.bytes))
}

/// The number of the last bytes that may be padding.
fn most_padding(bytes: &[u8]) -> usize {
    bytes.iter().rev().take(PAYLOAD_ALIGN as usize - 1).take_while(|byte| **byte == 0).count()
}

/// How many of the first bytes of `new` end `old`; `None` if that cannot be said.
fn overlap(finder: &Finder<'_>, old: &[u8], new: &[u8]) -> Option<Common> {
    let first = finder.find(new)?;
    let from_first = new.get(first..)?;
    let mark = from_first.get(..FINGERPRINT.min(from_first.len()))?;
    finder.find_iter(old).find_map(|at| {
        let tail = old.get(at..)?;
        // The cheap comparison first: there is a PSB every few KB.
        let known = mark.len().min(tail.len() - most_padding(tail));
        if tail.get(..known) != mark.get(..known) {
            return None;
        }
        let whole = |padding: &usize| {
            tail.get(..tail.len() - padding).is_some_and(|tail| from_first.starts_with(tail))
        };
        let padding = (0..=most_padding(tail)).find(whole)?;
        Some(Common { old: first + tail.len() - padding, padding })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Blocks of a PSB, its number, and what came then.
    fn stream(blocks: u8) -> Vec<u8> {
        let block = |i: u8| [PSB.to_vec(), vec![0x19, i, 0, 0], vec![i ^ 0x40; 60]].concat();
        (0..blocks).flat_map(block).collect()
    }

    fn piece(bytes: &[u8], offset: u64, file_offset: u64) -> AuxPiece<'_> {
        AuxPiece { offset: AuxOffset(offset), bytes, file_offset }
    }

    /// Offset, bytes and place in the file of each piece.
    fn join<'a>(list: &[(&'a [u8], u64)]) -> Vec<(u64, &'a [u8], u64)> {
        let snapshots = list.iter().map(|(bytes, offset)| piece(bytes, *offset, 1000)).collect();
        let (pieces, records) = joined(snapshots, None);
        assert_eq!(pieces.len(), records.len());
        for (piece, record) in pieces.iter().zip(records) {
            assert_eq!((record.offset, record.size), (piece.offset, piece.bytes.len() as u64));
        }
        pieces.into_iter().map(|p| (p.offset.0, p.bytes, p.file_offset)).collect()
    }

    #[test]
    fn what_is_there_twice_is_cut() {
        let all = stream(10);
        let (a, b) = (&all[30..430], &all[200..600]);
        assert_eq!(join(&[(a, 0), (b, 0)]), [(0, a, 1000), (400, &all[430..600], 1230)]);
        // The same ring again has nothing new.
        assert_eq!(join(&[(a, 0), (a, 0), (b, 0)]).len(), 2);
    }

    #[test]
    fn what_was_overwritten_is_a_hole() {
        let all = stream(10);
        let (a, b) = (&all[..300], &all[400..700]);
        assert_eq!(join(&[(a, 0), (b, 100)]), [(0, a, 1000), (300 + HOLE, b, 1000)]);
    }

    #[test]
    fn a_ring_that_has_not_wrapped_goes_on() {
        let all = stream(10);
        let (a, b) = (&all[..300], &all[300..700]);
        assert_eq!(join(&[(a, 8000), (b, 8300)]), [(0, a, 1000), (300, b, 1000)]);
    }

    #[test]
    fn after_a_copy_that_ends_at_the_head_of_the_ring_nothing_is_lost() {
        let all = stream(10);
        let loses_data = |copies: &[(&[u8], u64)], head: u64, flags: u64| {
            let said = AuxRecord { offset: AuxOffset(head), size: 4096, flags, time: None };
            let copies = copies.iter().map(|(bytes, offset)| piece(bytes, *offset, 0)).collect();
            let (_, records) = joined(copies, Some(said));
            records.iter().map(AuxRecord::lost_data).collect::<Vec<_>>()
        };
        let padded = [&all[..645], &[0; 3]].concat();
        let overwrite = AuxRecord::OVERWRITE;
        // A ring that never wrapped.
        assert_eq!(loses_data(&[(&padded, 0)], 645, overwrite), [false]);
        assert_eq!(loses_data(&[(&all[..320], 0), (&all[320..640], 320)], 640, overwrite), [true, false]);
        // One that has: its places go on, or begin anew.
        assert_eq!(loses_data(&[(&all[..640], 4096 * 3 - 600)], 40, overwrite), [false]);
        // Tracing went on, or data was lost.
        assert_eq!(loses_data(&[(&padded, 0)], 700, overwrite), [true]);
        assert_eq!(loses_data(&[(&padded, 0)], 644, overwrite), [true]);
        assert_eq!(loses_data(&[(&padded, 0)], 645, overwrite | AuxRecord::TRUNCATED), [true]);
        // Nothing new in the last copy.
        assert_eq!(loses_data(&[(&all[..640], 0), (&all[..640], 0)], 640, overwrite), [false]);
    }

    #[test]
    fn padding_is_not_of_the_stream() {
        let all = stream(10);
        let padded = |from: usize, to: usize| {
            let mut bytes = all[from..to].to_vec();
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes
        };
        // Every length of the padding, also where a packet is cut.
        for end in 393..=400 {
            let (a, b, c) = (padded(0, end), padded(160, 561), padded(561, 700));
            let joined = join(&[(&a, 0), (&b, 0), (&c, 401)]);
            let stream: Vec<u8> = joined.iter().flat_map(|(_, bytes, _)| bytes.iter().copied()).collect();
            assert_eq!(&stream[..700], &all[..700], "{end}");
            assert_eq!(joined[1].0, end as u64);
        }
    }

    proptest! {
        /// Whatever a ring of whatever size held: no byte of the stream twice, none in a wrong place.
        #[test]
        fn rings_of_any_size(ring in 100usize..500, ends in prop::collection::vec(1usize..800, 1..8)) {
            let all = stream(10);
            let mut ends = ends;
            ends.sort_unstable();
            ends.iter_mut().for_each(|end| *end = (*end).min(all.len()));
            let list: Vec<(&[u8], u64)> =
                ends.iter().map(|end| (&all[end.saturating_sub(ring)..*end], 0)).collect();
            let place = |bytes: &[u8]| bytes.as_ptr() as usize - all.as_ptr() as usize;
            let mut until = 0usize;
            for (_, bytes, _) in join(&list) {
                // Without a PSB in common old bytes cannot be told; nothing else may come twice.
                let common = until.saturating_sub(place(bytes));
                prop_assert!(common < 2 * 80, "{common} bytes twice");
                until = place(bytes) + bytes.len();
            }
        }

        #[test]
        fn any_bytes(a in prop::collection::vec(any::<u8>(), 0..200), b in prop::collection::vec(any::<u8>(), 0..200)) {
            let total: usize = join(&[(&a, 0), (&b, 3)]).iter().map(|(_, bytes, _)| bytes.len()).sum();
            prop_assert!(total <= a.len() + b.len());
        }
    }
}
