//! Calls that came and went above an open one, out of sight.
//!
//! ```text
//!   IP filter: f only               seen         may have been              or
//!   main calls f                    f(1) begins  f(1) begins                f(1) begins
//!   siglongjmp in a handler, main     |          f(1) is left               f(1) calls k, that calls main
//!   main calls f                      | f(2)     f(2)                         f(2)
//!   f returns to main                 |          f(2) has ended               f(2) has ended
//! ```
//! A frame that is left out of sight stays on the stack: what its callers call next looks like recursion.  So
//! the sites that made calls which came and went above an open one are kept with it: if its own is among
//! these, or one that calls its function when no call of it is open, it is a guess that it was open so long.

use std::cell::Cell;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize, Serializer};

use crate::maybe_ip::MaybeIp;

/// Sites, at most [`Passed::MAX`] of them: beyond that it may be any.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Passed(Vec<MaybeIp>);

impl Passed {
    const MAX: usize = 16;

    /// This site has made a call above, which has returned.
    pub(crate) fn add(&mut self, site: MaybeIp) {
        if self.0.len() <= Self::MAX && !self.0.contains(&site) {
            self.0.push(site);
        }
    }

    /// These calls came and went above another one, too.
    pub(crate) fn add_all(&mut self, above: &Self) {
        above.0.iter().for_each(|site| self.add(*site));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// A site for which `is_caller` holds may be among them.
    pub(crate) fn has(&self, is_caller: impl Fn(MaybeIp) -> bool) -> bool {
        self.0.len() > Self::MAX || self.0.iter().any(|&site| is_caller(site))
    }
}

/// By wanted function: the sites out of sight that made outermost calls of it, which have returned.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OuterSites {
    #[serde(serialize_with = "in_order")]
    sites: FxHashSet<(u32, MaybeIp)>,
    /// A call depends on them.
    #[serde(skip)]
    was_asked: Cell<bool>,
}

impl OuterSites {
    const MAX: usize = 1 << 12;

    pub(crate) fn add(&mut self, wanted: u32, site: MaybeIp) {
        if self.sites.len() < Self::MAX {
            self.sites.insert((wanted, site));
        }
    }

    /// These calls were outermost, too.
    pub(crate) fn add_all(&mut self, other: &Self) {
        other.sites.iter().for_each(|(wanted, site)| self.add(*wanted, *site));
    }

    pub(crate) fn has(&self, wanted: u32, site: MaybeIp) -> bool {
        self.was_asked.set(true);
        self.sites.len() >= Self::MAX || self.sites.contains(&(wanted, site))
    }

    /// [`Self::has`] was called: the answer depends on earlier events.
    pub(crate) fn was_asked(&self) -> bool {
        self.was_asked.get()
    }
}

/// Writes a set so that the bytes do not depend on a hash.
fn in_order<S: Serializer>(sites: &FxHashSet<(u32, MaybeIp)>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut all: Vec<&(u32, MaybeIp)> = sites.iter().collect();
    all.sort_unstable();
    serializer.collect_seq(all)
}
