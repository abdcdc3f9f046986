//! What runs between two calls when the cost of a probe is measured.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

/// A kind of load.
///
/// | | caches | branch predictors |
/// |---|---|---|
/// | nothing | all is there | know all |
/// | 64 KB of data | the first level is replaced | see data-dependent branches |
/// | 2 MB of data, a system call | the second level, too, with kernel code | see those, and other code |
pub(crate) struct Load {
    words: Vec<u64>,
    /// A file of the kernel that is written anew for each reading.
    file: Option<File>,
}

/// Bytes of data of each kind, lightest first, and whether it makes a system call.
const KINDS: [(usize, bool); 3] = [(0, false), (64 << 10, false), (2 << 20, true)];

impl Load {
    /// Kinds of load.
    pub(crate) const KINDS: usize = KINDS.len();

    /// Each of them, lightest first.
    pub(crate) fn each() -> [Self; Self::KINDS] {
        KINDS.map(|(bytes, reads)| Self {
            words: vec![1; bytes / size_of::<u64>()],
            file: if reads { File::open("/proc/self/stat").ok() } else { None },
        })
    }

    /// Runs once.
    pub(crate) fn run(&mut self) {
        let mut sum = 0_u64;
        // One word of each cache line.
        for word in self.words.iter_mut().step_by(8) {
            sum = sum.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(*word);
            if sum >> 63 == 0 {
                *word = sum;
            }
        }
        black_box(sum);
        // Where it cannot be read the data are load enough.
        self.file.iter().for_each(|file| drop(file.read_at(&mut [0; 512], 0)));
    }
}
