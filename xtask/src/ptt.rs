//! libipt's text tests (`.ptt` files), which its sources have: Debian's source package, of one version, from
//! this machine's mirror.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::layout;
use crate::mirror::mirror;
use crate::process::{self, Result};

/// The Debian that has the version for which `tests/tests/ptt/differences.rs` lists the differences.
const SUITE: &str = "trixie";
const PACKAGE: &str = "intel-processor-trace=2.1.2-1";
const ARCHIVE: &str = "intel-processor-trace_2.1.2.orig.tar.gz";
const TESTS: &str = "libipt-2.1.2/test/src";

/// The directory of the files, below `target/ptt`.
pub(crate) fn sources() -> Result<PathBuf> {
    let directory = layout::target().join("ptt");
    let tests = directory.join(TESTS);
    if tests.exists() {
        return Ok(tests);
    }
    if !process::on_path("apt-get") {
        return Err("no apt-get here, which has libipt's sources".to_owned());
    }
    let lists = directory.join("lists");
    fs::create_dir_all(lists.join("partial")).map_err(|e| format!("{}: {e}", lists.display()))?;
    let list = directory.join("sources.list");
    let line = format!("deb-src {} {SUITE} main\n", mirror()?);
    fs::write(&list, line).map_err(|e| format!("{}: {e}", list.display()))?;
    let download = ["source", "--download-only", "--tar-only", PACKAGE];
    for arguments in [&["update"][..], &download] {
        let mut command = apt_get(&list, &lists, arguments);
        process::capture(command.current_dir(&directory)).map_err(process::perhaps_no_network)?;
    }
    process::capture(Command::new("tar").arg("-xzf").arg(ARCHIVE).current_dir(&directory))?;
    if tests.exists() { Ok(tests) } else { Err(format!("{ARCHIVE} has no {TESTS}")) }
}

/// `apt-get` with one list of sources and an index of its own: the system's stay as they are.
fn apt_get(list: &Path, lists: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    let options = [("Dir::Etc::SourceList", list), ("Dir::State::Lists", lists)];
    for (name, path) in options {
        command.arg("-o").arg(format!("{name}={}", path.display()));
    }
    command.args(["-o", "Dir::Etc::SourceParts=/dev/null", "--quiet"]).args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_sources_are_not_used() {
        let line = process::command_line(&apt_get(Path::new("/x/list"), Path::new("/x/lists"), &["update"]));
        assert_eq!(
            line,
            "apt-get -o Dir::Etc::SourceList=/x/list -o Dir::State::Lists=/x/lists \
             -o Dir::Etc::SourceParts=/dev/null --quiet update"
        );
    }
}
