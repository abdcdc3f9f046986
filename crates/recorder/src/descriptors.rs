//! How many files this process may have open.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_never_falls() {
        let before = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(raise_limit() >= before);
    }
}
