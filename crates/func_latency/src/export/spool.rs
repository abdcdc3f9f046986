//! Samples of many threads, in a scratch file: as they come in, and out by thread.
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

/// Samples of a block: a thread has at most one block in memory.
const BLOCK: usize = if cfg!(test) { 2 } else { 1 << 10 };

/// Bytes of a sample in the file.
const SAMPLE_BYTES: usize = 24;

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

impl Sample {
    fn to_bytes(self) -> [u8; SAMPLE_BYTES] {
        // No call is of a function that is not known.
        let open = self.open.unwrap_or(FunctionId::UNKNOWN).0;
        let mut bytes = [0; SAMPLE_BYTES];
        let (numbers, times) = bytes.split_at_mut(8);
        numbers.copy_from_slice(&(u64::from(self.stack) << 32 | u64::from(open)).to_le_bytes());
        let (from, ns) = times.split_at_mut(8);
        from.copy_from_slice(&self.from.0.to_le_bytes());
        ns.copy_from_slice(&self.ns.to_le_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes.chunks_exact(8).map(|eight| eight.try_into().map_or(0, u64::from_le_bytes));
        let (numbers, from, ns) = (numbers.next()?, Ns(numbers.next()?), numbers.next()?);
        let open = FunctionId(numbers as u32);
        let open = (open != FunctionId::UNKNOWN).then_some(open);
        Some(Self { stack: (numbers >> 32) as u32, open, from, ns })
    }
}

/// The scratch file.
#[derive(Debug)]
pub(super) struct Spool {
    /// Where it is made, if it is needed and there is room.
    directory: PathBuf,
    file: Option<File>,
    end: u64,
}

/// A thread's samples.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Where in the file each full block is.
    blocks: Vec<u64>,
    last: Vec<Sample>,
}

impl Spool {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, file: None, end: 0 }
    }

    /// Adds a sample to those of a thread.
    ///
    /// # Errors
    /// The scratch file could not be made or written.
    pub(super) fn push(&mut self, samples: &mut Samples, sample: Sample) -> io::Result<()> {
        samples.last.push(sample);
        if samples.last.len() < BLOCK {
            return Ok(());
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.directory).or_else(|_| tempfile::tempfile())?,
        };
        let block: Vec<u8> = samples.last.drain(..).flat_map(Sample::to_bytes).collect();
        file.write_all(&block)?;
        samples.blocks.push(self.end);
        self.end += block.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    /// Gives all samples of a thread to `take`, in their order.
    ///
    /// # Errors
    /// Those of `take`, or the scratch file could not be read.
    pub(super) fn each(
        &self,
        samples: &Samples,
        mut take: impl FnMut(Sample) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut block = [0; BLOCK * SAMPLE_BYTES];
        for at in &samples.blocks {
            self.file.as_ref().map_or(Ok(()), |file| file.read_exact_at(&mut block, *at))?;
            block.chunks_exact(SAMPLE_BYTES).filter_map(Sample::of_bytes).try_for_each(&mut take)?;
        }
        samples.last.iter().copied().try_for_each(take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_threads_come_back_in_their_order() {
        let mut spool = Spool::new(std::env::temp_dir());
        let mut threads = [Samples::default(), Samples::default()];
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
                .each(samples, |sample| {
                    found.push(sample);
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, numbers.iter().map(|number| sample(*number)).collect::<Vec<_>>());
        }
    }
}
