//! Opening a recording: the file, its sideband indexed, its objects.

use std::path::Path;

use anyhow::Result;
use image::{Image, ImageOptions, KernelOptions, KernelSymbols};
use model::{AuxBuffer, Damage, Recording, Schedule};

use crate::exit::{Exit, failure};
use crate::{host, messages};

/// Opens the file.
///
/// # Errors
/// It cannot be opened, or is no `perf.data`.
pub(crate) fn open(path: &Path) -> Result<perfdata::File> {
    Ok(perfdata::File::open(path)?)
}

/// Reads the recording in the file; damage is a warning.
///
/// # Errors
/// There is no Intel PT in it.
pub(crate) fn read(file: &perfdata::File) -> Result<Recording<'_>> {
    let recording = file.recording()?;
    warn_of_damage(&recording);
    Ok(recording)
}

/// Whether all files that are mapped still are what they were: where one was cut meanwhile, nothing counts
/// that was found out.
///
/// # Errors
/// One was cut.
pub(crate) fn check_uncut() -> Result<()> {
    match files::cut_files().first() {
        None => Ok(()),
        Some(path) => {
            let message =
                format!("{} was cut while it was read, or could not be read to its end", path.display());
            Err(failure(Exit::BadInput, message))
        }
    }
}

/// Says that the file is damaged, if it is.
pub(crate) fn warn_of_damage(recording: &Recording<'_>) {
    damage(recording).iter().for_each(messages::warn);
}

/// Reads a recording with a trace that can be followed.  It may have no times: [`Recording::no_times`].
///
/// # Errors
/// There is no Intel PT in it, or it does not say which way branches went.
pub(crate) fn read_decodable(file: &perfdata::File) -> Result<Recording<'_>> {
    let mut recording = file.recording()?;
    check_decodable(&mut recording)?;
    Ok(recording)
}

/// Refuses a recording with a trace that cannot be followed, and finds out whether it has times
/// ([`Recording::no_times`]).
///
/// # Errors
/// The trace does not say which way branches went.
pub(crate) fn check_decodable(recording: &mut Recording<'_>) -> Result<()> {
    if !recording.pt.branch {
        warn_of_damage(recording);
        let why = "the trace does not say which way branches went (branch=0 or notnt): no call in it is known; record without";
        return Err(failure(Exit::BadInput, why));
    }
    recording.no_times = decoder::no_times(recording);
    Ok(())
}

/// Refuses a recording without times where `what` needs them.
///
/// # Errors
/// No time in it is known.
pub(crate) fn check_times(recording: &Recording<'_>, what: &str) -> Result<()> {
    match recording.no_times {
        Some(why) => Err(failure(Exit::BadInput, format!("{what} needs times: {why}"))),
        None => Ok(()),
    }
}

/// What is wrong with the file, if anything.
pub(crate) fn damage(recording: &Recording<'_>) -> Option<String> {
    recording.damage.as_ref().map(damage_message)
}

/// What a damaged place means.
pub(crate) fn damage_message(damage: &Damage) -> String {
    format!(
        "the recording is damaged at file offset {:#x}: {}; what follows is not read",
        damage.file_offset, damage.what
    )
}

/// Bytes of trace.
pub(crate) fn aux_bytes(recording: &Recording<'_>) -> u64 {
    recording.buffers.iter().map(AuxBuffer::len).sum()
}

/// The objects that ran, and which thread ran when.
pub(crate) fn load(
    recording: &Recording<'_>,
    symfs: Option<&Path>,
    kernel: &KernelOptions,
) -> (Image, Schedule) {
    load_with(recording, &host::image_options(recording, symfs, kernel))
}

/// The objects that ran, found by these options, and which thread ran when.
pub(crate) fn load_with(recording: &Recording<'_>, options: &ImageOptions) -> (Image, Schedule) {
    let image = Image::load(&recording.sideband, options)
        .with_kernel_symbols(KernelSymbols::parse(&recording.kernel_symbols));
    (image, Schedule::new(&recording.sideband))
}
