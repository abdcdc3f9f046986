//! Any bytes as a `perf.data` file.

use std::path::Path;

use image::{Image, ImageOptions, KernelOptions};

use crate::{pipeline, program};

/// So small that a buffer of a few PSBs has several.
const SEGMENT_BYTES: u64 = 1000;

/// An error that can be shown, or a recording that can be decoded and analysed: see [`crate::pipeline`].
///
/// # Panics
/// If neither.
pub fn perfdata(bytes: &[u8]) {
    let recording = match perfdata::parse(bytes, Path::new("any")) {
        Ok(recording) => recording,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for buffer in &recording.buffers {
        for piece in &buffer.pieces {
            let start = usize::try_from(piece.file_offset).ok();
            let there = start.and_then(|start| bytes.get(start..start + piece.bytes.len()));
            assert_eq!(there, Some(piece.bytes), "a piece is where it says");
        }
        let mut ends = buffer.pieces.iter().map(|piece| (piece.offset.0, piece.bytes.len() as u64));
        let first = ends.next().unwrap_or_default();
        ends.fold(first, |before, piece| {
            assert!(before.0 + before.1 <= piece.0, "pieces overlap: {before:?} {piece:?}");
            piece
        });
    }
    // Only the program of the corpora is found, whatever the file names.
    let kernel = KernelOptions { kcore: Some(program::directory().join("kernel")), vmlinux: None };
    let options = ImageOptions { symfs: Some(program::directory()), kernel, ..ImageOptions::default() };
    let image = Image::load(&recording.sideband, &options);
    let functions = program::functions(&image);
    pipeline::check(&recording, &image, &functions, SEGMENT_BYTES);
}
