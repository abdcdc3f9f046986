//! A recording with all that its decoding asks for.

use std::hint::black_box;

use anyhow::Result;
use image::{Image, ImageOptions};
use model::{Recording, Schedule};

const PAGE_BYTES: usize = 4096;

/// What every decoder starts from.
pub(crate) struct Opened<'a> {
    pub(crate) recording: Recording<'a>,
    pub(crate) schedule: Schedule,
    pub(crate) image: Image,
}

impl<'a> Opened<'a> {
    pub(crate) fn new(file: &'a perfdata::File) -> Result<Self> {
        let recording = file.recording()?;
        let schedule = Schedule::new(&recording.sideband);
        let image = Image::load(&recording.sideband, &ImageOptions::default());
        Ok(Self { recording, schedule, image })
    }

    /// Brings the trace into memory: the first decoder must not pay for the others.
    pub(crate) fn touch(&self) {
        for piece in self.recording.buffers.iter().flat_map(|buffer| &buffer.pieces) {
            piece.bytes.iter().step_by(PAGE_BYTES).copied().for_each(|byte| {
                black_box(byte);
            });
        }
    }
}
