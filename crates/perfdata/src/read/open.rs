//! Opening: one file, or the directory that `perf record --kcore` and `--threads` make.
//!
//! ```text
//! perf.data/data          the recording: header, events, records
//! perf.data/data.0 ...    records only, one file for each recording thread (--threads)
//! perf.data/kcore_dir/    the kernel's text as it ran (--kcore)
//! ```

use std::path::{Path, PathBuf};

use model::{Damage, Recording};

use super::collect::{self, Parts};
use super::listing::Listed;
use super::{OpenError, ReadError, error, header};
use crate::mmap::Mapping;

/// An open recording.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    main: Mapping,
    more: Vec<Mapping>,
    kcore_dir: Option<PathBuf>,
}

impl File {
    /// Maps a file, or the files of a directory.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be opened or is not a `perf.data` file of this byte order.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref().to_path_buf();
        let is_dir = std::fs::metadata(&path).map_err(|source| io_error(&path, source))?.is_dir();
        let (main, more) = if is_dir { directory(&path)? } else { (path.clone(), vec![]) };
        let mapping = map(&main)?.ok_or_else(|| OpenError::Empty { path: main.clone() })?;
        header::check_magic(&mapping, &main)?;
        // A thread that had nothing to write leaves an empty file.
        let more = more.iter().filter_map(|path| map(path).transpose()).collect::<Result<_, _>>()?;
        let kcore_dir = Some(path.join("kcore_dir")).filter(|dir| dir.is_dir());
        Ok(Self { path, main: mapping, more, kcore_dir })
    }

    /// Where the recording has the kernel's text (`perf record --kcore`): `kcore`, `kallsyms`, `modules`.
    #[must_use]
    pub fn kcore_dir(&self) -> Option<&Path> {
        self.kcore_dir.as_deref()
    }

    /// Reads all records; the trace stays in the mapping.
    ///
    /// A file that is cut or damaged gives what precedes that place, and says so in
    /// [`Recording::damage`].
    ///
    /// # Errors
    /// [`ReadError`] if the file has no Intel PT that could be decoded.
    pub fn recording(&self) -> Result<Recording<'_>, ReadError> {
        self.with_parts(collect::recording).map_err(|refusal| error::name(refusal, &self.path))
    }

    /// Tells every record in the order of the file, whether it has Intel PT or not.  Returns where the file is
    /// damaged; what follows that place is not told.
    ///
    /// # Errors
    /// [`ReadError`] if no event is described.
    pub fn list(&self, listener: &mut dyn FnMut(&Listed)) -> Result<Option<Damage>, ReadError> {
        self.with_parts(|parts| collect::list(parts, listener))
            .map_err(|refusal| error::name(refusal, &self.path))
    }

    fn with_parts<'a, T>(&'a self, read: impl FnOnce(Parts<'a, '_>) -> T) -> T {
        let more: Vec<&[u8]> = self.more.iter().map(|mapping| &**mapping).collect();
        let mappings: Vec<&Mapping> = std::iter::once(&self.main).chain(&self.more).collect();
        // Nearly all of a file is trace, which is stepped over.
        Mapping::sparsely(&mappings, || read(Parts { main: &self.main, more: &more }))
    }
}

fn io_error(path: &Path, source: std::io::Error) -> OpenError {
    OpenError::Io { path: path.to_path_buf(), source }
}

/// The file `data` of a directory, and the files `data.N` by number.
fn directory(path: &Path) -> Result<(PathBuf, Vec<PathBuf>), OpenError> {
    let main = path.join("data");
    if !main.is_file() {
        return Err(OpenError::Directory { path: path.to_path_buf() });
    }
    let mut numbered = vec![];
    for entry in std::fs::read_dir(path).map_err(|source| io_error(path, source))? {
        let name = entry.map_err(|source| io_error(path, source))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("data.")?.parse::<u32>().ok());
        numbered.extend(number.map(|number| (number, path.join(&name))));
    }
    numbered.sort_unstable();
    Ok((main, numbered.into_iter().map(|(_, path)| path).collect()))
}

/// The bytes of a file; `None` if it is empty.
fn map(path: &Path) -> Result<Option<Mapping>, OpenError> {
    let io = |source| io_error(path, source);
    // Looked at before opening: opening a named pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(OpenError::NotAFile { path: path.to_path_buf() });
    }
    let file = std::fs::File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(None);
    }
    Mapping::of(&file).map(Some).map_err(io)
}
