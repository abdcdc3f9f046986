//! Code blocks of a function: where each begins and ends, and its time.
//!
//! ```text
//!   entry .. call g     from the function's first instruction to its call of g
//!   g .. call h         from where g has returned to
//!   h .. return
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;

use analyzer::{ChildKey, CodeBegin, CodeRow, OwnCode, Place, TimeRow};
use model::Svma;

use super::Names;
use super::names::callee_name;

/// A code block with its names.
pub(crate) struct Block {
    /// Where it begins.
    pub(crate) start: Place,
    /// Its last instruction; `None`: not known.
    pub(crate) end: Option<Place>,
    /// What was before it: `entry`, the function that has returned to it, `jump`.
    pub(crate) after: String,
    /// What its last instruction calls; `None`: it returns, or jumps elsewhere.
    pub(crate) before: Option<String>,
    /// How often it ran, and how long.
    pub(crate) time: TimeRow,
}

impl Block {
    /// Where it begins and ends, in words.
    pub(crate) fn name(&self) -> String {
        let before = match (&self.before, self.end) {
            (Some(callee), _) => format!("call {callee}"),
            (None, Some(_)) => "return".to_owned(),
            (None, None) => "...".to_owned(),
        };
        format!("{} .. {before}", self.after)
    }
}

/// The blocks of a function, those with most time first.
pub(crate) fn blocks(names: &dyn Names, code: &OwnCode) -> Vec<Block> {
    let mut callees: BTreeMap<Place, Vec<ChildKey>> = BTreeMap::new();
    for (key, _) in &code.children {
        if let Some(site) = key.site {
            callees.entry(site).or_default().push(*key);
        }
    }
    let called = |site: Place| {
        let (first, more) = callees.get(&site)?.split_first()?;
        let more = if more.is_empty() { "" } else { ", ..." };
        Some(format!("{}{more}", callee_name(names, first.kind, first.function)))
    };
    // The call is the instruction in front of where it returns to.
    let site_before = |start: Place| {
        let first = Place { svma: Svma(start.svma.0.saturating_sub(LONGEST)), ..start };
        callees.range(first..start).next_back().map(|(site, _)| *site)
    };
    let block = |row: &CodeRow| Block {
        start: row.start,
        end: row.end.map(|end| end.at),
        after: match row.begin {
            CodeBegin::Entry => "entry".to_owned(),
            CodeBegin::Return => site_before(row.start).and_then(called).unwrap_or_else(|| "...".to_owned()),
            CodeBegin::Jump => "jump".to_owned(),
        },
        before: row.end.and_then(|end| called(end.at)),
        time: row.time,
    };
    let mut blocks: Vec<Block> = code.code.iter().map(block).collect();
    blocks.sort_by_key(|block| (Reverse(block.time.total.sum_ns), block.start, block.end));
    blocks
}

/// The longest call or system call, in bytes, prefixes included.
const LONGEST: u64 = 15;
