//! What this machine keeps of programs that ran: caches of files by build id, the vDSO of its kernel, and
//! whether its files are those that were recorded.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use image::{HostFiles, HostVdso, ImageOptions, KernelOptions};
use model::{BuildId, Recording};

/// A vDSO has two to four pages.
const VDSO_MAX_BYTES: u64 = 1 << 20;

/// Where the objects of a recording are looked for.
pub(crate) fn image_options(
    recording: &Recording<'_>,
    symfs: Option<&Path>,
    kernel: &KernelOptions,
) -> ImageOptions {
    let places = live_options(symfs);
    let host_vdso =
        places.host_vdso.map(|vdso| HostVdso { same_kernel_release: same_kernel(recording), ..vdso });
    let host_files = places.host_files.filter(|_| same_kernel(recording) && same_machine(recording));
    ImageOptions { host_vdso, host_files, kernel: kernel.clone(), clock: recording.clock, ..places }
}

/// Where the objects of what runs here are looked for.
pub(crate) fn live_options(symfs: Option<&Path>) -> ImageOptions {
    let home = || directory("HOME");
    let mounts = symfs.is_none().then(|| fs::read_to_string("/proc/self/mountinfo").ok()).flatten();
    let caches = || directory("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
    ImageOptions {
        symfs: symfs.map(Path::to_path_buf),
        build_id_cache: directory("PERF_BUILDID_DIR").or_else(|| Some(home()?.join(".debug"))),
        debuginfod_cache: directory("DEBUGINFOD_CACHE_PATH")
            .or_else(|| Some(caches()?.join("debuginfod_client"))),
        host_vdso: own_vdso().map(|bytes| HostVdso { bytes, same_kernel_release: true }),
        host_files: mounts.map(|mounts| HostFiles::of_mounts(&mounts)),
        hide_private: symfs.is_none() && is_root(),
        ..ImageOptions::default()
    }
}

/// This process may read files that a traced one may not.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn directory(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn same_kernel(recording: &Recording<'_>) -> bool {
    let here = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    recording.kernel_release.as_deref().is_some_and(|there| here.is_some_and(|here| here.trim() == there))
}

/// The name of this machine, if it has one.
pub(crate) fn name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn same_machine(recording: &Recording<'_>) -> bool {
    let here = name();
    recording.hostname.as_deref().is_some_and(|there| here.is_some_and(|here| here == there))
}

/// The build id of the vDSO: the kernel tells it of files only.
pub(crate) fn vdso_build_id() -> Option<BuildId> {
    image::build_id_in(&own_vdso()?)
}

/// The vDSO of this process: every process of a kernel has the same.
fn own_vdso() -> Option<Vec<u8>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let (start, end) = vdso_range(&maps)?;
    let len = end.checked_sub(start).filter(|len| *len <= VDSO_MAX_BYTES)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

fn vdso_range(maps: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_vdso() {
        assert!(own_vdso().is_some_and(|bytes| bytes.starts_with(b"\x7fELF")));
        assert_eq!(vdso_range("1000-3000 r-xp 00000000 00:00 0   [vdso]\n"), Some((0x1000, 0x3000)));
        assert_eq!(vdso_range("1000-3000 r--p 00000000 00:00 0   [vvar]\n"), None);
    }
}
