//! `bundle`: a recording and all files that its analysis uses, in one directory ([`crate::bundle_dir`]).
//!
//! The profiled processes chose the names of all these files, and the profiler may read more than they may.
//! So a bundle has what was read and understood, and no copy of a path.

use std::path::Path;

use anyhow::Result;
use image::{Bundle, Image};

use crate::bundle_dir::{BundleDir, RECORDING};
use crate::config::BundleConfig;
use crate::exit::Exit;
use crate::render::units::{counted, size};
use crate::{messages, recording};

/// Copies the recording and its objects; names missing ones.
///
/// # Errors
/// The recording cannot be read, or the directory not be written.
pub(crate) fn run(config: &BundleConfig) -> Result<Exit> {
    let file = recording::open(&config.input)?;
    let recording = recording::read(&file)?;
    let (image, _) = recording::load(&recording, config.symfs.as_deref(), &config.kernel);
    for problem in image.problems() {
        messages::warn(problem.what);
    }
    let mut bundles = vec![image.bundle()];
    if recording.pt.kernel {
        bundles.push(of_kernel(&image));
    }
    warn_of_left_out(&image, &bundles);
    let target = BundleDir::new(&config.output)?;
    let mut total = 0;
    for (name, bytes) in file.files() {
        let path = name.map_or_else(|| RECORDING.into(), |name| Path::new(RECORDING).join(name));
        total += target.write(&path, bytes)?;
    }
    total += target.write_objects(&bundles)?;
    let files: usize = bundles.iter().map(|bundle| bundle.files.len()).sum();
    recording::check_uncut()?;
    target.take_place()?;
    let directory = config.output.display();
    messages::note(format!(
        "{} and the recording, {}; report with: func_latency report -i {directory} ...",
        counted(files as u64, "file"),
        size(total)
    ));
    Ok(Exit::Done)
}

pub(crate) fn of_kernel(image: &Image) -> Bundle<'_> {
    if !image.has_kernel_text() {
        messages::warn(
            "the trace has kernel code, and the kernel's text is not here: it is skipped in every report, there as here; \
             /proc/kcore can be read by root, on the machine that recorded, until that is started again (or: --kcore DIR, \
             --vmlinux FILE)",
        );
    }
    image.bundle_of_kernel()
}

fn warn_of_left_out(image: &Image, bundles: &[Bundle<'_>]) {
    for name in image.files_of_one_name() {
        messages::warn(format!(
            "several files were mapped as {name}, and elsewhere nothing tells them apart: none of them is in the bundle; record \
             with build ids (perf record --buildid-mmap)"
        ));
    }
    for name in bundles.iter().flat_map(|bundle| &bundle.left_out) {
        messages::warn(format!(
            "{name} is not in the bundle: it would be outside of it, or where another file is; record with build ids \
             (perf record --buildid-mmap)"
        ));
    }
}
