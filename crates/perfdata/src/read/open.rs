//! Opening: one file, or the directory that `perf record --kcore` and `--threads` make.
//!
//! ```text
//! perf.data/data          the recording: header, events, records
//! perf.data/data.0 ...    records only, one file for each recording thread (--threads)
//! perf.data/kcore_dir/    the kernel's text as it ran (--kcore)
//! ```

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use files::{MappedFile, Place};
use model::{Damage, Recording};

use super::collect::{self, Parts};
use super::listing::Listed;
use super::record_window::FileBytes;
use super::{OpenError, ReadError, error, header};

/// An open recording.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    main: Part,
    more: Vec<Part>,
}

/// A file of a recording.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: MappedFile,
}

impl File {
    /// Maps a file, or the files of a directory, where links count for nothing: perf makes none.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be opened or is not a `perf.data` file of this byte order.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, Part::open)
    }

    /// Maps what this process has written and no other one cuts: it is not kept open, so that there may be
    /// any number of these.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_own(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, Part::open_own)
    }

    fn open_with(
        path: impl AsRef<Path>,
        open_part: impl Fn(PathBuf, Result<fs::File, Error>) -> Result<Option<Part>, OpenError>,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref().to_path_buf();
        let is_dir = fs::metadata(&path).map_err(|source| io_error(&path, source))?.is_dir();
        let (main, more) = if is_dir { directory(&path)? } else { (path.clone(), vec![]) };
        let open = |path: PathBuf| {
            let place = Place::here(&path);
            open_part(path, if is_dir { place.open_unlinked() } else { place.open() })
        };
        let main = open(main.clone())?.ok_or(OpenError::Empty { path: main })?;
        header::check_magic(&main.bytes, &main.path)?;
        // A thread that had nothing to write leaves an empty file.
        let more = more.into_iter().filter_map(|path| open(path).transpose()).collect::<Result<_, _>>()?;
        Ok(Self { path, main, more })
    }

    /// The bytes of each file, as they were opened; with its name, if the recording is a directory.
    pub fn files(&self) -> impl Iterator<Item = (Option<&Path>, &[u8])> {
        let is_dir = self.main.path != self.path;
        self.parts().map(move |part| {
            let name = part.path.file_name().filter(|_| is_dir);
            (name.map(Path::new), &*part.bytes)
        })
    }

    /// The bytes of a recording that is one file; `None`: it is several.
    pub(super) fn only_part(&self) -> Option<&[u8]> {
        self.more.is_empty().then_some(&*self.main.bytes)
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.main).chain(&self.more)
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

    /// Tells every record in the order of the file, whether it has Intel PT or not. Returns where the file is
    /// damaged; what follows that place is not told.
    ///
    /// # Errors
    /// [`ReadError`] if no event is described.
    pub fn list(&self, listener: &mut dyn FnMut(&Listed)) -> Result<Option<Damage>, ReadError> {
        self.with_parts(|parts| collect::list(parts, listener))
            .map_err(|refusal| error::name(refusal, &self.path))
    }

    fn with_parts<'a, T>(&'a self, read: impl FnOnce(Parts<'a, '_>) -> T) -> T {
        let bytes = |part: &'a Part| FileBytes { mapped: &part.bytes, file: part.bytes.file() };
        let more: Vec<FileBytes<'_>> = self.more.iter().map(bytes).collect();
        let mapped: Vec<&MappedFile> = self.parts().map(|part| &part.bytes).collect();
        // Nearly all of a file is trace, which is stepped over.
        MappedFile::sparsely(&mapped, || read(Parts { main: bytes(&self.main), more: &more }))
    }
}

impl Part {
    /// `None` if the file is empty.
    fn open(path: PathBuf, opened: Result<fs::File, Error>) -> Result<Option<Self>, OpenError> {
        Self::mapped(path, opened, MappedFile::watched)
    }

    /// Maps it, and closes it.
    fn open_own(path: PathBuf, opened: Result<fs::File, Error>) -> Result<Option<Self>, OpenError> {
        Self::mapped(path, opened, |file, path| MappedFile::of(&file, path))
    }

    fn mapped(
        path: PathBuf,
        opened: Result<fs::File, Error>,
        map: impl FnOnce(fs::File, &Path) -> Result<MappedFile, Error>,
    ) -> Result<Option<Self>, OpenError> {
        let io = |source| io_error(&path, source);
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                return Err(OpenError::NotAFile { path });
            }
            opened => opened.map_err(io)?,
        };
        let bytes = map(file, &path).map_err(io)?;
        Ok((!bytes.is_empty()).then_some(Self { path, bytes }))
    }
}

fn io_error(path: &Path, source: Error) -> OpenError {
    OpenError::Io { path: path.to_path_buf(), source }
}

/// The file `data` of a directory, and the files `data.N` by number.
fn directory(path: &Path) -> Result<(PathBuf, Vec<PathBuf>), OpenError> {
    let main = path.join("data");
    if !main.is_file() {
        return Err(OpenError::Directory { path: path.to_path_buf() });
    }
    let mut numbered = vec![];
    for entry in fs::read_dir(path).map_err(|source| io_error(path, source))? {
        let name = entry.map_err(|source| io_error(path, source))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("data.")?.parse::<u32>().ok());
        numbered.extend(number.map(|number| (number, path.join(&name))));
    }
    numbered.sort_unstable();
    Ok((main, numbered.into_iter().map(|(_, path)| path).collect()))
}
