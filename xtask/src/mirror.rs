//! The Debian mirror of this machine, read from apt's settings, so that no host is named here.

use std::process::Command;

use crate::process::{self, Result};

/// Debian 12.
pub(crate) const SUITE: &str = "bookworm";

/// Where this machine has its Debian packages from.
pub(crate) fn mirror() -> Result<String> {
    let format = ["--format", "$(CODENAME) $(CREATED_BY) $(REPO_URI)"];
    let targets = process::capture(Command::new("apt-get").arg("indextargets").args(format))?;
    mirror_of(&targets)
        .ok_or_else(|| format!("apt has no packages of Debian 12 ({SUITE}) here, whose mirror is used"))
}

fn mirror_of(targets: &str) -> Option<String> {
    let prefix = format!("{SUITE} Packages ");
    targets.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_of_the_suite() {
        let targets =
            "trixie Packages http://a/\nbookworm DEP-11 http://b/\nbookworm Packages http://c/debian/\n";
        assert_eq!(mirror_of(targets).as_deref(), Some("http://c/debian/"));
        assert_eq!(mirror_of("trixie Packages http://a/\n"), None);
    }
}
