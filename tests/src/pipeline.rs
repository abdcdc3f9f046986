//! From a recording to events and calls, as the command does it.

use std::path::Path;

use analyzer::{Analysis, Report, Request, Surroundings};
use decoder::{Context, DecodeOptions, DecodeStats, OwnDecoder, SegmentDecoder};
use image::{Image, ImageOptions, Query};
use model::{AuxOwner, EventSink, FunctionId, Ns, Recording, Schedule};

/// Why a recording could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file.
    #[error(transparent)]
    Open(#[from] perfdata::OpenError),
    /// Its records.
    #[error(transparent)]
    Read(#[from] perfdata::ReadError),
    /// A function.
    #[error(transparent)]
    Find(#[from] image::FindError),
}

/// Opens a file.
///
/// # Errors
/// See [`Error`].
pub fn open(path: &Path) -> Result<perfdata::File, Error> {
    Ok(perfdata::File::open(path)?)
}

/// A recording with all that decoding asks for.
pub struct Opened<'a> {
    /// The file's content.
    pub recording: Recording<'a>,
    /// Who ran when.
    pub schedule: Schedule,
    /// The code.
    pub image: Image,
}

impl<'a> Opened<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(file: &'a perfdata::File) -> Result<Self, Error> {
        let recording = file.recording()?;
        let schedule = Schedule::new(&recording.sideband);
        let image = Image::load(&recording.sideband, &ImageOptions::default());
        Ok(Self { recording, schedule, image })
    }

    /// Decodes all of it.
    pub fn decode(&self, options: &DecodeOptions, sink: &mut dyn EventSink) -> DecodeStats {
        self.decode_with(&OwnDecoder::default(), options, sink)
    }

    /// The same with any decoder.
    pub fn decode_with(
        &self,
        decoder: &dyn SegmentDecoder,
        options: &DecodeOptions,
        sink: &mut dyn EventSink,
    ) -> DecodeStats {
        let Self { recording, schedule, image } = self;
        let (code, functions, all_branches) = (image, image, options.all_branches);
        let context = Context { recording, schedule, code, functions, all_branches };
        decoder::decode_with(decoder, &context, options, &|_| (), sink)
    }

    /// The function with this symbol.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn function(&self, symbol: &str) -> Result<FunctionId, Error> {
        let query = Query { text: symbol.to_owned(), ..Query::default() };
        let found = self.image.find(&query)?;
        Ok(found.first().map_or(FunctionId::UNKNOWN, |f| f.id))
    }

    /// Reports on functions, with a row for every call.
    #[must_use]
    pub fn analyse(&self, functions: &[FunctionId], options: &DecodeOptions) -> Report {
        self.analyse_with(&OwnDecoder::default(), functions, options)
    }

    /// The same with any decoder.
    #[must_use]
    pub fn analyse_with(
        &self,
        decoder: &dyn SegmentDecoder,
        functions: &[FunctionId],
        options: &DecodeOptions,
    ) -> Report {
        let buffers: Vec<(AuxOwner, u32)> =
            self.recording.buffers.iter().map(|b| (b.owner, b.index)).collect();
        let around = Surroundings {
            code: &self.image,
            functions: &self.image,
            schedule: &self.schedule,
            window: self.recording.time_span.unwrap_or((Ns(0), Ns(0))),
            has_ip_filter: self.recording.pt.has_ip_filter,
            buffers: &buffers,
        };
        let request = Request { functions: functions.to_vec(), rows: true, ..Request::default() };
        let mut analysis = Analysis::new(&request, around);
        self.decode_with(decoder, options, &mut analysis);
        analysis.finish()
    }
}
