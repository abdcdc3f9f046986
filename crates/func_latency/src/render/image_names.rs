//! Names as the image knows them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use analyzer::Place;
use image::{Image, SourceLine};
use model::{FunctionId, FunctionLookup, ObjectId, Schedule, Tid};

use super::Names;
use super::names::file_name;

/// Names of an image; demangled once each.
pub(crate) struct ImageNames<'a> {
    image: &'a Image,
    /// Say source lines: reads DWARF when first asked.
    lines: bool,
    /// Names already made: at most all there are.
    functions: RefCell<HashMap<FunctionId, String>>,
    threads: BTreeMap<Tid, String>,
}

impl<'a> ImageNames<'a> {
    pub(crate) fn new(image: &'a Image, lines: bool) -> Self {
        Self { image, lines, functions: RefCell::default(), threads: BTreeMap::new() }
    }

    /// With the names of threads.
    pub(crate) fn with_threads(self, threads: BTreeMap<Tid, String>) -> Self {
        Self { threads, ..self }
    }

    /// With the names of threads that a recording has.
    pub(crate) fn with_threads_of(self, schedule: &Schedule) -> Self {
        self.with_threads(schedule.names().into_iter().map(|(tid, name)| (tid, name.to_owned())).collect())
    }
}

impl Names for ImageNames<'_> {
    fn function(&self, id: FunctionId) -> String {
        self.functions.borrow_mut().entry(id).or_insert_with(|| self.image.function_name(id)).clone()
    }

    fn object_of(&self, id: FunctionId) -> Option<String> {
        FunctionLookup::object(self.image, id).map(|object| self.object(object))
    }

    fn build_id_of(&self, id: FunctionId) -> Option<String> {
        FunctionLookup::object(self.image, id).and_then(|object| self.image.object_build_id(object))
    }

    fn nth_of(&self, ids: &[FunctionId]) -> BTreeMap<FunctionId, u32> {
        self.image.nth_of_names(ids)
    }

    fn object(&self, id: ObjectId) -> String {
        self.image.object_name(id).to_owned()
    }

    fn thread(&self, tid: Tid) -> Option<String> {
        self.threads.get(&tid).cloned()
    }

    fn site(&self, place: Place) -> String {
        self.image.site_name_at(place.object, place.svma)
    }

    fn line(&self, place: Place) -> Option<String> {
        if !self.lines {
            return None;
        }
        let line = self.image.source_line_at(place.object, place.svma)?;
        let short = |line: &SourceLine| format!("{}:{}", file_name(&line.file), line.line);
        let chain: Vec<String> = std::iter::once(&line).chain(&line.inlined_at).map(short).collect();
        Some(chain.join(" inlined at "))
    }
}
