//! How many calls a timeline has: those that took long enough.
//!
//! ```text
//!   decode once     what every call took, by power of two    threshold, if none is given
//!   decode again    the calls from there on                  the file, with the number of the others
//! ```

use analyzer::{CallRow, CallTree, ShortCalls, TreeSink, Trees};

use crate::render::units::{counted, duration, grouped};

/// Which calls a timeline has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At most this number, the longest: those that took a power of two of ns that fits.
    Longest(u64),
    /// Those that took this time.
    AtLeast(u64),
}

impl Bound {
    /// Calls of a timeline that its viewers take without effort, in 10 to 20 MB.
    pub const USUAL: Self = Self::Longest(250_000);
}

/// What calls took: takes the trees of outermost calls, and keeps none.
#[derive(Debug, Default)]
pub struct Latencies(ShortCalls);

impl Latencies {
    /// The time that at most `most` calls took, in ns: 0 or a power of two.
    #[must_use]
    pub fn reached_by(&self, most: u64) -> u64 {
        self.0.reached_by(most)
    }
}

impl TreeSink for Latencies {
    fn wanted(&self) -> Trees {
        Trees::Outermost
    }

    fn min_ns(&self) -> u64 {
        u64::MAX
    }

    fn resumed(&mut self, call: &CallRow, tree: &CallTree) {
        self.call(call, tree);
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        self.0.add(call.latency_ns);
        self.0.add_all(tree.left_out());
    }
}

/// The calls that a timeline does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsLeftOut {
    /// All of them took less, ns.
    pub min_ns: u64,
    /// All.
    pub calls: u64,
    /// Those that are in no other call of the timeline, so that it lacks their time.
    pub outermost: u64,
    /// That time.
    pub outermost_ns: u64,
    /// Calls that share a slice with others: they were too many to keep apart, and that is drawn as if they
    /// had followed one another.
    pub merged: u64,
}

impl CallsLeftOut {
    /// No call yet, of those that take less.
    #[must_use]
    pub fn below(min_ns: u64) -> Self {
        Self { min_ns, ..Self::default() }
    }

    /// Counts the calls left out of an outermost call; false: that call is left out, too.
    pub fn keeps(&mut self, call: &CallRow, tree: &CallTree) -> bool {
        self.calls += tree.left_out().count();
        let is_kept = call.latency_ns >= self.min_ns;
        if is_kept {
            let alike = tree.nodes().iter().filter(|node| node.total.count > 1);
            self.merged += alike.map(|node| node.total.count).sum::<u64>();
        } else {
            self.calls += tree.nodes().len() as u64;
            self.outermost += 1;
            self.outermost_ns += call.latency_ns;
        }
        is_kept
    }

    /// What is to be said of them, for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let Self { min_ns, calls, outermost, outermost_ns, merged } = *self;
        let mut notes = Vec::new();
        if calls > 0 {
            let calls = counted(calls, "call");
            let lost = match outermost {
                0 => String::new(),
                _ => format!(
                    "; {} of them, {} in all, are in no other call",
                    grouped(outermost),
                    duration(outermost_ns)
                ),
            };
            let below = duration(min_ns);
            notes.push(format!(
                "{calls} of less than {below} left out (--all has them), whose time is their callers' own{lost}"
            ));
        }
        if merged > 0 {
            let merged = counted(merged, "call");
            notes.push(format!("{merged} too many to keep apart: those that are alike are one slice"));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_what_a_timeline_lacks() {
        assert_eq!(CallsLeftOut::below(0).notes(), [] as [String; 0]);
        let calls_inside = CallsLeftOut { calls: 1234, ..CallsLeftOut::below(64) };
        let says =
            "1,234 calls of less than 64 ns left out (--all has them), whose time is their callers' own";
        assert_eq!(calls_inside.notes(), [says]);
        let whole_calls = CallsLeftOut { outermost: 2, outermost_ns: 3500, ..calls_inside };
        assert_eq!(whole_calls.notes(), [format!("{says}; 2 of them, 3.50 us in all, are in no other call")]);
        let says = "5 calls too many to keep apart: those that are alike are one slice";
        assert_eq!(CallsLeftOut { merged: 5, ..CallsLeftOut::below(0) }.notes(), [says]);
    }
}
