//! Several files of parts, as one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use decoder::{SegmentOutput, StoredOutputs, StoredSegment};

use super::file::{Entry, Facts, PartFile, PartWriter, overlapping};
use crate::calls::Opened;
use crate::exit::{Exit, failure};
use crate::stored_trace::StoredTrace;
use crate::{output, recording_id};

/// Parts of one recording.
pub(crate) struct PartSet {
    files: Vec<PartFile>,
    /// Of all files: those of the file with this number. In the order of their keys.
    entries: Vec<(usize, Entry)>,
    facts: Facts,
    /// The first output that could not be read.
    error: Mutex<Option<anyhow::Error>>,
}

impl PartSet {
    /// Opens files of parts.
    ///
    /// # Errors
    /// One cannot be read, they are of different recordings or calls, or a part is there twice.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Self> {
        let files: Vec<PartFile> = paths.iter().map(|path| PartFile::open(path)).collect::<Result<_>>()?;
        let first = files.iter().min_by_key(|file| file.facts.parts.first()).context("there is no part")?;
        let mut facts = Facts { parts: Vec::new(), ..first.facts.clone() };
        let mut known = BTreeSet::new();
        for (file, path) in files.iter().zip(paths) {
            let is_of = |facts: &Facts| Facts { parts: Vec::new(), words: Vec::new(), ..facts.clone() };
            if let Some(why) = difference(&is_of(&file.facts), &is_of(&facts)) {
                return Err(failure(Exit::Usage, format!("{}: {why}", path.display())));
            }
            if let Some(twice) = file.facts.parts.iter().find(|part| !known.insert(**part)) {
                let of = facts.of;
                let message =
                    format!("{}: part {twice} of {of} is there twice: name it once", path.display());
                return Err(failure(Exit::Usage, message));
            }
        }
        // Before their command line is read, which another version may not know.
        if facts.version != env!("CARGO_PKG_VERSION") {
            let message = format!("the parts were made by version {}: make them again", facts.version);
            return Err(failure(Exit::BadInput, message));
        }
        facts.parts = known.into_iter().collect();
        let entries = (0..)
            .zip(&files)
            .flat_map(|(number, file)| file.entries.iter().map(move |entry| (number, *entry)));
        let mut entries: Vec<(usize, Entry)> = entries.collect();
        entries.sort_by_key(|(_, entry)| entry.segment.key());
        let overlapping = overlapping(entries.iter().map(|(_, entry)| &entry.segment));
        let file = overlapping.and_then(|number| files.get(entries.get(number)?.0));
        if let Some(file) = file {
            return Err(file.bad("has trace that another part has, too"));
        }
        Ok(Self { files, entries, facts, error: Mutex::default() })
    }

    /// What the parts are of.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether a recording is the one that the parts are of, and its code is as it was then.
    ///
    /// # Errors
    /// It is another one, or the code is.
    pub(crate) fn check_fits(&self, opened: &Opened<'_>) -> Result<()> {
        let (input, recording) = (opened.config.input.display(), recording_id::of(opened.recording));
        if recording != self.facts.recording {
            let message = format!(
                "{input} is recording {recording}, and the parts are of {}: name theirs with -i FILE",
                self.facts.recording
            );
            return Err(failure(Exit::Usage, message));
        }
        if recording_id::of_code(opened.image) != self.facts.code {
            let message = format!(
                "the objects and symbols that {input} names are others here than where the parts were made: \
                 give theirs with --symfs DIR"
            );
            return Err(failure(Exit::BadInput, message));
        }
        Ok(())
    }

    /// The parts that are not there.
    pub(crate) fn missing(&self) -> Vec<u32> {
        (1..=self.facts.of).filter(|part| self.facts.parts.binary_search(part).is_err()).collect()
    }

    /// Lays the parts together.
    ///
    /// # Errors
    /// One is damaged, or the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut damaged = Ok(());
        let written = output::write_file(path, |out| {
            let mut writer = PartWriter::new(out)?;
            for (file, entry) in &self.entries {
                match self.files.get(*file).map(|file| file.bytes(entry)) {
                    Some(Ok(bytes)) => writer.add(entry.segment, bytes)?,
                    Some(Err(error)) => {
                        damaged = Err(error);
                        return Err(std::io::Error::other("a part is damaged"));
                    }
                    None => (),
                }
            }
            writer.finish(&self.facts)
        });
        damaged.and(written)
    }
}

impl StoredTrace for PartSet {
    fn segments(&self) -> Vec<StoredSegment> {
        self.entries.iter().map(|(_, entry)| entry.segment).collect()
    }

    fn check_read(&self) -> Result<()> {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.take().map_or(Ok(()), Err)
    }
}

impl PartSet {
    /// What `read` finds of the output of a segment; nothing where it fails.
    fn read<T: Default>(
        &self,
        segment: &StoredSegment,
        read: impl FnOnce(&PartFile, &Entry) -> Result<T>,
    ) -> T {
        let place = self.entries.binary_search_by_key(&segment.key(), |(_, entry)| entry.segment.key());
        let entry = place.ok().and_then(|place| self.entries.get(place));
        let found = entry.and_then(|(file, entry)| Some((self.files.get(*file)?, entry)));
        let Some((file, entry)) = found else { return T::default() };
        read(file, entry).unwrap_or_else(|error| {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            T::default()
        })
    }
}

impl StoredOutputs for PartSet {
    fn output(&self, segment: &StoredSegment) -> SegmentOutput {
        self.read(segment, PartFile::output)
    }

    fn mismatch(&self, segment: &StoredSegment) {
        let what = format!("has other calls at AUX offset {} than the recording's trace", segment.at);
        self.read(segment, |file, _| Err::<(), _>(file.bad(what)));
    }
}

/// Why parts do not belong together; `None`: they do.
fn difference(one: &Facts, other: &Facts) -> Option<String> {
    let Facts { version, recording, code, asked, of, words: _, parts: _ } = one;
    if *recording != other.recording {
        return Some(format!("is of recording {recording}, and the other parts are of {}", other.recording));
    }
    if *of != other.of {
        return Some(format!(
            "is one of {of} parts, and the others of {}: make all with the same N",
            other.of
        ));
    }
    if *version != other.version {
        return Some(format!(
            "was made by version {version}, and other parts by {}: make all by one",
            other.version
        ));
    }
    if *code != other.code {
        let why = "was made with other objects or symbols than the other parts were: make all with the same \
                   files (--symfs, a bundle)";
        return Some(why.to_owned());
    }
    let why = "was made of other calls than the other parts were: make all with the same -f, --region, \
               -I, -b, -a, --li, --ti, -p, -T, --decoder, and kind of kernel code (--kcore, --vmlinux)";
    (*asked != other.asked).then(|| why.to_owned())
}
