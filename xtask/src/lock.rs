//! A lock held by a process: two runs of a chore in one checkout must not write the same files.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::Result;

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Lock(PathBuf);

impl Lock {
    /// Waits until no living process holds `path`.
    pub(crate) fn wait(path: &Path) -> Result<Self> {
        let mut told = false;
        loop {
            match fs::File::options().write(true).create_new(true).open(path) {
                Ok(mut file) => {
                    let _ = write!(file, "{}", std::process::id());
                    return Ok(Self(path.to_path_buf()));
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => (),
                Err(e) => return Err(format!("{}: {e}", path.display())),
            }
            match holder(path) {
                Some(pid) if !told => {
                    eprintln!("waiting for process {pid}, which holds {}", path.display());
                    told = true;
                }
                Some(_) => (),
                // Killed while it held the lock.
                None => drop(fs::remove_file(path)),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The living process that holds the lock.
fn holder(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    // Empty: its holder has just made it and is about to write.
    let pid = if text.is_empty() {
        std::thread::sleep(Duration::from_millis(100));
        fs::read_to_string(path).ok()?
    } else {
        text
    };
    let pid: u32 = pid.trim().parse().ok()?;
    Path::new("/proc").join(pid.to_string()).exists().then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_holder_does_not_count_and_the_lock_goes_away() {
        let path = std::env::temp_dir().join(format!("xtask-lock-{}", std::process::id()));
        // Above the kernel's largest pid, so no process has it.
        fs::write(&path, "4194999").unwrap();
        let lock = Lock::wait(&path).unwrap();
        assert_eq!(holder(&path), Some(std::process::id()));
        drop(lock);
        assert!(!path.exists());
    }
}
