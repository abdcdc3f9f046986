//! The captures: which hits get one, when their trace is there, how they are written, and which stay.
//!
//! ```text
//!   hit       |--call--|                         within the rate, and slower than the captures that are kept
//!   waits     |--before--|--call--|--after--|    until everything up to its end is decoded
//!   written   .bundle-XXXX/ -> TIME-ID/          whole under its name, or not at all
//!   kept      the slowest, by number and bytes
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use model::Ns;

use super::allowance::Allowance;
use super::triggers::Hit;
use crate::bundle_dir::{CAPTURE, CAPTURE_SCHEMA, Capture};
use crate::messages;
use crate::render::screen::figures::capture_name;
use crate::render::units::{counted, duration, size};
use crate::trigger_words::Rate;

/// Where captures go, and how many.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) directory: PathBuf,
    /// Time before the begin of a hit that its capture has, and after its end.
    pub(super) before_ns: u64,
    pub(super) after_ns: u64,
    pub(super) rate: Rate,
    /// The number of captures that stay, and their bytes.
    pub(super) keep: usize,
    pub(super) keep_bytes: u64,
}

/// Hits that wait for their trace; more are left out as if the rate did not allow them.
const WAITING_MAX: usize = 1 << 10;

/// Writes captures.
pub(super) trait Capturer {
    /// Writes the capture of a hit to a place.
    ///
    /// # Errors
    /// It cannot be had, or not be written.
    fn write(&self, limits: &Limits, place: &Path, hit: &Hit) -> Result<Capture>;
}

/// A capture of a hit, before anything is known of what it shows. `function`: as `-f` takes it.
pub(super) fn begun(place: &Path, hit: &Hit, function: String, (from, to): (Ns, Ns)) -> Capture {
    Capture {
        schema: CAPTURE_SCHEMA.to_owned(),
        path: place.display().to_string(),
        trigger: hit.trigger.clone(),
        function,
        id: None,
        tid: hit.tid.map(|tid| tid.0),
        start_ns: hit.latency_ns.map(|_| hit.span.0.0),
        latency_ns: hit.latency_ns,
        from_ns: from.0,
        to_ns: to.0,
        bytes: 0,
        cause: String::new(),
    }
}

/// What a capture shows that is about no call: those that are in it.
pub(super) fn calls_shown(latencies_ns: impl Iterator<Item = u64>) -> String {
    let (number, slowest_ns) =
        latencies_ns.fold((0, 0), |(number, slowest), ns| (number + 1, slowest.max(ns)));
    match number {
        0 => "no whole call is in it".to_owned(),
        1 => format!("one call, which took {}", duration(slowest_ns)),
        _ => format!("{}, the slowest took {}", counted(number, "call"), duration(slowest_ns)),
    }
}

/// The latency of the least slow capture, where there is room for no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor(u64);

impl Floor {
    #[cfg(all(test, feature = "bpf"))]
    pub(super) const fn at(latency_ns: u64) -> Self {
        Self(latency_ns)
    }

    /// The hit would be the first to be removed.
    pub(super) fn is_above(self, hit: &Hit) -> bool {
        hit.latency_ns.is_none_or(|latency_ns| latency_ns <= self.0)
    }
}

/// The captures of a watch.
pub(super) struct Captures {
    limits: Limits,
    waiting: Vec<Hit>,
    kept: Vec<Kept>,
    allowance: Allowance,
    counts: Counts,
}

/// How many hits there were, and what became of them.
#[derive(Default)]
struct Counts {
    hits: u64,
    beyond_rate: u64,
    less_slow: u64,
    without_trace: u64,
    /// A watch of the same recording, or another trigger, had made the capture.
    known: u64,
    made: u64,
    failed: u64,
}

/// A capture that is there.
struct Kept {
    path: PathBuf,
    /// `None`: of no call.
    latency_ns: Option<u64>,
    /// Asked for by hand.
    is_asked: bool,
    /// When its hit ended.
    at: Ns,
    bytes: u64,
}

impl Captures {
    pub(super) fn new(limits: Limits) -> Self {
        let (waiting, kept, counts) = (Vec::new(), Vec::new(), Counts::default());
        let allowance = Allowance::new(limits.rate);
        Self { limits, waiting, kept, allowance, counts }
    }

    /// Takes hits, in the order of their ends, as far as the limits allow.
    pub(super) fn take(&mut self, hits: Vec<Hit>) {
        for hit in hits {
            let end = hit.span.1;
            let has_room = self.allowance.has_room(end);
            let is_same = |known: &&mut Hit| (known.span.0, &known.name) == (hit.span.0, &hit.name);
            if let Some(known) = self.waiting.iter_mut().find(is_same) {
                known.is_asked |= hit.is_asked;
                continue;
            }
            self.counts.hits += 1;
            if hit.is_asked && self.waiting.len() < WAITING_MAX {
                self.waiting.push(hit);
            } else if !has_room || self.waiting.len() >= WAITING_MAX {
                self.counts.beyond_rate += 1;
            } else if self.is_least(&hit) {
                self.counts.less_slow += 1;
            } else {
                self.allowance.use_up(end);
                self.waiting.push(hit);
            }
        }
    }

