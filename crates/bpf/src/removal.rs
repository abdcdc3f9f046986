//! Probes that are being removed.
//!
//! Closing a link, the kernel takes the breakpoints out of the code, and then waits until no CPU can be in
//! one of its programs any more (RCU).  It is this that takes long: 30 to 50 ms here, a second and more where
//! CPUs are wanted by many.  Links that are closed one after the other wait one after the other; closed by a
//! thread each, they wait together.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libbpf_rs::Link;

/// What a thread that closes a link needs.
const STACK_BYTES: usize = 64 << 10;

/// Links that are being closed.  Dropped, it does not wait; the process ends when all are closed in any case.
#[derive(Debug, Default)]
pub struct Removal {
    begun: Option<Instant>,
    links: usize,
    closing: Vec<JoinHandle<Instant>>,
}

impl Removal {
    /// Begins to close links, in this order.
    pub(crate) fn begin(links: impl IntoIterator<Item = Link>) -> Self {
        let begun = Instant::now();
        let close = |link: Link| {
            let close = move || {
                drop(link);
                Instant::now()
            };
            // Without a thread it is closed here and now.
            thread::Builder::new().stack_size(STACK_BYTES).spawn(close).ok()
        };
        let closing: Vec<Option<JoinHandle<Instant>>> = links.into_iter().map(close).collect();
        Self { begun: Some(begun), links: closing.len(), closing: closing.into_iter().flatten().collect() }
    }

    /// This and what an earlier one has not done yet.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        if other.is_done() {
            return self;
        }
        self.begun = [self.begun, other.begun].into_iter().flatten().min();
        self.links += other.links;
        self.closing.extend(other.closing);
        self
    }

    /// All are closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.closing.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all are closed.
    pub fn wait(self) -> Removed {
        let ended: Vec<Instant> =
            self.closing.into_iter().filter_map(|closing| closing.join().ok()).collect();
        let since_begin = |ended: Option<&Instant>| {
            self.begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended.duration_since(begun))
        };
        Removed {
            links: self.links,
            first: since_begin(ended.iter().min()),
            time: since_begin(ended.iter().max()),
        }
    }
}

/// How long it took to remove probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Links that were closed together.
    pub links: usize,
    /// Until the first was closed.
    pub first: Duration,
    /// Until all were.
    pub time: Duration,
}

impl Removed {
    /// The number of links that can be removed in this time; `None`: that was not measured.
    ///
    /// The first one takes what each takes that is closed alone; by how much later the last one is closed
    /// tells how far the kernel closes them one after the other.
    #[must_use]
    pub fn most_links_in(&self, time: Duration) -> Option<usize> {
        let more = u32::try_from(self.links.checked_sub(1)?).ok().filter(|more| *more > 0)?;
        let each = (self.time.saturating_sub(self.first) / more).max(Duration::from_nanos(1));
        let left = time.saturating_sub(self.first).as_nanos() / each.as_nanos();
        Some(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn removed(links: usize, first_ms: u64, all_ms: u64) -> Removed {
        Removed { links, first: Duration::from_millis(first_ms), time: Duration::from_millis(all_ms) }
    }

    #[test]
    fn how_many_links_can_be_removed_follows_from_those_that_were() {
        let most = |removed: Removed| removed.most_links_in(Duration::from_secs(2));
        assert_eq!(most(removed(11, 50, 550)), Some(39), "one after the other, in 50 ms each");
        assert!(most(removed(11, 900, 901)) > Some(1000), "all wait together");
        assert_eq!(most(removed(11, 3000, 3001)), Some(0));
        assert_eq!((most(removed(1, 50, 50)), most(Removed::default())), (None, None));
    }
}
