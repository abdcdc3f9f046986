//! Whether a file here is the one that was mapped, where no build id tells: by its inode.
//!
//! The kernel records device and inode as the file system numbers them. `stat` says the same of a file on a
//! plain file system, but overlayfs (containers) and btrfs (subvolumes) give it a device of their own, and
//! overlayfs at times another inode. So a recorded inode counts if its device is a plain file system that is
//! mounted here, and a file contradicts it if it is on a plain file system, too, and its inode is another.
//! Devices are not compared: they are numbered anew whenever the machine starts, and the file is the same.
//! What cannot be known is as if the recording had no inode.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use model::Inode;

/// File systems on which `stat` and mappings give a file the same device and inode numbers.
const PLAIN: [&str; 8] = ["ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs", "squashfs", "erofs"];

/// The file systems of the machine that was recorded, if that is this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFiles {
    /// Major and minor numbers.
    plain_devices: BTreeSet<(u32, u32)>,
}

impl HostFiles {
    /// From the lines of `/proc/self/mountinfo` (proc_pid_mountinfo(5)); lines of another form say nothing.
    #[must_use]
    pub fn of_mounts(mountinfo: &str) -> Self {
        let device = |line: &str| {
            let (mount, file_system) = line.split_once(" - ")?;
            let kind = file_system.split(' ').next()?;
            let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
            PLAIN.contains(&kind).then_some((major.parse().ok()?, minor.parse().ok()?))
        };
        Self { plain_devices: mountinfo.lines().filter_map(device).collect() }
    }

    /// What was recorded tells files apart.
    pub(crate) fn can_tell(&self, recorded: Inode) -> bool {
        self.plain_devices.contains(&recorded.device)
    }

    /// The file is not the one that was mapped.
    pub(crate) fn contradicts(&self, file: &Metadata, recorded: Inode) -> bool {
        self.plain_devices.contains(&device(file.dev())) && file.ino() != recorded.number
    }
}

/// Major and minor number in a `dev_t` as the C library has it (sys/sysmacros.h).
fn device(dev: u64) -> (u32, u32) {
    let major = (dev >> 8 & 0xfff) | (dev >> 32 & 0xffff_f000);
    let minor = (dev & 0xff) | (dev >> 12 & 0xffff_ff00);
    (major as u32, minor as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_file_systems_among_the_mounts() {
        let host = HostFiles::of_mounts(
            "28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
             40 28 0:35 /@home /home rw shared:9 master:2 - btrfs /dev/sda rw,subvol=/@home\n\
             99 28 0:61 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw\n\
             41 28 0:36 / /tmp rw - tmpfs tmpfs rw\n\
             nonsense\n",
        );
        assert_eq!(host.plain_devices, BTreeSet::from([(0, 36), (259, 2)]));
        assert!(host.can_tell(Inode { device: (259, 2), number: 7 }));
        assert!(!host.can_tell(Inode { device: (0, 61), number: 7 }));
    }

    #[test]
    fn device_numbers() {
        assert_eq!(device(0x803), (8, 3));
        assert_eq!(device(0x12310345), (0x103, 0x1_2345));
    }
}
