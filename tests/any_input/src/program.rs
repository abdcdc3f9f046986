//! The program that the streams of the corpora were made from, and how it is mapped.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use image::{Image, ImageOptions};
use model::{
    Avma, FileOffset, FunctionId, FunctionLookup as _, Mmap, Ns, Pid, Sideband, SidebandRecord, SpaceId,
};

/// The process.
pub(crate) const PID: Pid = Pid(1);

/// Where it was linked to: it is not relocated.
pub(crate) const START: u64 = 0x40_0000;

const LEN: u64 = 0x1000;

/// The directory that has the program, `tiny`.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/program")
}

/// A record that maps the code of a file.
pub(crate) fn mapping(path: &Path, start: u64, len: u64) -> SidebandRecord {
    let mmap = Mmap {
        pid: PID,
        start: Avma(start),
        len,
        file_offset: FileOffset(0),
        path: path.to_string_lossy().into_owned(),
        build_id: None,
        inode: None,
        executable: true,
        kernel: false,
    };
    SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body: Sideband::from(mmap) }
}

/// The program's mapping.
pub(crate) fn sideband() -> SidebandRecord {
    mapping(&directory().join("tiny"), START, LEN)
}

/// Its code and functions, read once.
pub(crate) fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let image = Image::load(&[sideband()], &ImageOptions::default());
        assert_eq!(image.problems(), []);
        image
    })
}

/// The functions of the program in an image that has it mapped.
pub(crate) fn functions(image: &Image) -> Vec<FunctionId> {
    let space: SpaceId = model::CodeSource::space(image, PID, Ns(0));
    let mut found: Vec<_> = (START..START + LEN)
        .map(|ip| image.function_at(space, Avma(ip)))
        .filter(|f| f.at_entry)
        .map(|f| f.id)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
