//! The memory and the room that a watch takes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Fed;

/// What this process takes, each time it was looked at.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) memory_kb: Vec<u64>,
    pub(super) spool_bytes: u64,
}

/// Bytes of the files in the spool, those without a name, too: they are mapped.
fn bytes_in(spool: &Path) -> u64 {
    let mut files = BTreeMap::new();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines().filter(|line| line.contains(spool.to_str().unwrap())) {
        let mut words = line.split_whitespace();
        let (start, end) = words.next().and_then(|range| range.split_once('-')).unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let inode: u64 = words.nth(3).and_then(|inode| inode.parse().ok()).unwrap();
        files.insert(inode, address(end) - address(start));
    }
    for entry in fs::read_dir(spool).unwrap() {
        // It may be gone by now.
        if let Ok(file) = entry.unwrap().metadata() {
            files.insert(file.ino(), file.len());
        }
    }
    files.values().sum()
}

impl Taken {
    pub(super) fn look(&mut self, spool: &Path) {
        self.spool_bytes = self.spool_bytes.max(bytes_in(spool));
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let kb = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
        self.memory_kb.push(kb.unwrap().parse().unwrap());
    }

    pub(super) fn tell(&self, fed: Fed) {
        let (first_kb, last_kb) = self.first_and_last_kb();
        eprintln!("{fed:?}, {first_kb} to {last_kb} KB of memory, {} bytes of spool", self.spool_bytes);
    }

    /// The most memory in the first and in the last fifth of the time.
    pub(super) fn first_and_last_kb(&self) -> (u64, u64) {
        let fifth = self.memory_kb.len() / 5;
        let most = |samples: &[u64]| samples.iter().copied().max().unwrap_or_default();
        (most(&self.memory_kb[..fifth]), most(&self.memory_kb[self.memory_kb.len() - fifth..]))
    }

    /// The median of the memory in a fifth of the time.
    pub(super) fn median_kb(&self, number: usize) -> u64 {
        let fifth = self.memory_kb.len() / 5;
        let mut samples = self.memory_kb[number * fifth..(number + 1) * fifth].to_vec();
        samples.sort_unstable();
        samples[samples.len() / 2]
    }
}
