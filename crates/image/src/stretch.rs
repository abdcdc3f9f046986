//! How far around an address the answer is the same: a decoder of code nearby need not ask again.

use std::ops::Range;

use model::{Avma, FileOffset, FunctionId, FunctionStretch, SpaceId, Svma};

use crate::elf::Segment;
use crate::image::Image;

impl Image {
    /// The stretch of a function around an address, as far as one mapping and one segment have it.
    pub(crate) fn mapped_stretch(&self, space: SpaceId, ip: Avma) -> Option<FunctionStretch> {
        let mapping = self.spaces.mapping(space, ip)?;
        let file = self.object_file(mapping.object)?;
        let loaded = file.state.as_ref().ok()?;
        let offset = mapping.offset_of(ip);
        let Svma(svma) = file.svma(offset);
        let piece = loaded.functions.piece(svma)?;
        let id =
            Some(self.function_id(mapping.object, piece.owner)).filter(|id| *id != FunctionId::UNKNOWN)?;
        let even = even_around(&loaded.segments, offset);
        let before = (svma - piece.start).min(offset.minus(even.start)).min(ip.minus(mapping.start));
        let after = (piece.end - svma).min(even.end.minus(offset)).min(mapping.end.minus(ip));
        let entry = piece.entry.map(|entry| ip.plus(entry.wrapping_sub(svma)));
        Some(FunctionStretch { addresses: Avma(ip.0 - before)..ip.plus(after), id, entry })
    }
}

/// Places around one that have linked addresses as far from each other as they are: no segment, and no page
/// at the border of one, begins or ends between them.
fn even_around(segments: &[Segment], offset: FileOffset) -> Range<FileOffset> {
    let mut even = 0..u64::MAX;
    for segment in segments {
        let (bytes, pages) = (segment.bytes(), segment.pages());
        for border in [bytes.start, bytes.end, pages.start, pages.end] {
            match border <= offset.0 {
                true => even.start = even.start.max(border),
                false => even.end = even.end.min(border),
            }
        }
    }
    FileOffset(even.start)..FileOffset(even.end)
}
