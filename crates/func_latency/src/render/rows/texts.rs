//! Texts of cells, each made once: a cell has the number of its text.

use std::hash::Hash;

use analyzer::{Caller, ChildKind, Place, Reason};
use model::{FunctionId, ObjectId, Tid};
use rustc_hash::FxHashMap;

use super::origin::Origin;
use crate::render::Names;
use crate::render::names::{callee_name, caller_name, reason_name};

/// Number of a text among those that the cells of a recording's tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextId(pub(super) u32);

/// Texts by number.
#[derive(Default)]
struct AllTexts(Vec<Box<str>>);

impl AllTexts {
    /// Adds a text. Beyond 2^32 there is no other number than the last: names fill memory before.
    fn add(&mut self, text: String) -> TextId {
        let number = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.push(text.into_boxed_str());
        TextId(number)
    }
}

/// Texts that have been made of names: at most one for each function, site, thread and reason.
pub(super) struct Texts<'n> {
    names: &'n dyn Names,
    all: AllTexts,
    functions: FxHashMap<FunctionId, FunctionTexts>,
    callers: FxHashMap<Caller, TextId>,
    callees: FxHashMap<(ChildKind, FunctionId), TextId>,
    sites: FxHashMap<Place, TextId>,
    threads: FxHashMap<Tid, Option<TextId>>,
    reasons: FxHashMap<Reason, TextId>,
    words: FxHashMap<&'static str, TextId>,
    wakers: FxHashMap<String, TextId>,
    objects_of_gaps: FxHashMap<ObjectId, TextId>,
}

/// What is said of a function.
#[derive(Clone, Copy)]
pub(super) struct FunctionTexts {
    pub(super) name: TextId,
    pub(super) object: Option<TextId>,
    pub(super) build_id: Option<TextId>,
}

/// What is said of all rows.
pub(super) struct OriginTexts {
    pub(super) host: Option<TextId>,
    pub(super) recording: Option<TextId>,
    pub(super) labels: Vec<TextId>,
    realtime_offset_ns: Option<i64>,
}

impl OriginTexts {
    /// Real time of a time of perf's clock, ns since 1970.
    pub(super) fn realtime_ns(&self, ns: u64) -> Option<i64> {
        i64::try_from(ns).ok()?.checked_add(self.realtime_offset_ns?)
    }
}

/// The text of a key, which is made if it is not there.
fn once<K: Eq + Hash>(
    all: &mut AllTexts,
    known: &mut FxHashMap<K, TextId>,
    key: K,
    make: impl FnOnce(&K) -> String,
) -> TextId {
    *known.entry(key).or_insert_with_key(|key| all.add(make(key)))
}

impl<'n> Texts<'n> {
    /// Of no name yet.
    pub(super) fn new(names: &'n dyn Names) -> Self {
        Self {
            names,
            all: AllTexts::default(),
            functions: FxHashMap::default(),
            callers: FxHashMap::default(),
            callees: FxHashMap::default(),
            sites: FxHashMap::default(),
            threads: FxHashMap::default(),
            reasons: FxHashMap::default(),
            words: FxHashMap::default(),
            wakers: FxHashMap::default(),
            objects_of_gaps: FxHashMap::default(),
        }
    }

    /// All texts, by their numbers.
    pub(super) fn all(&self) -> &[Box<str>] {
        &self.all.0
    }

    /// All texts, by their numbers.
    pub(super) fn into_all(self) -> Vec<Box<str>> {
        self.all.0
    }

    /// The texts of an origin.
    pub(super) fn origin(&mut self, origin: &Origin) -> OriginTexts {
        let mut add = |text: &str| self.all.add(text.to_owned());
        OriginTexts {
            host: origin.host.as_deref().map(&mut add),
            recording: origin.recording.as_deref().map(&mut add),
            labels: origin.labels.values().map(&mut add).collect(),
            realtime_offset_ns: origin.realtime_offset_ns,
        }
    }

    pub(super) fn function(&mut self, function: FunctionId) -> FunctionTexts {
        let Self { names, all, functions, .. } = self;
        let make = || {
            let mut add = |text: Option<String>| text.map(|text| all.add(text));
            let (object, build_id) = (add(names.object_of(function)), add(names.build_id_of(function)));
            FunctionTexts { name: all.add(names.function(function)), object, build_id }
        };
        *functions.entry(function).or_insert_with(make)
    }

    pub(super) fn caller(&mut self, caller: Caller) -> TextId {
        once(&mut self.all, &mut self.callers, caller, |caller| caller_name(self.names, *caller))
    }

    pub(super) fn callee(&mut self, kind: ChildKind, function: FunctionId) -> TextId {
        once(&mut self.all, &mut self.callees, (kind, function), |(kind, function)| {
            callee_name(self.names, *kind, *function)
        })
    }

    pub(super) fn site(&mut self, site: Option<Place>) -> Option<TextId> {
        site.map(|site| once(&mut self.all, &mut self.sites, site, |site| self.names.site(*site)))
    }

    pub(super) fn thread(&mut self, tid: Tid) -> Option<TextId> {
        let name = |tid: &Tid| self.names.thread(*tid).map(|name| self.all.add(name));
        *self.threads.entry(tid).or_insert_with_key(name)
    }

    /// A reason; `None`: it is not known.
    pub(super) fn reason(&mut self, reason: &Reason) -> Option<TextId> {
        if *reason == Reason::Unknown {
            return None;
        }
        if let Some(known) = self.reasons.get(reason) {
            return Some(*known);
        }
        Some(once(&mut self.all, &mut self.reasons, reason.clone(), reason_name))
    }

    /// A word of ours.
    pub(super) fn word(&mut self, word: &'static str) -> TextId {
        once(&mut self.all, &mut self.words, word, |word| (*word).to_owned())
    }

    /// The name of a thread that has woken another one.
    pub(super) fn waker(&mut self, name: &str) -> TextId {
        if let Some(known) = self.wakers.get(name) {
            return *known;
        }
        once(&mut self.all, &mut self.wakers, name.to_owned(), String::clone)
    }

    pub(super) fn object(&mut self, object: ObjectId) -> TextId {
        once(&mut self.all, &mut self.objects_of_gaps, object, |object| self.names.object(*object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_needs_its_offset() {
        let origin = |realtime_offset_ns| OriginTexts {
            host: None,
            recording: None,
            labels: Vec::new(),
            realtime_offset_ns,
        };
        assert_eq!(origin(Some(-5)).realtime_ns(3), Some(-2));
        assert_eq!(origin(Some(-5)).realtime_ns(u64::MAX), None);
        assert_eq!(origin(None).realtime_ns(3), None);
    }
}
