//! `bundle`: a recording and all files that its analysis uses, in one directory.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use image::BundledBytes;

use crate::config::BundleConfig;
use crate::exit::Exit;
use crate::output::cannot_write;
use crate::render::units::{counted, size};
use crate::{messages, recording};

/// Copies the recording and its objects; says what is missing.
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
    let mut total = copy_recording(&config.input, &config.output.join("perf.data"))?;
    for name in image.files_of_one_name() {
        messages::warn(format!(
            "several files were mapped as {name}, and elsewhere nothing tells them apart: none of them is in the bundle; record \
             with build ids (perf record --buildid-mmap)"
        ));
    }
    let mut files = image.bundle();
    // What perf copied beside the recording is copied with it.
    if recording.pt.kernel && !has_own_kernel(&config.input) {
        if !image.has_kernel_text() {
            messages::warn(
                "the trace has kernel code, and the kernel's text is not here: it is skipped in every report, there as here; \
                 /proc/kcore can be read by root, on the machine that recorded, until that is started again (or: --kcore DIR, \
                 --vmlinux FILE)",
            );
        }
        files.extend(image.bundle_of_kernel());
    }
    for file in &files {
        let target = config.output.join(&file.path);
        total += match &file.bytes {
            BundledBytes::Borrowed(bytes) => write(bytes, &target)?,
            BundledBytes::Made(bytes) => write(bytes, &target)?,
            BundledBytes::File(source) => copy(source, &target)?,
        };
    }
    let directory = config.output.display();
    messages::note(format!(
        "{} and the recording, {}; report with: func_latency report -i {directory}/perf.data --symfs {directory} ...",
        counted(files.len() as u64, "file"),
        size(total)
    ));
    Ok(Exit::Done)
}

/// `perf record --kcore` put the kernel's text into the recording's directory.
fn has_own_kernel(recording: &Path) -> bool {
    recording.join("kcore_dir").is_dir()
}

/// A file, or a directory (`perf record --threads`, `--kcore`) with all that is in it.
fn copy_recording(source: &Path, target: &Path) -> Result<u64> {
    if !source.is_dir() {
        return copy(source, target);
    }
    let unreadable = || format!("cannot read {}", source.display());
    let mut total = 0;
    for entry in fs::read_dir(source).with_context(unreadable)? {
        let name = entry.with_context(unreadable)?.file_name();
        total += copy_recording(&source.join(&name), &target.join(&name))?;
    }
    Ok(total)
}

fn write(bytes: &[u8], target: &Path) -> Result<u64> {
    create_parent(target)?;
    fs::write(target, bytes).with_context(|| cannot_write(target))?;
    Ok(bytes.len() as u64)
}

fn copy(source: &Path, target: &Path) -> Result<u64> {
    create_parent(target)?;
    fs::copy(source, target)
        .with_context(|| format!("cannot copy {} to {}", source.display(), target.display()))
}

fn create_parent(target: &Path) -> Result<()> {
    let parent = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}
