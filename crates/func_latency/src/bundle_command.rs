//! `bundle`: a recording and all files that its analysis uses, in one directory.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use image::{BundledBytes, KernelOptions};

use crate::config::BundleConfig;
use crate::exit::Exit;
use crate::render::units::{counted, size};
use crate::{messages, recording};

/// Copies the recording and its objects; says what is missing.
///
/// # Errors
/// The recording cannot be read, or the directory not be written.
pub(crate) fn run(config: &BundleConfig) -> Result<Exit> {
    let file = recording::open(&config.input)?;
    let recording = recording::read(&file)?;
    let (image, _) = recording::load(&recording, config.symfs.as_deref(), &KernelOptions::default());
    for problem in image.problems() {
        messages::warn(problem.what);
    }
    let mut total = copy(&config.input, &config.output.join("perf.data"))?;
    let files = image.bundle();
    for file in &files {
        let target = config.output.join(&file.path);
        total += match file.bytes {
            BundledBytes::Borrowed(bytes) => write(bytes, &target)?,
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

fn write(bytes: &[u8], target: &Path) -> Result<u64> {
    create_parent(target)?;
    fs::write(target, bytes).with_context(|| format!("cannot write {}", target.display()))?;
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
