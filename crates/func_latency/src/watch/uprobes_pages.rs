//! Where the kernel has processes run the instructions that uprobes have replaced: pages that it maps when
//! the first one is hit, and of which it writes no record.

use std::collections::BTreeMap;

use model::{Ns, Pid};
use recorder::{Mapping, Proc, Snapshot, Target};

/// The kernel's name of such a page.
const UPROBES: &str = "[uprobes]";

/// The pages of a target's processes. One stays where it is as long as its process lives.
pub(super) struct UprobesPages<'a> {
    target: &'a Target,
    known: BTreeMap<Pid, Mapping>,
}

impl<'a> UprobesPages<'a> {
    pub(super) const fn new(target: &'a Target) -> Self {
        Self { target, known: BTreeMap::new() }
    }

    /// Looks for those that were not there before.
    pub(super) fn look(&mut self, proc: &Proc) {
        for pid in self.target.processes(proc) {
            if !self.known.contains_key(&pid)
                && let Some(line) =
                    proc.maps(pid).unwrap_or_default().into_iter().find(|line| line.path == UPROBES)
            {
                self.known.insert(pid, Mapping { line, build_id: None });
            }
        }
    }

    /// Records of them, as of mappings that a recording finds.
    pub(super) fn records(&self) -> Vec<u8> {
        let page = |(pid, mapping): (&Pid, &Mapping)| {
            let mappings = vec![mapping.clone()];
            Snapshot { pid: *pid, threads: Vec::new(), mappings }.records(Ns(0))
        };
        self.known.iter().flat_map(page).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_page_is_known_from_when_it_is_there_and_after_the_end() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        let target = Target::Processes(vec![Pid(7)]);
        let mut pages = UprobesPages::new(&target);
        fs::create_dir_all(root.path().join("7")).unwrap();
        let code = "1000-2000 r-xp 00000000 00:00 0 [vdso]\n";
        fs::write(root.path().join("7/maps"), code).unwrap();
        pages.look(&proc);
        assert!(pages.records().is_empty());
        let page = "7fffffffe000-7ffffffff000 --xp 00000000 00:00 0 [uprobes]\n";
        fs::write(root.path().join("7/maps"), format!("{code}{page}")).unwrap();
        pages.look(&proc);
        fs::remove_dir_all(root.path().join("7")).unwrap();
        pages.look(&proc);
        let records = pages.records();
        let name = records.windows(UPROBES.len()).filter(|bytes| *bytes == UPROBES.as_bytes());
        assert_eq!(name.count(), 1);
    }
}
