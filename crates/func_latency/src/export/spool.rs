//! Records of many threads, in a scratch file: as they come in, and out by thread.
//!
//! ```text
//!   thread 1   [ block ]  [ block ]  [ in memory
//!   thread 2        [ block ]   [ in memory
//!   file       |1.......|2.......|1.......|
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use model::{FunctionId, Ns};

/// Records of a block: a thread has at most one block in memory.
const BLOCK: usize = if cfg!(test) { 2 } else { 1 << 10 };

/// What is kept in a scratch file: [`Self::WORDS`] numbers.
pub(super) trait Record: Copy {
    /// Numbers of a record.
    const WORDS: usize;

    /// Appends the numbers.
    fn put(self, words: &mut Vec<u64>);

    /// The record of its numbers; `None`: there are too few.
    fn read(words: &[u64]) -> Option<Self>;
}

/// A stretch of time in which one function ran itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The number of its stack.
    pub(super) stack: u32,
    /// The function of the open call that it is of; `None`: the call was seen whole.
    pub(super) open: Option<FunctionId>,
    pub(super) from: Ns,
    pub(super) ns: u64,
}

impl Record for Sample {
    const WORDS: usize = 3;

    fn put(self, words: &mut Vec<u64>) {
        // No call is of a function that is not known.
        let open = self.open.unwrap_or(FunctionId::UNKNOWN).0;
        words.extend([u64::from(self.stack) << 32 | u64::from(open), self.from.0, self.ns]);
    }

    fn read(words: &[u64]) -> Option<Self> {
        let [numbers, from, ns] = *words else { return None };
        let open = FunctionId(numbers as u32);
        let open = (open != FunctionId::UNKNOWN).then_some(open);
        Some(Self { stack: (numbers >> 32) as u32, open, from: Ns(from), ns })
    }
}

/// The scratch file.
#[derive(Debug)]
pub(super) struct SampleSpool {
    /// Where it is made, if it is needed and there is room.
    directory: PathBuf,
    file: Option<File>,
    end: u64,
}

/// A thread's records.
#[derive(Debug)]
pub(super) struct Records<R> {
    /// Where in the file each full block is.
    blocks: Vec<u64>,
    last: Vec<R>,
}

impl<R> Default for Records<R> {
    fn default() -> Self {
        Self { blocks: Vec::new(), last: Vec::new() }
    }
}

impl SampleSpool {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, file: None, end: 0 }
    }

    /// Adds a record to those of a thread.
    ///
    /// # Errors
    /// The scratch file could not be made or written.
    pub(super) fn push<R: Record>(&mut self, records: &mut Records<R>, record: R) -> io::Result<()> {
        records.last.push(record);
        if records.last.len() < BLOCK {
            return Ok(());
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.directory).or_else(|_| tempfile::tempfile())?,
        };
        let mut words = Vec::with_capacity(BLOCK * R::WORDS);
        records.last.drain(..).for_each(|record| record.put(&mut words));
        let block: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&block)?;
        records.blocks.push(self.end);
        self.end += block.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    /// Gives all records of a thread to `take`, in their order.
    ///
    /// # Errors
    /// Those of `take`, or the scratch file could not be read.
    pub(super) fn each<R: Record>(
        &self,
        records: &Records<R>,
        mut take: impl FnMut(R) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut block = vec![0; BLOCK * R::WORDS * 8];
        for at in &records.blocks {
            self.file.as_ref().map_or(Ok(()), |file| file.read_exact_at(&mut block, *at))?;
            let word = |eight: &[u8]| eight.try_into().map_or(0, u64::from_le_bytes);
            let words: Vec<u64> = block.chunks_exact(8).map(word).collect();
            words.chunks_exact(R::WORDS).filter_map(R::read).try_for_each(&mut take)?;
        }
        records.last.iter().copied().try_for_each(take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_threads_come_back_in_their_order() {
        let mut spool = SampleSpool::new(std::env::temp_dir());
        let mut threads = [Records::default(), Records::default()];
        let sample = |number: u64| Sample {
            stack: number as u32,
            open: (number % 3 == 1).then_some(FunctionId(u32::MAX)),
            from: Ns(u64::MAX - number),
            ns: number << 40,
        };
        for number in 0..9 {
            spool.push(&mut threads[number as usize % 2], sample(number)).unwrap();
        }
        for (samples, numbers) in threads.iter().zip([&[0, 2, 4, 6, 8][..], &[1, 3, 5, 7]]) {
            let mut found = Vec::new();
            spool
                .each(samples, |sample: Sample| {
                    found.push(sample);
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, numbers.iter().map(|number| sample(*number)).collect::<Vec<_>>());
        }
    }
}
