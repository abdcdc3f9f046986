//! The dumps that the processes of a recording have mapped, and their code in the address spaces.

use std::borrow::Cow;
use std::path::Path;

use files::{Owners, Place};
use model::{Pid, Sideband, SidebandRecord};

use crate::jit::jitdump::{self, Dump};
use crate::locate;
use crate::locate::object_key::{MappedObject, is_jitdump};
use crate::options::ImageOptions;

/// All dumps that could be read.
#[derive(Debug, Default)]
pub(crate) struct Dumps(Vec<ProcessDump>);

#[derive(Debug)]
struct ProcessDump {
    pid: Pid,
    /// The dump file's name in the recording.
    name: String,
    dump: Dump,
}

impl Dumps {
    /// Opens what the recording says was mapped.
    pub(crate) fn find(sideband: &[SidebandRecord], options: &ImageOptions) -> Self {
        let mut list: Vec<ProcessDump> = Vec::new();
        let mut left = jitdump::MAX_PLACEMENTS;
        for record in sideband {
            let Sideband::Mmap(mmap) = &record.body else { continue };
            let known = || list.iter().any(|known| known.pid == mmap.pid && known.name == mmap.path);
            if !is_jitdump(&mmap.path) || known() {
                continue;
            }
            let dump = places(&mmap.path, mmap.pid, options)
                .iter()
                .find_map(|(place, owners)| Dump::open(place, owners, options.clock.as_ref(), left));
            let Some(dump) = dump else { continue };
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
        // Code of unknown time is added to the mappings at the end.
        all.extend(untimed);
        Cow::Owned(all)
    }
}

/// The paths of a file that a process's runtime wrote, each with the users that may own it there: as it is
/// named, then in the process's own file system.
pub(crate) fn places(name: &str, pid: Pid, options: &ImageOptions) -> Vec<(Place, Owners)> {
    let process = format!("/proc/{}", pid.0);
    // A directory that the user gives has the right files.
    let owner = options.symfs.as_deref().unwrap_or(Path::new(&process));
    let mut places = locate::by_name(name, options);
    places.extend(options.symfs.is_none().then(|| locate::in_its_namespace(name, pid)));
    places.into_iter().map(|place| (place, Owners::of_host().and_owner_of(owner))).collect()
}
