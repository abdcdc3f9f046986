//! Names as cells of tables, each made once: rows of a table share the bytes of a name.

use std::hash::Hash;

use analyzer::{Caller, ChildKind, Place, Reason};
use model::{FunctionId, ObjectId, Tid};
use parquet::data_type::ByteArray;
use rustc_hash::FxHashMap;

use super::origin::{ObjectNames, Objects, Origin};
use crate::render::Names;
use crate::render::names::{callee_name, caller_name, reason_name};

/// Cells that names have been made of: at most one for each function, site, thread and reason.
pub(super) struct Texts<'n> {
    names: &'n dyn Names,
    objects: Objects,
    functions: FxHashMap<FunctionId, FunctionTexts>,
    callers: FxHashMap<Caller, ByteArray>,
    callees: FxHashMap<(ChildKind, FunctionId), ByteArray>,
    sites: FxHashMap<Place, ByteArray>,
    threads: FxHashMap<Tid, Option<ByteArray>>,
    reasons: FxHashMap<Reason, ByteArray>,
    words: FxHashMap<&'static str, ByteArray>,
    wakers: FxHashMap<String, ByteArray>,
}

/// What is said of a function.
#[derive(Clone)]
pub(super) struct FunctionTexts {
    pub(super) name: ByteArray,
    pub(super) object: Option<ByteArray>,
    pub(super) build_id: Option<ByteArray>,
}

/// What is said of all rows.
pub(super) struct OriginTexts {
    pub(super) host: Option<ByteArray>,
    pub(super) recording: Option<ByteArray>,
    pub(super) labels: Vec<ByteArray>,
}

impl OriginTexts {
    /// The cells of an origin.
    pub(super) fn new(origin: &Origin) -> Self {
        let cell = |text: &Option<String>| text.as_deref().map(ByteArray::from);
        Self {
            host: cell(&origin.host),
            recording: cell(&origin.recording),
            labels: origin.labels.values().map(ByteArray::from).collect(),
        }
    }
}

/// A cell that is there, or is made now.
fn once<K: Eq + Hash>(
    cells: &mut FxHashMap<K, ByteArray>,
    key: K,
    make: impl FnOnce(&K) -> String,
) -> ByteArray {
    cells.entry(key).or_insert_with_key(|key| make(key).into_bytes().into()).clone()
}

impl<'n> Texts<'n> {
    /// Of no name yet.
    pub(super) fn new(names: &'n dyn Names) -> Self {
        Self {
            names,
            objects: Objects::default(),
            functions: FxHashMap::default(),
            callers: FxHashMap::default(),
            callees: FxHashMap::default(),
            sites: FxHashMap::default(),
            threads: FxHashMap::default(),
            reasons: FxHashMap::default(),
            words: FxHashMap::default(),
            wakers: FxHashMap::default(),
        }
    }

    pub(super) fn function(&mut self, function: FunctionId) -> FunctionTexts {
        let Self { names, objects, functions, .. } = self;
        let make = || {
            let ObjectNames { object, build_id } = objects.of(*names, function);
            let cell = |text: &Option<String>| text.as_deref().map(ByteArray::from);
            let name = names.function(function).into_bytes().into();
            FunctionTexts { name, object: cell(object), build_id: cell(build_id) }
        };
        functions.entry(function).or_insert_with(make).clone()
    }

    pub(super) fn caller(&mut self, caller: Caller) -> ByteArray {
        once(&mut self.callers, caller, |caller| caller_name(self.names, *caller))
    }

    pub(super) fn callee(&mut self, kind: ChildKind, function: FunctionId) -> ByteArray {
        once(&mut self.callees, (kind, function), |(kind, function)| {
            callee_name(self.names, *kind, *function)
        })
    }

    pub(super) fn site(&mut self, site: Option<Place>) -> Option<ByteArray> {
        site.map(|site| once(&mut self.sites, site, |site| self.names.site(*site)))
    }

    pub(super) fn thread(&mut self, tid: Tid) -> Option<ByteArray> {
        let name = |tid: &Tid| self.names.thread(*tid).map(|name| name.into_bytes().into());
        self.threads.entry(tid).or_insert_with_key(name).clone()
    }

    /// A reason; `None`: it is not known.
    pub(super) fn reason(&mut self, reason: &Reason) -> Option<ByteArray> {
        if *reason == Reason::Unknown {
            return None;
        }
        if let Some(known) = self.reasons.get(reason) {
            return Some(known.clone());
        }
        Some(once(&mut self.reasons, reason.clone(), reason_name))
    }

    /// A word of ours.
    pub(super) fn word(&mut self, word: &'static str) -> ByteArray {
        once(&mut self.words, word, |word| (*word).to_owned())
    }

    /// The name of a thread that has woken another one.
    pub(super) fn waker(&mut self, name: &str) -> ByteArray {
        if let Some(known) = self.wakers.get(name) {
            return known.clone();
        }
        once(&mut self.wakers, name.to_owned(), String::clone)
    }

    pub(super) fn object(&self, object: ObjectId) -> ByteArray {
        self.names.object(object).into_bytes().into()
    }
}
