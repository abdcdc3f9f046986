//! CPUs that are switched on in the window. There are no events on them, and a thread that works there looks
//! as if it slept. So the file says that their records were lost, from when they were not yet there on, and
//! reports have gaps.

use std::path::PathBuf;

use model::{Cpu, Ns};
use perfdata::write::{Record, SampleId};

use crate::cpu_list::CpuList;

/// Looks for them.
#[derive(Debug)]
pub(crate) struct NewCpus {
    sysfs: PathBuf,
    /// Those with events.
    known: CpuList,
    found: CpuList,
    /// When that was all there was to find.
    looked: Ns,
}

impl NewCpus {
    /// `sysfs` is `/sys`.
    pub(crate) fn new(sysfs: PathBuf, known: CpuList, now: Ns) -> Self {
        Self { sysfs, known, found: CpuList::default(), looked: now }
    }

    /// Records of a loss since the last look, on each CPU that came online meanwhile.
    pub(crate) fn look(&mut self, now: Ns) -> Vec<u8> {
        let mut records = Vec::new();
        for cpu in CpuList::online(&self.sysfs).without(&self.known).without(&self.found).0 {
            // Up to here nothing was lost.
            lost(cpu, self.looked, &mut records);
            self.found.0.push(cpu);
        }
        self.found.0.iter().for_each(|cpu| lost(*cpu, now, &mut records));
        self.looked = now;
        records
    }

    /// All that there were.
    pub(crate) fn found(self) -> CpuList {
        self.found
    }
}

/// Adds a record of a loss. The kernel counts what it loses; the number of these records is not known.
fn lost(cpu: Cpu, time: Ns, records: &mut Vec<u8>) {
    Record::Lost { count: 1 }.encode(&SampleId { cpu, time, ..SampleId::default() }, records);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_new_cpu_has_lost_records_since_the_last_look_without_it() {
        let sysfs = tempfile::tempdir().unwrap();
        let place = sysfs.path().join("devices/system/cpu");
        fs::create_dir_all(&place).unwrap();
        let online = |list: &str| fs::write(place.join("online"), list).unwrap();
        let losses = |of: &[(u32, u64)]| {
            let mut records = Vec::new();
            of.iter().for_each(|(cpu, time)| lost(Cpu(*cpu), Ns(*time), &mut records));
            records
        };
        online("0-1\n");
        let mut cpus = NewCpus::new(sysfs.path().to_owned(), "0-1".parse().unwrap(), Ns(10));
        assert_eq!(cpus.look(Ns(20)), []);
        online("0\n");
        assert_eq!(cpus.look(Ns(30)), [], "one that is switched off loses nothing");
        online("0-2\n");
        assert_eq!(cpus.look(Ns(40)), losses(&[(2, 30), (2, 40)]));
        online("0-1\n");
        assert_eq!(cpus.look(Ns(50)), losses(&[(2, 50)]), "it was there for a while");
        assert_eq!(cpus.found(), "2".parse().unwrap());
    }
}