    /// Takes a hit for which the rate had room, and of which the trace is there.
    pub(super) fn take_admitted(&mut self, hit: Hit) {
        self.counts.hits += 1;
        self.waiting.push(hit);
    }

    /// Counts hits that were not looked at, because there were too many.
    pub(super) fn leave_out(&mut self, hits: u64) {
        self.counts.hits += hits;
        self.counts.beyond_rate += hits;
    }

    /// Counts hits that were not looked at, as they were not above the floor.
    pub(super) fn leave_out_less_slow(&mut self, hits: u64) {
        self.counts.hits += hits;
        self.counts.less_slow += hits;
    }

    /// Counts a hit that has no trace but what a capture before has.
    pub(super) fn leave_out_without_trace(&mut self) {
        self.counts.hits += 1;
        self.counts.without_trace += 1;
    }

    /// A capture of the hit would be the first to be removed.
    fn is_least(&self, hit: &Hit) -> bool {
        !hit.is_asked && self.floor().is_some_and(|floor| floor.is_above(hit))
    }

    /// What a hit must be above for its capture to stay; `None`: any stays.
    pub(super) fn floor(&self) -> Option<Floor> {
        if self.kept.len() < self.limits.keep {
            return None;
        }
        let of_calls = self.kept.iter().filter(|kept| !kept.is_asked).map(|kept| kept.latency_ns);
        match of_calls.min() {
            // Captures that were asked for by hand give way to none.
            None => Some(Floor(u64::MAX)),
            // One of no call gives way to any.
            Some(least) => least.map(Floor),
        }
    }

    /// The time from which on the trace is needed, for hits that wait and for the next ones.
    pub(super) fn needs_from(&self, decoded_until: Ns) -> Ns {
        let starts = self.waiting.iter().map(|hit| hit.span.0);
        let first = starts.fold(decoded_until, Ns::min);
        Ns(first.0.saturating_sub(self.limits.before_ns))
    }

    /// Makes the captures of hits of which everything up to their end is known; `until` is up to when it is,
    /// or `None` if no more comes. `made` gets each of them. One that cannot be made is a warning.
    pub(super) fn make(
        &mut self,
        capturer: &dyn Capturer,
        until: Option<Ns>,
        made: &mut dyn FnMut(&Capture),
    ) {
        let waiting = std::mem::take(&mut self.waiting);
        let (due, waiting): (Vec<Hit>, Vec<Hit>) =
            waiting.into_iter().partition(|hit| self.is_all_known(hit.span.1, until));
        self.waiting = waiting;
        for hit in due {
            if self.is_least(&hit) {
                self.counts.less_slow += 1;
                continue;
            }
            let place = self.limits.directory.join(capture_name(hit.span.0.0, &hit.name));
            if let Some(capture) = capture_at(&place) {
                self.counts.known += 1;
                made(&capture);
                continue;
            }
            match capturer.write(&self.limits, &place, &hit) {
                Ok(capture) => {
                    self.counts.made += 1;
                    let at = hit.span.1;
                    let Hit { latency_ns, is_asked, .. } = hit;
                    self.kept.push(Kept {
                        path: place.clone(),
                        latency_ns,
                        is_asked,
                        at,
                        bytes: capture.bytes,
                    });
                    self.remove_least();
                    match self.kept.iter().any(|kept| kept.path == place) {
                        true => made(&capture),
                        false => messages::warn(format!("{} had no room: see --keep", capture.path)),
                    }
                }
                Err(error) => {
                    self.counts.failed += 1;
                    messages::warn(format!(
                        "no capture of {} at {} ns: {error:#}; the watch goes on",
                        hit.name, hit.span.0.0
                    ));
                }
            }
        }
    }

    /// Removes captures down to the limits: first the oldest of no call, then the least slow calls; captures
    /// asked for by hand come last.
    fn remove_least(&mut self) {
        let is_too_much = |kept: &[Kept], limits: &Limits| {
            let bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
            kept.len() > limits.keep || (bytes > limits.keep_bytes && kept.len() > 1)
        };
        while is_too_much(&self.kept, &self.limits) {
            let rank = |at: &usize| self.kept.get(*at).map(|it| (it.is_asked, it.latency_ns, it.at));
            let least = (0..self.kept.len()).min_by_key(rank);
            let Some(least) = least else { return };
            let Kept { path, .. } = self.kept.remove(least);
            // Under a name that no reader takes for a capture: half of one is never seen.
            let gone = path.with_file_name(format!(".removed-{}", std::process::id()));
            // One may be left of a process of this number that was killed.
            let _ = fs::remove_dir_all(&gone);
            let removed = fs::rename(&path, &gone).and_then(|()| fs::remove_dir_all(&gone));
            if let Err(error) = removed {
                messages::warn(format!("cannot remove {}: {error}", path.display()));
            }
        }
    }

