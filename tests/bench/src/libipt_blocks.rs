//! libipt's block decoder, which ends its blocks at calls: over each buffer as a whole, with the files of
//! code that it maps by itself.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Result;
use libipt::{MappedFiles, decode_blocks};
use model::{AuxBuffer, Sideband};

use crate::Counts;
use crate::opened::Opened;

/// Decodes all buffers, one after the other.
pub(crate) fn decode(opened: &Opened<'_>, timed: bool) -> Result<Counts> {
    let mut files = mapped(opened)?;
    let (mut blocks, mut instructions, mut errors) = (0, 0, 0);
    for buffer in &opened.recording.buffers {
        let counts = decode_blocks(&opened.recording, &mut files, &bytes(buffer), timed)?;
        blocks += counts.blocks;
        instructions += counts.instructions;
        errors += counts.errors;
    }
    Ok(vec![("blocks", blocks), ("instructions", instructions), ("errors", errors)])
}

/// The executable files where the recording says that they were mapped; of one process, or of several that
/// have them at the same addresses.
fn mapped(opened: &Opened<'_>) -> Result<MappedFiles> {
    let mut files = MappedFiles::new()?;
    for record in &opened.recording.sideband {
        let Sideband::Mmap(map) = &record.body else { continue };
        let file = Path::new(&map.path);
        if map.executable && file.is_file() && !files.map(file, map.file_offset, map.len, map.start) {
            eprintln!("libipt does not take {}", map.path);
        }
    }
    Ok(files)
}

/// The stream in one piece, as libipt wants it.
fn bytes<'a>(buffer: &AuxBuffer<'a>) -> Cow<'a, [u8]> {
    match buffer.pieces[..] {
        [piece] => Cow::Borrowed(piece.bytes),
        _ => Cow::Owned(buffer.pieces.iter().flat_map(|piece| piece.bytes).copied().collect()),
    }
}
