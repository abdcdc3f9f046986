//! `bundle`: a recording and all files that its analysis uses, in one directory.
//!
//! ```text
//! DIR/perf.data      the recording: a file, or a directory (perf record --threads)
//! DIR/objects/       what --symfs gets
//! ```
//! The profiled processes chose the names of all these files, and the profiler may read more than they may.
//! So a bundle has what was read and understood, and no copy of a path.  It is written beside its place,
//! which it takes when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use image::{Bundle, Image};
use recorder::let_large_writes_fail;
use tempfile::TempDir;

use crate::config::BundleConfig;
use crate::exit::Exit;
use crate::output::{cannot_write, directory};
use crate::render::units::{counted, size};
use crate::{messages, recording};

/// The directory of a bundle that `--symfs` gets.
const OBJECTS: &str = "objects";

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
    let mut bundles = vec![image.bundle()];
    if recording.pt.kernel {
        bundles.push(of_kernel(&image));
    }
    warn_of_left_out(&image, &bundles);
    let target = Target::new(&config.output)?;
    let mut total = 0;
    for (name, bytes) in file.files() {
        let path = name.map_or_else(|| "perf.data".into(), |name| Path::new("perf.data").join(name));
        total += target.write(&path, bytes)?;
    }
    let files = || bundles.iter().flat_map(|bundle| &bundle.files);
    for file in files() {
        total += target.write(&Path::new(OBJECTS).join(&file.path), &file.bytes)?;
    }
    recording::check_uncut()?;
    target.take_place()?;
    let directory = config.output.display();
    messages::note(format!(
        "{} and the recording, {}; report with: func_latency report -i {directory}/perf.data --symfs {directory}/{OBJECTS} ...",
        counted(files().count() as u64, "file"),
        size(total)
    ));
    Ok(Exit::Done)
}

fn of_kernel(image: &Image) -> Bundle<'_> {
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

/// A directory that is being written; dropped before it takes its place, it is removed.
struct Target<'a> {
    place: &'a Path,
    beside: TempDir,
}

impl<'a> Target<'a> {
    fn new(place: &'a Path) -> Result<Self> {
        let_large_writes_fail();
        let parent = directory(place);
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        // Objects and kernel text that not every user may read are in it.
        let ours = fs::Permissions::from_mode(0o700);
        let beside = tempfile::Builder::new().prefix(".bundle-").permissions(ours).tempdir_in(parent);
        Ok(Self { place, beside: beside.with_context(|| cannot_write(place))? })
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        self.write_file(path, bytes).with_context(|| cannot_write(&self.place.join(path)))
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<u64> {
        let path = self.beside.path().join(path);
        fs::create_dir_all(directory(&path))?;
        let mut file = File::create_new(path)?;
        // By way of memory: of a mapped file that was cut, a system call has no bytes.
        let mut buffer = Vec::new();
        for part in bytes.chunks(COPIED_BYTES) {
            buffer.clear();
            buffer.extend_from_slice(part);
            file.write_all(&buffer)?;
        }
        Ok(bytes.len() as u64)
    }

    /// Takes the place of nothing, or of an empty directory.
    fn take_place(self) -> Result<()> {
        // `dir/` and `dir` are one directory.
        let place: PathBuf = self.place.components().collect();
        fs::rename(self.beside.path(), place).with_context(|| cannot_write(self.place))?;
        // There is nothing left to remove.
        let _ = self.beside.keep();
        Ok(())
    }
}

/// Bytes copied in one go.
const COPIED_BYTES: usize = 1 << 20;
