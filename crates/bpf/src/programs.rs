//! The compiled programs, prepared for the functions that are probed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use libbpf_rs::{
    ErrorKind, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramAttachType, ProgramMut,
    UprobeMultiOpts,
};

use crate::error::BpfError;
use crate::waker_stack::WakerStack;

/// `bpf/probes.bpf.c`, compiled: `cargo xtask bpf` makes it anew.
pub(crate) const OBJECT: &[u8] = include_bytes!("../objects/probes.bpf.o");

/// The section of the only setting, which libbpf makes a map of.
const SETTINGS: &str = ".rodata.settings";

/// The section of the PID namespace.
const NAMESPACE: &str = ".rodata.namespace";

/// The inode of the PID namespace that we are in; 0: that of the host, where numbers are the kernel's own.
fn own_namespace() -> u32 {
    /// `PROC_PID_INIT_INO` in include/linux/proc_ns.h.
    const HOST: u64 = 0xefff_fffc;
    let inode = std::fs::metadata("/proc/self/ns/pid").map_or(HOST, |file| file.ino());
    if inode == HOST { 0 } else { u32::try_from(inode).unwrap_or(0) }
}

/// The section of what hits do, which libbpf makes a map of, too.
pub(crate) const MODE: &str = ".data.mode";

/// What the maps must hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Functions that are probed.
    pub(crate) functions: usize,
    /// Threads with calls, at a time.
    pub(crate) threads: usize,
    /// Bytes of the ring; a power of two of at least a page.
    pub(crate) ring_bytes: u32,
    /// Taken where a thread is woken.
    pub(crate) waker_stack: WakerStack,
}

/// Programs that the kernel has accepted.
pub(crate) struct Programs {
    object: Object,
    /// One link holds many probes, of all threads of a process (Linux 6.10, and later ones of 6.6).
    pub(crate) has_multi: bool,
}

impl Programs {
    /// Loads them: with links for many probes, or on older kernels without.
    pub(crate) fn load(sizes: Sizes) -> Result<Self, BpfError> {
        types_are_there()?;
        match open(sizes, true)?.load() {
            Ok(object) => {
                let programs = Self { object, has_multi: true };
                if programs.may_link_many()? {
                    return Ok(programs);
                }
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(not_loaded(error)),
            Err(_) => (), // it does not know programs for such links
        }
        let object = open(sizes, false)?.load().map_err(not_loaded)?;
        Ok(Self { object, has_multi: false })
    }

    /// Tries a link for many probes. Kernels before 6.6 may take a program for such links, and have none
    /// (EINVAL). The first that had them filtered by thread, where a process was meant
    /// (`bpf_uprobe_multi_link_attach`): they take the number of a thread that is no process, of which others
    /// say that there is no such process (ESRCH).
    fn may_link_many(&self) -> Result<bool, BpfError> {
        let program = self.program("on_count")?;
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let tried = thread::scope(|scope| {
            scope.spawn(move || {
                // Lives until it has been tried.
                let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get());
                let _ = ended.recv();
            });
            let tid = told.recv().unwrap_or(0);
            let options =
                UprobeMultiOpts { offsets: vec![0], cookies: vec![0], ..UprobeMultiOpts::default() };
            let tried = program.attach_uprobe_multi_with_opts(tid, "/proc/self/exe", "", options);
            drop(end);
            tried
        });
        // ESRCH has no kind.
        Ok(tried.is_err_and(|error| error.kind() == ErrorKind::Other))
    }

    /// A program; that it is there is a matter of the object.
    pub(crate) fn program(&self, name: &str) -> Result<ProgramMut<'_>, BpfError> {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        found.ok_or_else(|| BpfError::Load(format!("there is no program {name}")))
    }

    /// A map.
    pub(crate) fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| BpfError::Load(format!("there is no map {name}")))
    }

    /// A number for each CPU, summed.
    pub(crate) fn sum(&self, map: &str, index: u32) -> u64 {
        self.map(map).map_or(0, |map| sum(&map, index))
    }

    /// Numbers of each CPU: the value that a map has for `index`, cut into them.
    pub(crate) fn of_cpus(&self, map: &str, index: u32) -> Vec<Vec<u64>> {
        self.map(map).map_or(Vec::new(), |map| of_cpus(&map, index))
    }
}

/// A number for each CPU, summed.
pub(crate) fn sum(map: &Map<'_>, index: u32) -> u64 {
    of_cpus(map, index).iter().filter_map(|numbers| numbers.first()).sum()
}

fn of_cpus(map: &Map<'_>, index: u32) -> Vec<Vec<u64>> {
    let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    values.iter().map(|value| value.chunks_exact(8).map(number).collect()).collect()
}

/// Without them nothing can be loaded.
pub(crate) fn types_are_there() -> Result<(), BpfError> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(BpfError::NoBtf);
    }
    // What libbpf would print is in the errors.
    libbpf_rs::set_print(None);
    Ok(())
}

pub(crate) fn not_loaded(error: libbpf_rs::Error) -> BpfError {
    match error.kind() {
        ErrorKind::PermissionDenied => BpfError::NotPermitted(String::new()),
        _ => BpfError::Load(format!("{error:#}")),
    }
}

fn open(sizes: Sizes, multi: bool) -> Result<OpenObject, BpfError> {
    let failed = not_loaded;
    let mut open =
        ObjectBuilder::default().name("func_latency").map_err(failed)?.open_memory(OBJECT).map_err(failed)?;
    let functions = u32::try_from(sizes.functions.max(1)).unwrap_or(u32::MAX);
    let threads = u32::try_from(sizes.threads.max(1)).unwrap_or(u32::MAX);
    for mut map in open.maps_mut() {
        let entries = match map.name().to_str() {
            Some("threads") => threads,
            Some("calls") => sizes.ring_bytes,
            Some("hits" | "functions") => functions,
            Some(SETTINGS) => {
                let stacks = u32::from(sizes.waker_stack == WakerStack::User);
                map.set_initial_value(&stacks.to_ne_bytes()).map_err(failed)?;
                continue;
            }
            Some(NAMESPACE) => {
                map.set_initial_value(&own_namespace().to_ne_bytes()).map_err(failed)?;
                continue;
            }
            _ => continue,
        };
        map.set_max_entries(entries).map_err(failed)?;
    }
    if multi {
        for mut program in open.progs_mut() {
            if matches!(program.name().to_str(), Some("on_probe" | "on_count")) {
                program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
            }
        }
    }
    Ok(open)
}