    /// Some hit waits of which everything is known up to `until`.
    #[cfg(feature = "bpf")]
    pub(super) fn has_due(&self, until: Option<Ns>) -> bool {
        self.waiting.iter().any(|hit| self.is_all_known(hit.span.1, until))
    }

    /// Everything is known that a capture of something that ended at `end` has; `until` is up to when
    /// everything is, or `None` if no more comes.
    pub(super) fn is_all_known(&self, end: Ns, until: Option<Ns>) -> bool {
        until.is_none_or(|until| end.0.saturating_add(self.limits.after_ns) <= until.0)
    }

    /// Anything was hit.
    pub(super) fn has_hits(&self) -> bool {
        self.counts.hits > 0
    }

    /// Any is there.
    pub(super) fn are_made(&self) -> bool {
        self.counts.made + self.counts.known > 0
    }

    /// Says what became of all hits.
    pub(super) fn summarise(&self) {
        messages::note(self.summary());
    }

    fn summary(&self) -> String {
        let Counts { hits, beyond_rate, less_slow, without_trace, known, made, failed } = self.counts;
        let bytes: u64 = self.kept.iter().map(|kept| kept.bytes).sum();
        let (directory, rate) = (&self.limits.directory, self.allowance.rate());
        let mut said = format!(
            "{}, {made} captured, {} kept in {} ({})",
            counted(hits, "hit"),
            self.kept.len(),
            directory.display(),
            size(bytes)
        );
        let without = [
            (beyond_rate, format!("beyond {} in {}", rate.number, duration(rate.per.0))),
            (less_slow, "less slow than those kept".to_owned()),
            (without_trace, "without trace".to_owned()),
            (known, "captured before".to_owned()),
            (failed, "failed".to_owned()),
        ];
        for (number, why) in without.iter().filter(|(number, _)| *number > 0) {
            said = format!("{said}; {number} {why}");
        }
        said
    }
}

/// The capture that is in a directory: of another watch of the recording, or of another trigger.
fn capture_at(place: &Path) -> Option<Capture> {
    let capture: Capture = serde_json::from_slice(&fs::read(place.join(CAPTURE)).ok()?).ok()?;
    Some(Capture { path: place.display().to_string(), ..capture })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger_words::DurationNs;

    /// Of which two are kept.
    fn captures() -> Captures {
        Captures::new(Limits {
            directory: PathBuf::from("captures"),
            before_ns: 0,
            after_ns: 0,
            rate: Rate { number: 1, per: DurationNs(1_000_000_000) },
            keep: 2,
            keep_bytes: u64::MAX,
        })
    }

    /// Where these are kept, by latency and whether they were asked for by hand.
    fn floor(kept: &[(Option<u64>, bool)]) -> Option<Floor> {
        let mut captures = captures();
        captures.kept.extend(kept.iter().map(|&(latency_ns, is_asked)| Kept {
            path: PathBuf::new(),
            latency_ns,
            is_asked,
            at: Ns(0),
            bytes: 0,
        }));
        captures.floor()
    }

    #[test]
    fn the_slowest_stay_and_what_was_asked_for_by_hand() {
        assert_eq!(floor(&[(Some(5), false)]), None, "there is room");
        assert_eq!(floor(&[(Some(7), false), (Some(5), false)]), Some(Floor(5)));
        assert_eq!(floor(&[(Some(7), false), (None, false)]), None, "what is no call goes first");
        assert_eq!(floor(&[(Some(7), false), (None, true)]), Some(Floor(7)));
        assert_eq!(floor(&[(None, true), (Some(5), true)]), Some(Floor(u64::MAX)));
    }

    #[test]
    fn each_hit_is_counted_with_what_became_of_it() {
        let mut captures = captures();
        captures.take_admitted(Hit::at(Ns(1), None, "on", "rare was entered".to_owned()));
        captures.leave_out(3);
        captures.leave_out_less_slow(2);
        captures.leave_out_without_trace();
        let said = "7 hits, 0 captured, 0 kept in captures (0 B); 3 beyond 1 in 1.00 s";
        assert_eq!(captures.summary(), format!("{said}; 2 less slow than those kept; 1 without trace"));
    }
}
