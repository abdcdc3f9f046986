//! Opening a recording: the file, its sideband indexed, its objects.

use std::path::Path;

use anyhow::Result;
use image::{Image, KernelOptions};
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

/// Reads what is in the file; damage is a warning.
///
/// # Errors
/// There is no Intel PT in it.
pub(crate) fn read(file: &perfdata::File) -> Result<Recording<'_>> {
    let recording = file.recording()?;
    if let Some(damage) = damage(&recording) {
        messages::warn(damage);
    }
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

/// [`read`], of a recording whose trace can be followed and given times.  Where it cannot, whose code ran on a CPU is not known
/// either, nor what was mapped when: those records have times of perf's clock.
///
/// # Errors
/// There is no Intel PT in it, it does not say which way branches went, or nothing says what its time stamps mean.
pub(crate) fn read_timed(file: &perfdata::File) -> Result<Recording<'_>> {
    let recording = read(file)?;
    match branchless(&recording).or_else(|| untimed(&recording)) {
        Some(why) => Err(failure(Exit::BadInput, why)),
        None => Ok(recording),
    }
}

/// Why the trace does not say what ran, if so.
fn branchless(recording: &Recording<'_>) -> Option<&'static str> {
    (!recording.pt.branch).then_some(
        "the trace does not say which way branches went (branch=0 or notnt): no call in it is known; record without",
    )
}

/// Why the trace has no times, if so.
fn untimed(recording: &Recording<'_>) -> Option<&'static str> {
    if !recording.pt.tsc {
        return Some("the trace has no time stamps (tsc=0): no time in it is known; record without tsc=0");
    }
    // The kernel does not say it where its own clock is not the TSC, and where perf was given a clock (-k).
    recording.clock.is_none().then_some(
        "the recording does not say what the trace's time stamps are in perf's clock (cap_user_time_zero is 0): no time \
         in it is known; record without --clockid, where \
         /sys/devices/system/clocksource/clocksource0/current_clocksource is tsc",
    )
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

/// The objects that ran, and who ran when.
pub(crate) fn load(
    recording: &Recording<'_>,
    symfs: Option<&Path>,
    kernel: &KernelOptions,
) -> (Image, Schedule) {
    let options = host::image_options(recording, symfs, kernel);
    let image = Image::load(&recording.sideband, &options).with_kernel_symbols(&recording.kernel_symbols);
    (image, Schedule::new(&recording.sideband))
}
