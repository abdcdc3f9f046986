//! An excerpt of a recording: the records of a time, and of each buffer a part of its trace, as a file of its
//! own.
//!
//! ```text
//!   sources    0.data  head | records, trace      1.data  head | records, trace     2.data  ...
//!   excerpt            head | what was there before | threads | records, trace of the time | features
//! ```
//! Records are passed through as they are, but for times: mappings from before have none, as perf writes of
//! those that it finds, and a record saying that a thread is traced or on a CPU has the time at which the
//! excerpt begins.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

use model::{AuxOffset, AuxRecord, Ns};

use super::header::{FileHeader, Layout, Section};
use super::{File, ReadError, bytes};
use crate::{feature_bits, record_types};

mod sorted;

use sorted::{AuxPayload, Before, Item, Kind, Sorted, Start};

/// A file of which an excerpt is made. Those of one recording, in their order, are as one.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file.
    pub file: &'a File,
    /// Where in it the records begin that the files before it do not have.
    pub new_from: u64,
}

/// What an excerpt has.
#[derive(Clone, Debug)]
pub struct Excerpt {
    /// Its records are not older.
    pub from: Ns,
    /// Its records are not newer.
    pub to: Ns,
    /// The trace of each buffer, by perf's number of it; of others it has none. One of a thread that died
    /// before `from` is left out: no record of the excerpt would tell of that thread.
    pub trace: BTreeMap<u32, Range<AuxOffset>>,
    /// It is copies of rings: the kernel's places are those in the ring, and not in the buffer's stream.
    pub is_of_copies: bool,
    /// Records that no source has: what is mapped, without times, as the kernel does not tell of it.
    pub untold: Vec<u8>,
}

/// Why there is no excerpt.
#[derive(Debug, thiserror::Error)]
pub enum ExcerptError {
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// The file has its records in another form.
    #[error("no part of {0} can be copied; `perf inject -i FILE -o NEW` writes a file with plain records")]
    Form(&'static str),
}

/// Bytes of `struct perf_file_header`.
const FILE_HEADER_SIZE: u64 = 104;
/// Bytes of the id of an event.
const ID_LEN: usize = 8;
/// AUX payloads are whole words.
const WORD: u64 = 8;
/// Writes the excerpt; `out` is at its start.
///
/// # Errors
/// [`ExcerptError`].
pub fn write_excerpt(
    sources: &[Source<'_>],
    excerpt: &Excerpt,
    out: &mut (impl Write + Seek),
) -> Result<(), ExcerptError> {
    let files: Option<Vec<&[u8]>> = sources.iter().map(|source| source.file.only_part()).collect();
    let files = files.ok_or(ExcerptError::Form("a recording of perf record --threads"))?;
    let Some((newest, header)) = files.last().and_then(|file| Some((*file, file_header(file)?))) else {
        return Err(ExcerptError::Form("a recording in the layout of pipes"));
    };
    if header.has_feature(feature_bits::COMPRESSED) {
        return Err(ExcerptError::Form("a recording with compressed records"));
    }
    let sorted = sort(sources, &files, excerpt)?;
    let mut writer = Copier { out, files: &files, excerpt, position: 0 };
    writer.put(&[0; FILE_HEADER_SIZE as usize])?;
    let attrs = writer.attrs(newest, &header)?;
    let data_start = writer.position;
    writer.records(sorted)?;
    let data_end = writer.position;
    let features = writer.features(newest, &header)?;
    let data = Section { offset: data_start, size: data_end - data_start };
    let head = head_of(header.attr_size, attrs, data, features);
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&head)?;
    Ok(out.flush()?)
}

fn file_header(file: &[u8]) -> Option<FileHeader> {
    match Layout::read(file)? {
        Layout::File(header) => Some(header),
        Layout::Pipe { .. } => None,
    }
}

/// A file's attrs, each with its ids.
fn attrs_of<'a>(file: &'a [u8], header: &FileHeader) -> Vec<(&'a [u8], &'a [u8])> {
    let count = header.attrs.size.checked_div(header.attr_size).unwrap_or(0);
    // As a reader takes them: sections that overlap would make a file of any size.
    let mut left = file.len();
    let attr = |index: u64| {
        let at = header.attrs.offset.saturating_add(index.saturating_mul(header.attr_size));
        let (attr, ids) = bytes::at(file, at, header.attr_size)?.split_last_chunk::<16>()?;
        let ids = Section::read(&mut bytes::Cursor::new(ids)).and_then(|section| section.of(file));
        let ids = ids.filter(|ids| ids.len() <= left).unwrap_or_default();
        left -= ids.len();
        Some((attr, ids))
    };
    (0..count).map_while(attr).collect()
}

