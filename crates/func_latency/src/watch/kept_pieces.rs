//! The flight recorder: pieces of a recording that captures may need, mapped and without names.

use std::collections::VecDeque;
use std::fs;

use anyhow::Result;
use model::{Ns, Recording, SidebandRecord};
use perfdata::Source;
use recorder::Piece;
use self_cell::self_cell;

use super::growing::Part;
use super::trace_capture::CaptureTrace;
use crate::recording;

self_cell! {
    /// A mapped piece, and its records that are not taken out of it.
    pub(super) struct ReadPiece {
        owner: perfdata::File,
        #[covariant]
        dependent: Recording,
    }
}

/// A piece that has come.
pub(super) struct OpenedPiece {
    pub(super) read: ReadPiece,
    /// The records that no piece before it has.
    new_records: Vec<SidebandRecord>,
    /// Its end.
    pub(super) time: Ns,
}

impl OpenedPiece {
    /// Maps a piece; its file is gone then, and closed.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn new(piece: &Piece) -> Result<Self> {
        // Hundreds may be kept, and none takes a descriptor.
        let file = perfdata::File::open_own(&piece.path)?;
        // It is mapped; so nothing is left of it when we are killed.
        let _ = fs::remove_file(&piece.path);
        let mut read = ReadPiece::try_new(file, perfdata::File::recording)?;
        let mut new = read.with_dependent_mut(|_, recording| std::mem::take(&mut recording.sideband));
        new.retain(|record| record.file_offset >= piece.new_from);
        let last = new.iter().filter_map(|record| record.time).max();
        let time = piece.until.or(last).unwrap_or_default();
        Ok(Self { read, new_records: new, time })
    }

    /// Refuses a trace that cannot be followed ([`recording::check_decodable`]).
    ///
    /// # Errors
    /// It does not say which way branches went.
    pub(super) fn check_decodable(&mut self) -> Result<()> {
        self.read.with_dependent_mut(|_, recording| recording::check_decodable(recording))
    }

    /// Takes its records out of it, as a part without trace; `until`: everything up to then is there.
    pub(super) fn take_records(&mut self, until: Option<Ns>) -> Part<'static> {
        let (sideband, span) = (std::mem::take(&mut self.new_records), self.recording().time_span);
        Part { buffers: Vec::new(), sideband, until, span }
    }

    /// What is in it, but for its records.
    pub(super) fn recording(&self) -> &Recording<'_> {
        self.read.borrow_dependent()
    }
}

/// The pieces that are kept.
#[derive(Default)]
pub(super) struct KeptPieces {
    pieces: VecDeque<KeptPiece>,
    /// What is older is gone.
    begins: Option<Ns>,
}

struct KeptPiece {
    read: ReadPiece,
    new_from: u64,
    bytes: u64,
    /// Its end.
    time: Ns,
}

/// Pieces that are kept: each is a mapping, and is gone through for each capture.
const KEPT_MAX: usize = 256;

impl KeptPieces {
    /// The newest one, which ends at `time`.
    pub(super) fn push(&mut self, piece: &Piece, read: ReadPiece, time: Ns) {
        self.pieces.push_back(KeptPiece { read, new_from: piece.new_from, bytes: piece.bytes, time });
    }

    /// Up to when everything is there; `None`: there is no piece.
    pub(super) fn until(&self) -> Option<Ns> {
        self.pieces.back().map(|piece| piece.time)
    }

    /// What is older is gone; `None`: nothing is.
    pub(super) const fn begins(&self) -> Option<Ns> {
        self.begins
    }

    /// What captures are made of.
    pub(super) fn trace(&self) -> CaptureTrace<'_> {
        let pieces = self.pieces.iter();
        let files =
            pieces.clone().map(|piece| Source { file: piece.read.borrow_owner(), new_from: piece.new_from });
        CaptureTrace {
            files: files.collect(),
            recordings: pieces.map(|piece| piece.read.borrow_dependent()).collect(),
            begins: self.begins,
            copies: None,
        }
    }

    /// Lets go of pieces from before `needs_from` that are more than the room is for, and of any that are
    /// more than fit at all; the newest one stays. Returns their bytes.
    pub(super) fn trim(&mut self, needs_from: Ns, most_bytes: u64) -> u64 {
        let mut bytes: u64 = self.pieces.iter().map(|piece| piece.bytes).sum();
        let mut freed = 0;
        while let Some(oldest) = self.pieces.front().filter(|_| self.pieces.len() > 1) {
            let is_needed = oldest.time >= needs_from;
            let room = if is_needed { most_bytes } else { most_bytes / HISTORY_SHARE };
            if bytes <= room && self.pieces.len() <= KEPT_MAX {
                break;
            }
            bytes -= oldest.bytes;
            freed += oldest.bytes;
            self.begins = Some(oldest.time);
            self.pieces.pop_front();
        }
        freed
    }
}

/// Of the room, this share is for those that no known capture needs: a call that ends
/// next may have begun in them.
const HISTORY_SHARE: u64 = 2;
