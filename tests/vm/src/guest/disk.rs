//! A file system of its own, in memory: it is full at once, and says how much of it is taken, also by files
//! without a name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::statvfs;

/// It is there as long as this lives.
pub(super) struct Disk(PathBuf);

impl Disk {
    /// `size`: as `mount` takes it.
    pub(super) fn new(name: &str, size: &str) -> Result<Self> {
        let path = Path::new("/tmp").join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&path);
        ensure!(mount.status()?.success(), "cannot mount {}", path.display());
        Ok(Self(path))
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// What files take, in whole pages.
    pub(super) fn used_bytes(&self) -> Result<u64> {
        let about = statvfs(&self.0).with_context(|| self.0.display().to_string())?;
        Ok((about.f_blocks - about.f_bfree) * about.f_frsize)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A process that still has it open keeps it that long.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}
