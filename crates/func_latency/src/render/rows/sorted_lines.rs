//! Lines that come in any order and are written in the order of their keys, however many there are.
//!
//! ```text
//!   push --> in memory, up to a bound --sorted--> a run in a scratch file
//!                                                 a run ...                --merged--> write
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// What lines are ordered by; each line has one of its own.
pub(super) type Key = [u64; 4];

/// What one run is read with at least.
const LEAST_BUFFER: usize = 1 << 12;

pub(super) struct SortedLines {
    /// More bytes are not kept in memory.
    bound: usize,
    /// Where the scratch file is made.
    directory: PathBuf,
    text: Vec<u8>,
    lines: Vec<(Key, Range<usize>)>,
    /// A file that is gone with us, and where in it the runs are.
    spilled: Option<File>,
    runs: Vec<Range<u64>>,
}

impl SortedLines {
    /// None yet.  Where they do not fit `bound` bytes, `directory` should have room for them.
    pub(super) fn new(bound: usize, directory: PathBuf) -> Self {
        Self { bound, directory, text: vec![], lines: vec![], spilled: None, runs: vec![] }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The scratch file could not be made or written.
    pub(super) fn push(&mut self, key: Key, line: &[u8]) -> io::Result<()> {
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.lines.push((key, start..self.text.len()));
        let bytes = self.text.len() + self.lines.len() * size_of::<(Key, Range<usize>)>();
        if bytes > self.bound { self.spill() } else { Ok(()) }
    }

    /// The lines in memory, in order.
    fn in_memory(&mut self) -> impl Iterator<Item = (Key, &[u8])> {
        self.lines.sort_unstable_by_key(|(key, _)| *key);
        let text = &self.text;
        self.lines.iter().map(|(key, line)| (*key, text.get(line.clone()).unwrap_or_default()))
    }

    /// Makes a run of the lines in memory.
    fn spill(&mut self) -> io::Result<()> {
        let mut file = match self.spilled.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.directory).or_else(|_| tempfile::tempfile())?,
        };
        let start = self.runs.last().map_or(0, |last| last.end);
        let mut end = start;
        let mut out = BufWriter::with_capacity(1 << 16, &mut file);
        for (key, line) in self.in_memory() {
            let head = key.into_iter().chain([line.len() as u64]).flat_map(u64::to_le_bytes);
            let head: Vec<u8> = head.collect();
            out.write_all(&head)?;
            out.write_all(line)?;
            end += (head.len() + line.len()) as u64;
        }
        out.flush()?;
        drop(out);
        self.spilled = Some(file);
        self.runs.push(start..end);
        self.text.clear();
        self.lines.clear();
        Ok(())
    }

    /// Writes all lines.
    ///
    /// # Errors
    /// What `out` says, or the scratch file could not be written or read.
    pub(super) fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.runs.is_empty() {
            return self.in_memory().try_for_each(|(_, line)| out.write_all(line));
        }
        self.spill()?;
        let Some(file) = self.spilled else { return Ok(()) };
        let buffer = (self.bound / self.runs.len()).clamp(LEAST_BUFFER, 1 << 20);
        let readers = self.runs.into_iter().map(|run| SortedRun::new(&file, run, buffer));
        let mut readers: Vec<SortedRun<'_>> = readers.collect();
        let mut next = BinaryHeap::new();
        for (number, run) in readers.iter_mut().enumerate() {
            next.extend(run.key()?.map(|key| Reverse((key, number))));
        }
        while let Some(Reverse((_, number))) = next.pop() {
            let Some(run) = readers.get_mut(number) else { break };
            run.copy_line(out)?;
            next.extend(run.key()?.map(|key| Reverse((key, number))));
        }
        Ok(())
    }
}

/// A run that is read.
struct SortedRun<'f>(BufReader<Section<'f>>);

impl<'f> SortedRun<'f> {
    fn new(file: &'f File, place: Range<u64>, buffer: usize) -> Self {
        Self(BufReader::with_capacity(buffer, Section { file, place }))
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The next line's, which is to be copied then; `None` at the end.
    fn key(&mut self) -> io::Result<Option<Key>> {
        if self.0.fill_buf()?.is_empty() {
            return Ok(None);
        }
        Ok(Some([self.number()?, self.number()?, self.number()?, self.number()?]))
    }

    fn copy_line(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let len = self.number()?;
        let copied = io::copy(&mut self.0.by_ref().take(len), out)?;
        if copied == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// What is left of a part of a file; each has a place of its own in it.
struct Section<'f> {
    file: &'f File,
    place: Range<u64>,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.place.end - self.place.start).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let read = self.file.read_at(buffer.get_mut(..wanted).unwrap_or_default(), self.place.start)?;
        self.place.start += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 lines of many lengths, in the order of a walk through all numbers below.
    fn written(bound: usize) -> (String, usize) {
        let mut lines = SortedLines::new(bound, std::env::temp_dir());
        for number in (0..1000_u64).map(|i| i * 337 % 1000) {
            let line = format!("{number} {}\n", "x".repeat(number as usize % 50));
            lines.push([number / 100, 7, number % 100, 0], line.as_bytes()).unwrap();
        }
        let runs = lines.runs.len();
        let mut out = Vec::new();
        lines.write(&mut out).unwrap();
        (String::from_utf8(out).unwrap(), runs)
    }

    #[test]
    fn the_order_is_that_of_the_keys_whatever_the_bound() {
        let (whole, runs) = written(1 << 20);
        assert_eq!(runs, 0);
        let numbers: Vec<u64> =
            whole.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        for (bound, expected) in [(0, 1000), (1000, 90), (50_000, 1)] {
            let (spilled, runs) = written(bound);
            assert_eq!(spilled, whole, "{bound}");
            assert!(runs >= expected / 2, "{bound}: {runs} runs");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_not_the_end() {
        let mut lines = SortedLines::new(0, PathBuf::from("/proc/self"));
        lines.push([1; 4], b"b").unwrap();
        lines.push([0; 4], b"a").unwrap();
        let mut out = Vec::new();
        lines.write(&mut out).unwrap();
        assert_eq!(out, b"ab");
    }
}
