//! How many files this process may have open.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::procfs::Proc;

/// Raises the limit as far as this user may, and returns it.
pub(crate) fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = Proc::host().setting("fs/nr_open").and_then(|most| u64::try_from(most).ok());
    let raised = |to: Option<u64>| {
        let hard = limit.maximum.max(to);
        setrlimit(Resource::Nofile, Rlimit { current: to, maximum: hard }).is_ok()
    };
    // Root may raise the hard limit, too.
    if !most.is_some_and(|most| raised(Some(most))) {
        raised(limit.maximum);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Makes the table of open files large enough for `count` descriptors, in one step.
///
/// By itself it doubles whenever it is full, and in a process with threads each time waits until no CPU looks
/// at the old one any more (`expand_fdtable` in fs/file.c): 10 ms and more, for every one of eight steps to
/// 16,000 events.
pub(crate) fn make_room(count: u64) {
    let last = i32::try_from(count).unwrap_or(i32::MAX);
    // Where that is not possible the table grows as it does.
    let _ = eventfd(0, EventfdFlags::CLOEXEC).and_then(|any| fcntl_dupfd_cloexec(any, last));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::field;

    /// `FDSize` is the size of the table.
    #[test]
    fn the_table_grows_in_one_step() {
        let size = || {
            let status = Proc::host().text("self/status").unwrap();
            field(&status, "FDSize:").unwrap().parse::<u64>().unwrap()
        };
        let wanted = size() * 2;
        assert!(raise_limit() > wanted, "this user may have few files open");
        make_room(wanted);
        assert!(size() > wanted);
    }

    #[test]
    fn the_limit_never_falls() {
        let before = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(raise_limit() >= before);
    }
}
