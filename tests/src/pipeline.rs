//! From a recording to events and calls, as the command does it.

use std::path::Path;

use analyzer::{CheckedAnalysis, CountersAsked, Report, Request, Surroundings, TreeSink};
use decoder::{Context, DecodeOptions, DecodeStats, OwnDecoder, SegmentDecoder};
use image::{Image, ImageOptions, Query};
use model::{Avma, DigestSink, Digester, EventSink, FunctionId, Recording, Schedule, Sideband};
use tracegen::truth::verify::KernelText;

use crate::fixture::Kernel;

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
    /// The thread that ran on each CPU at each time.
    pub schedule: Schedule,
    /// The code.
    pub image: Image,
    /// What that has of the kernel.
    pub kernel: KernelText,
}

impl<'a> Opened<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(file: &'a perfdata::File) -> Result<Self, Error> {
        Self::with_kernel(file, &Kernel::default())
    }

    /// Reads a file of which the kernel's code is there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn with_kernel(file: &'a perfdata::File, kernel: &Kernel) -> Result<Self, Error> {
        let recording = file.recording()?;
        let recording = Recording { no_times: decoder::no_times(&recording), ..recording };
        let schedule = Schedule::new(&recording.sideband);
        let options = ImageOptions { kernel: kernel.files.clone(), ..ImageOptions::default() };
        let image = Image::load(&recording.sideband, &options);
        Ok(Self { recording, schedule, image, kernel: kernel.text })
    }

    /// Where the kernel's scheduler starts, if only that tells of switches.
    #[must_use]
    pub fn scheduler(&self) -> Option<Avma> {
        analyzer::scheduler(&self.recording, &self.schedule)
    }

    /// Where the kernel's text starts, if the recording says.
    #[must_use]
    pub fn kernel_start(&self) -> Option<Avma> {
        self.recording.sideband.iter().find_map(|record| match &record.body {
            Sideband::Mmap(mmap) if mmap.kernel => Some(mmap.start),
            _ => None,
        })
    }

    /// Decodes all of it.
    pub fn decode(&self, options: &DecodeOptions, sink: &mut dyn EventSink) -> DecodeStats {
        self.decode_with(Box::new(OwnDecoder::default()), options, sink)
    }

    /// Decodes all of it, and `digester` works on the events ahead of the sink.
    pub fn decode_digested<G: Digester>(
        &self,
        digester: &G,
        options: &DecodeOptions,
        sink: &mut dyn DigestSink<G::Digest>,
    ) -> DecodeStats {
        let context = Context::new(&self.recording, &self.schedule, &self.image, options.all_branches);
        let decoder = Box::new(OwnDecoder::default());
        decoder::decode_digested(decoder, &context, options, &|_| (), Some(digester), sink).stats
    }

    /// Decodes all of it with any decoder.
    pub fn decode_with(
        &self,
        decoder: Box<dyn SegmentDecoder>,
        options: &DecodeOptions,
        sink: &mut dyn EventSink,
    ) -> DecodeStats {
        let context = Context::new(&self.recording, &self.schedule, &self.image, options.all_branches);
        decoder::decode_with(decoder, &context, options, &|_| (), sink).stats
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
    ///
    /// # Panics
    /// If the analysis contradicts itself, see [`analyzer::check`].
    #[must_use]
    pub fn analyse(&self, functions: &[FunctionId], options: &DecodeOptions) -> Report {
        self.analyse_with(Box::new(OwnDecoder::default()), functions, options)
    }

    /// Reports on functions with any decoder, with a row for every call.
    ///
    /// # Panics
    /// As [`Self::analyse`].
    #[must_use]
    pub fn analyse_with(
        &self,
        decoder: Box<dyn SegmentDecoder>,
        functions: &[FunctionId],
        options: &DecodeOptions,
    ) -> Report {
        let request = Request { functions: functions.to_vec(), ..Request::default() };
        self.report(&request, decoder, options)
    }

    /// Reports on functions and what their calls executed.
    ///
    /// # Panics
    /// As [`Self::analyse`].
    #[must_use]
    pub fn analyse_counters(&self, functions: &[FunctionId], options: &DecodeOptions) -> Report {
        let counters = Some(CountersAsked { kernel: false, bus_khz: Some(100_000) });
        let request = Request { functions: functions.to_vec(), counters, ..Request::default() };
        self.report(&request, Box::new(OwnDecoder::default()), options)
    }

    fn report(&self, request: &Request, decoder: Box<dyn SegmentDecoder>, options: &DecodeOptions) -> Report {
        let around = Surroundings::of(&self.recording, &self.schedule, &self.image);
        let mut analysis = CheckedAnalysis::new(request, around);
        self.decode_with(decoder, options, &mut analysis);
        let (report, violations) = analysis.finish();
        assert!(violations.is_empty(), "{violations:#?}");
        report
    }

    /// Reports on functions, and gives the trees of their calls to `sink`.
    ///
    /// # Panics
    /// As [`Self::analyse`].
    #[must_use]
    pub fn analyse_trees(
        &self,
        functions: &[FunctionId],
        options: &DecodeOptions,
        sink: &mut dyn TreeSink,
    ) -> Report {
        let around = Surroundings::of(&self.recording, &self.schedule, &self.image);
        let request = Request { functions: functions.to_vec(), ..Request::default() };
        let mut analysis = CheckedAnalysis::with_trees(&request, around, sink);
        self.decode(options, &mut analysis);
        let (report, violations) = analysis.finish();
        assert!(violations.is_empty(), "{violations:#?}");
        report
    }
}
