//! The kernel: Debian's stock image, of the version of the installed headers. It is unpacked, not installed:
//! that would want a boot loader.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{self, Result};

/// Where Debian's headers are.
const SOURCES: &str = "/usr/src";

/// What the machine needs to see the host's files, in the order of loading, and overlays, which cases mount:
/// Debian 12's.
pub(super) const MODULES: [&str; 11] = [
    "fs/netfs/netfs.ko",
    "fs/fscache/fscache.ko",
    "net/9p/9pnet.ko",
    "fs/9p/9p.ko",
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "net/9p/9pnet_virtio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "fs/overlayfs/overlay.ko",
];

/// A kernel, unpacked.
pub(super) struct Kernel {
    version: String,
    /// What has `boot` and `lib`.
    root: PathBuf,
}

impl Kernel {
    /// The kernel of the headers that are installed; its image is downloaded to `directory` if it is not
    /// there.
    pub(super) fn find(directory: &Path) -> Result<Self> {
        let entries = fs::read_dir(SOURCES).map_err(|e| format!("{SOURCES}: {e}"))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let version = newest(names).ok_or_else(|| format!("no headers of a kernel in {SOURCES}"))?;
        let kernel = Self { root: directory.join(&version), version };
        if !kernel.is_complete() {
            kernel.fetch()?;
        }
        Ok(kernel)
    }

    /// The image.
    pub(super) fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.version))
    }

    /// One of [`MODULES`].
    pub(super) fn module(&self, name: &str) -> PathBuf {
        self.root.join("lib/modules").join(&self.version).join("kernel").join(name)
    }

    /// Where modules are built.
    pub(super) fn headers(&self) -> PathBuf {
        Path::new(SOURCES).join(format!("linux-headers-{}", self.version))
    }

    fn is_complete(&self) -> bool {
        self.image().is_file() && MODULES.iter().all(|module| self.module(module).is_file())
    }

    /// Downloads the package, and unpacks the needed part of it: 10 MB of 400.
    fn fetch(&self) -> Result {
        let named = |e: std::io::Error| format!("{}: {e}", self.root.display());
        fs::create_dir_all(&self.root).map_err(named)?;
        let package = format!("linux-image-{}", self.version);
        println!("vm: downloading {package}, 70 MB");
        process::capture(Command::new("apt-get").args(["download", &package]).current_dir(&self.root))
            .map_err(process::perhaps_no_network)?;
        let mut files = fs::read_dir(&self.root).map_err(named)?.filter_map(|entry| Some(entry.ok()?.path()));
        let archive = files.find(|file| file.extension().is_some_and(|extension| extension == "deb"));
        let archive = archive.ok_or_else(|| format!("apt-get has not downloaded {package}"))?;
        self.unpack(&archive)?;
        fs::remove_file(&archive).map_err(|e| format!("{}: {e}", archive.display()))
    }

    fn unpack(&self, archive: &Path) -> Result {
        let mut reader = Command::new("dpkg-deb");
        reader.arg("--fsys-tarfile").arg(archive).stdout(Stdio::piped());
        let mut child = reader.spawn().map_err(|e| process::cannot_start(&reader, &e))?;
        let mut tar = Command::new("tar");
        tar.arg("-x").arg("-C").arg(&self.root).args(["--wildcards", "./boot/vmlinuz-*"]);
        tar.args(MODULES.iter().map(|module| format!("./lib/modules/*/kernel/{module}")));
        tar.stdin(child.stdout.take().map_or_else(Stdio::null, Stdio::from));
        let unpacked = process::run(&mut tar);
        let read = child.wait().map_err(|e| process::cannot_start(&reader, &e))?;
        unpacked?;
        match read.success() {
            true => Ok(()),
            false => Err(format!("`{}` failed: {read}", process::command_line(&reader))),
        }
    }
}

/// The newest version among names like `linux-headers-6.1.0-56-amd64`.
fn newest(names: impl Iterator<Item = String>) -> Option<String> {
    let versions = names.filter_map(|name| {
        let version = name.strip_prefix("linux-headers-")?;
        version.ends_with("-amd64").then(|| version.to_owned())
    });
    let numbers = |version: &String| -> Vec<u32> {
        version.split(['.', '-']).filter_map(|part| part.parse().ok()).collect()
    };
    versions.max_by_key(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_headers_count_by_number() {
        let names =
            ["linux-headers-6.1.0-9-amd64", "linux-headers-6.1.0-56-amd64", "linux-headers-6.1.0-57-common"];
        let names = names.into_iter().chain(["googletest"]).map(str::to_owned);
        assert_eq!(newest(names).as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(newest(["googletest".to_owned()].into_iter()), None);
    }
}