/// Goes through all records.
fn sort(sources: &[Source<'_>], files: &[&[u8]], excerpt: &Excerpt) -> Result<Sorted, ExcerptError> {
    let mut sorted = Sorted::default();
    for (number, (source, file)) in sources.iter().zip(files).enumerate() {
        let mut is_compressed = false;
        source.file.list(&mut |listed| {
            is_compressed |=
                matches!(listed.record_type, record_types::COMPRESSED | record_types::COMPRESSED2);
            if number == 0 || listed.record.file_offset >= source.new_from {
                sorted.add((number, file), listed, excerpt);
            }
        })?;
        if is_compressed {
            return Err(ExcerptError::Form("a recording with compressed records"));
        }
    }
    Ok(sorted)
}

/// Copies the records and the trace of the excerpt.
struct Copier<'a, W> {
    out: &'a mut W,
    files: &'a [&'a [u8]],
    excerpt: &'a Excerpt,
    position: u64,
}

impl<'a, W: Write + Seek> Copier<'a, W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        // By way of memory: of a mapped file that was cut a system call has no bytes.
        let mut copied = Vec::new();
        for part in bytes.chunks(COPIED_BYTES) {
            copied.clear();
            copied.extend_from_slice(part);
            self.out.write_all(&copied)?;
        }
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// The ids of all events, and then the newest file's attrs. Returns the section of these. Threads that
    /// had died when a file began have no ids in it.
    fn attrs(&mut self, newest: &[u8], header: &FileHeader) -> io::Result<Section> {
        let all = |file: &&'a [u8]| Some(attrs_of(file, &file_header(file)?));
        let of_files: Vec<_> = self.files.iter().filter_map(all).collect();
        let mut entries = Vec::new();
        for (index, (attr, _)) in attrs_of(newest, header).into_iter().enumerate() {
            let ids = of_files.iter().filter_map(|attrs| Some(attrs.get(index)?.1));
            let mut taken = BTreeSet::new();
            let ids = ids.flat_map(|ids| ids.chunks_exact(ID_LEN)).filter(|id| taken.insert(*id));
            let ids: Vec<u8> = ids.flatten().copied().collect();
            let section = Section { offset: self.position, size: ids.len() as u64 };
            self.put(&ids)?;
            entries.extend_from_slice(attr);
            entries.extend_from_slice(&section.encode());
        }
        let section = Section { offset: self.position, size: entries.len() as u64 };
        self.put(&entries)?;
        Ok(section)
    }

    fn records(&mut self, sorted: Sorted) -> io::Result<()> {
        for item in &sorted.own {
            self.whole(item)?;
        }
        let (excerpt, buffers, dead) = (self.excerpt, &sorted.buffers, sorted.buffers_of_dead());
        let wanted = |buffer: u32| excerpt.trace.get(&buffer).filter(|_| !dead.contains(&buffer));
        let start = Start::new(sorted.earlier, sorted.switches);
        for item in &start.state {
            self.at_time(item, Ns(0))?;
        }
        self.put(&self.excerpt.untold)?;
        // In their order: a thread that is off its CPU has left it before the next one came, and one that
        // began to be traced on a CPU does not take it from the one that came later.
        let mut of_threads: Vec<_> = start.threads.values().flat_map(Before::records).collect();
        of_threads.sort_by_key(|(_, (number, _))| *number);
        for item in start.left.values() {
            self.idle_leaves(item)?;
        }
        for (_, (_, item)) in &of_threads {
            self.at_time(item, self.excerpt.from)?;
        }
        for (item, kind) in &sorted.inside {
            match kind {
                Kind::AsItIs => self.whole(item)?,
                Kind::Trace(payload) => {
                    if let Some(wanted) = wanted(payload.buffer) {
                        self.trace(item, *payload, wanted)?;
                    }
                }
                Kind::Aux(said) => {
                    if let Some(wanted) = buffers.index_of(said).and_then(wanted) {
                        self.aux(item, said.record, wanted)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn bytes_of(&self, item: &Item) -> &[u8] {
        let file = self.files.get(item.source).copied().unwrap_or_default();
        bytes::at(file, item.at, item.size as u64).unwrap_or_default()
    }

    /// A record, with what follows it.
    fn whole(&mut self, item: &Item) -> io::Result<()> {
        let file = self.files.get(item.source).copied().unwrap_or_default();
        let record = self.bytes_of(item).to_vec();
        let payload = match word(&record, 0) as u32 {
            record_types::HEADER_TRACING_DATA => u64::from(word(&record, 8) as u32),
            _ => 0,
        };
        self.put(&record)?;
        self.put(bytes::at(file, item.at + item.size as u64, payload).unwrap_or_default())
    }

    /// The idle task leaves the CPU of this switch record as the excerpt begins. The trace may begin at a PSB
    /// long before that, when other threads ran, and readers take it for that of the only thread, where no
    /// record says what runs on the CPU, or of the first that leaves it.
    fn idle_leaves(&mut self, item: &Item) -> io::Result<()> {
        let mut record = self.bytes_of(item).to_vec();
        let Some(time_at) = item.time_at else { return Ok(()) };
        set_word(&mut record, time_at, self.excerpt.from.0);
        // `pid, tid` stand before the time (PERF_SAMPLE_TID, PERF_SAMPLE_TIME).
        if let Some(of_thread) = time_at.checked_sub(WORD as usize) {
            set_word(&mut record, of_thread, 0);
        }
        self.put(&record)
    }

    /// A record that happened at this time instead.
    fn at_time(&mut self, item: &Item, time: Ns) -> io::Result<()> {
        let mut record = self.bytes_of(item).to_vec();
        if let Some(at) = item.time_at {
            set_word(&mut record, at, time.0);
        }
        self.put(&record)
    }

    /// What is wanted of a payload.
    fn trace(
        &mut self,
        item: &Item,
        AuxPayload { size, offset, .. }: AuxPayload,
        wanted: &Range<AuxOffset>,
    ) -> io::Result<()> {
        let file = self.files.get(item.source).copied().unwrap_or_default();
        let mut record = self.bytes_of(item).to_vec();
        let end = offset.saturating_add(size);
        let (from, to) = (offset.max(wanted.start.0), end.min(wanted.end.0));
        if from >= to {
            return Ok(());
        }
        // The payload may end with up to seven bytes of padding, which lie over the next payload. As many
        // again would make a whole word, which a reader takes for damage. So the front is cut at a word.
        let from = from - (from - offset) % WORD;
        let payload = item.at + item.size as u64 + (from - offset);
        let payload = bytes::at(file, payload, to - from).unwrap_or_default();
        let padding = (to - from).next_multiple_of(WORD) - (to - from);
        set_word(&mut record, 8, to - from + padding);
        set_word(&mut record, 16, from);
        self.put(&record)?;
        self.put(payload)?;
        self.put([0; WORD as usize].get(..padding as usize).unwrap_or_default())
    }

    /// What the kernel said of trace that is wanted.
    fn aux(&mut self, item: &Item, said: AuxRecord, wanted: &Range<AuxOffset>) -> io::Result<()> {
        let (from, to) = (said.offset.max(wanted.start), said.end().min(wanted.end));
        let is_silent = said.size == 0 && wanted.contains(&said.offset);
        if from >= to && !is_silent {
            return Ok(());
        }
        // What was lost was lost at the end.
        let flags = if to < said.end() { 0 } else { said.flags };
        let mut record = self.bytes_of(item).to_vec();
        for (at, value) in [(8, from.0), (16, to.0.saturating_sub(from.0)), (24, flags)] {
            set_word(&mut record, at, value);
        }
        if let (Some(at), Some(time)) = (item.time_at, said.time) {
            set_word(
                &mut record,
                at,
                time.clamp(self.excerpt.from, self.excerpt.to.max(self.excerpt.from)).0,
            );
        }
        self.put(&record)
    }

    /// All features but the index of the trace. Returns their bits.
    fn features(&mut self, file: &[u8], header: &FileHeader) -> io::Result<[u64; 4]> {
        let mut bits = [0; 4];
        let Some(start) = header.data.end().filter(|_| header.data.size != 0) else { return Ok(bits) };
        let mut sections = Vec::new();
        let mut left = file.len();
        for (index, bit) in header.feature_bits().enumerate() {
            let entry = start.checked_add(16 * index as u64).and_then(|at| bytes::at(file, at, 16));
            let section = entry.and_then(|entry| Section::read(&mut bytes::Cursor::new(entry)));
            let contents = section.and_then(|section| section.of(file)).filter(|it| it.len() <= left);
            if let (Some(contents), Some(word)) = (contents, bits.get_mut(bit as usize / 64))
                && bit != feature_bits::AUXTRACE
            {
                *word |= 1 << (bit % 64);
                left -= contents.len();
                sections.push(contents);
            }
        }
        let mut at = self.position + 16 * sections.len() as u64;
        let mut table = Vec::new();
        for contents in &sections {
            table.extend_from_slice(&Section { offset: at, size: contents.len() as u64 }.encode());
            at += contents.len() as u64;
        }
        self.put(&table)?;
        for contents in sections {
            self.put(contents)?;
        }
        Ok(bits)
    }
}

/// Bytes copied in one go.
const COPIED_BYTES: usize = 1 << 20;

/// `struct perf_file_header`.
fn head_of(attr_size: u64, attrs: Section, data: Section, features: [u64; 4]) -> Vec<u8> {
    let mut head = b"PERFILE2".to_vec();
    for value in [FILE_HEADER_SIZE, attr_size] {
        head.extend_from_slice(&value.to_le_bytes());
    }
    for section in [attrs, data, Section::default()] {
        head.extend_from_slice(&section.encode());
    }
    features.iter().for_each(|word| head.extend_from_slice(&word.to_le_bytes()));
    head
}

/// The word at this place of a record; 0 where it ends before.
fn word(record: &[u8], at: usize) -> u64 {
    let word = record.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

fn set_word(record: &mut [u8], at: usize, value: u64) {
    if let Some(word) = record.get_mut(at..at + 8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
}
