//! The dumps that the processes of a recording have mapped, and their code in the address spaces.

use std::borrow::Cow;
use std::path::PathBuf;

use model::{Pid, Sideband, SidebandRecord};

use crate::jitdump::{self, Dump};
use crate::object_file::basename;
use crate::options::ImageOptions;
use crate::space::MappedObject;

/// Placements of all dumps together: each takes some hundred bytes as a mapping.
const MAX_PLACEMENTS: usize = 4 << 20;

/// All dumps that could be read.
#[derive(Debug, Default)]
pub(crate) struct Dumps(Vec<ProcessDump>);

#[derive(Debug)]
struct ProcessDump {
    pid: Pid,
    /// As the recording names the file.
    name: String,
    dump: Dump,
}

impl Dumps {
    /// Opens what the recording says was mapped.
    pub(crate) fn find(sideband: &[SidebandRecord], options: &ImageOptions) -> Self {
        let mut list: Vec<ProcessDump> = Vec::new();
        let mut left = MAX_PLACEMENTS;
        for record in sideband {
            let Sideband::Mmap(mmap) = &record.body else { continue };
            let known = || list.iter().any(|known| known.pid == mmap.pid && known.name == mmap.path);
            if !jitdump::is_name(&mmap.path) || known() {
                continue;
            }
            let dump = places(&mmap.path, mmap.pid, options)
                .iter()
                .find_map(|path| Dump::open(path, options.clock.as_ref()));
            let Some(dump) = dump.filter(|dump| dump.code.placements.len() <= left) else { continue };
            left -= dump.code.placements.len();
            list.push(ProcessDump { pid: mmap.pid, name: mmap.path.clone(), dump });
        }
        Self(list)
    }

    /// The dump that an object is.
    pub(crate) fn get(&self, object: &MappedObject) -> Option<&Dump> {
        let found = self.0.iter().find(|d| d.pid == object.pid && d.name == object.key.name);
        found.map(|found| &found.dump)
    }

    /// The sideband with a mapping for each placement, by time.
    pub(crate) fn add_to<'a>(&self, sideband: &'a [SidebandRecord]) -> Cow<'a, [SidebandRecord]> {
        if self.0.is_empty() {
            return Cow::Borrowed(sideband);
        }
        let mut all = sideband.to_vec();
        let placements = self.0.iter().flat_map(|d| d.dump.mappings(&d.name, d.pid));
        let (timed, untimed): (Vec<_>, Vec<_>) = placements.partition(|record| record.time.is_some());
        all.extend(timed);
        all.sort_by_key(|record| record.time);
        // Code whose time is unknown joins what is mapped in the end.
        all.extend(untimed);
        Cow::Owned(all)
    }
}

/// Where a dump may be: as it is named, then in the process's own file system.
fn places(name: &str, pid: Pid, options: &ImageOptions) -> Vec<PathBuf> {
    match &options.symfs {
        Some(root) => vec![options.rooted(name.as_ref()), root.join(basename(name))],
        None => vec![PathBuf::from(name), PathBuf::from(format!("/proc/{}/root{name}", pid.0))],
    }
}
