//! What the numbers of functions, objects and places in a summary stand for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use analyzer::{NewIds, Place, Summary};
use model::{FunctionId, ObjectId, Svma, Tid};
use serde::{Deserialize, Serialize};

use crate::render::Names;

/// The names in a summary.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NameTable {
    /// By number, from 1: 0 is code that no object explains.
    pub(crate) functions: Vec<FunctionName>,
    /// By number, from 0.
    pub(crate) objects: Vec<ObjectName>,
    pub(crate) places: Vec<PlaceName>,
    pub(crate) threads: Vec<ThreadName>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FunctionName {
    /// The least number that a recording gave it: equals of a report stand in the order of these.
    pub(crate) rank: u32,
    pub(crate) name: String,
    pub(crate) object: Option<String>,
    /// Which of the functions of this name in the object: from 0, in the order of their addresses.
    pub(crate) nth: u32,
    /// Inlined instances, which are not counted; `None`: not looked for.
    pub(crate) inlined: Option<u64>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectName {
    pub(crate) rank: u32,
    pub(crate) path: String,
    /// Which of the objects of this path.
    pub(crate) nth: u32,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlaceName {
    pub(crate) object: ObjectId,
    pub(crate) svma: Svma,
    pub(crate) site: String,
    /// `None`: lines were not asked for, or nothing says.
    pub(crate) line: Option<String>,
}

/// A thread of calls that are listed one by one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ThreadName {
    pub(crate) recording: String,
    pub(crate) tid: Tid,
    pub(crate) name: String,
}

/// What a summary speaks of.
#[derive(Default)]
struct Met {
    functions: RefCell<BTreeSet<FunctionId>>,
    objects: RefCell<BTreeSet<ObjectId>>,
    places: RefCell<BTreeSet<Place>>,
    threads: RefCell<BTreeSet<Tid>>,
}

impl NewIds for Met {
    fn function(&self, id: FunctionId) -> FunctionId {
        self.functions.borrow_mut().insert(id);
        id
    }

    fn object(&self, id: ObjectId) -> ObjectId {
        self.objects.borrow_mut().insert(id);
        id
    }

    fn place(&self, place: Place) -> Place {
        self.places.borrow_mut().insert(place);
        Place { object: self.object(place.object), ..place }
    }

    fn thread(&self, tid: Tid) {
        self.threads.borrow_mut().insert(tid);
    }
}

impl NameTable {
    /// No function and no object has two numbers.
    pub(super) fn has_each_once(&self) -> bool {
        let functions: BTreeSet<_> =
            self.functions.iter().map(|function| (&function.name, &function.object, function.nth)).collect();
        let objects: BTreeSet<_> = self.objects.iter().map(|object| (&object.path, object.nth)).collect();
        functions.len() == self.functions.len() && objects.len() == self.objects.len()
    }

    /// A function of this number is in the table.
    pub(super) fn has_function(&self, id: FunctionId) -> bool {
        (id.0 as usize).checked_sub(1).is_some_and(|at| at < self.functions.len())
    }

    /// The names of what a summary of one recording speaks of, and the summary by the numbers of the table.
    pub(crate) fn of(
        sums: Summary,
        names: &dyn Names,
        recording: &str,
        inlined: &BTreeMap<FunctionId, u64>,
    ) -> (Self, Summary) {
        let met = Met::default();
        let sums = sums.renumbered(&met);
        let Met { functions, objects, places, threads } = met;
        let (functions, objects) = (functions.into_inner(), objects.into_inner());
        let functions: Vec<FunctionId> =
            functions.into_iter().filter(|id| *id != FunctionId::UNKNOWN).collect();
        let objects: Vec<ObjectId> = objects.into_iter().collect();
        let ids = TableIds {
            functions: functions.iter().copied().zip((1..).map(FunctionId)).collect(),
            objects: objects.iter().copied().zip((0..).map(ObjectId)).collect(),
        };
        let place = |place: Place| PlaceName {
            object: ids.object(place.object),
            svma: place.svma,
            site: names.site(place),
            line: names.line(place),
        };
        let thread = |tid: Tid| {
            let name = names.thread(tid)?;
            Some(ThreadName { recording: recording.to_owned(), tid, name })
        };
        let table = Self {
            functions: function_names(&functions, names, inlined),
            objects: object_names(&objects, names),
            places: places.into_inner().into_iter().map(place).collect(),
            threads: threads.into_inner().into_iter().filter_map(thread).collect(),
        };
        (table, sums.renumbered(&ids))
    }
}

fn function_names(
    ids: &[FunctionId],
    names: &dyn Names,
    inlined: &BTreeMap<FunctionId, u64>,
) -> Vec<FunctionName> {
    let known = names.nth_of(ids);
    let mut taken: BTreeSet<(String, Option<String>, u32)> = BTreeSet::new();
    let function = |id: &FunctionId| {
        let (name, object) = (names.function(*id), names.object_of(*id));
        // Objects of one path may have the same functions, which stand in the order of their numbers.
        let mut nth = known.get(id).copied().unwrap_or_default();
        while !taken.insert((name.clone(), object.clone(), nth)) {
            nth = nth.saturating_add(1);
        }
        FunctionName { rank: id.0, name, object, nth, inlined: inlined.get(id).copied() }
    };
    ids.iter().map(function).collect()
}

fn object_names(ids: &[ObjectId], names: &dyn Names) -> Vec<ObjectName> {
    let mut of_path: BTreeMap<String, u32> = BTreeMap::new();
    let object = |id: &ObjectId| {
        let path = names.object(*id);
        let count = of_path.entry(path.clone()).or_default();
        *count += 1;
        ObjectName { rank: id.0, path, nth: *count - 1 }
    };
    ids.iter().map(object).collect()
}

/// Numbers by table. What is in none becomes unknown.
#[derive(Debug, Default)]
pub(super) struct TableIds {
    pub(super) functions: BTreeMap<FunctionId, FunctionId>,
    pub(super) objects: BTreeMap<ObjectId, ObjectId>,
}

impl NewIds for TableIds {
    fn function(&self, id: FunctionId) -> FunctionId {
        self.functions.get(&id).copied().unwrap_or(FunctionId::UNKNOWN)
    }

    fn object(&self, id: ObjectId) -> ObjectId {
        self.objects.get(&id).copied().unwrap_or(ObjectId(u32::MAX))
    }
}

/// The names of a summary, for its report.
pub(crate) struct SummaryNames<'t> {
    table: &'t NameTable,
    places: BTreeMap<Place, &'t PlaceName>,
    /// Threads that are named alike in all recordings that have one of this number.
    threads: BTreeMap<Tid, Option<&'t str>>,
    lines: bool,
}

impl<'t> SummaryNames<'t> {
    /// Of a table; `lines`: with source lines, as far as there are.
    pub(crate) fn new(table: &'t NameTable, lines: bool) -> Self {
        let place = |of: &'t PlaceName| (Place { object: of.object, svma: of.svma }, of);
        let mut threads: BTreeMap<Tid, Option<&str>> = BTreeMap::new();
        for ThreadName { tid, name, .. } in &table.threads {
            let known = threads.entry(*tid).or_insert(Some(name));
            *known = known.filter(|known| known == name);
        }
        Self { table, places: table.places.iter().map(place).collect(), threads, lines }
    }

    fn function_name(&self, id: FunctionId) -> Option<&'t FunctionName> {
        self.table.functions.get((id.0 as usize).checked_sub(1)?)
    }

    /// Inlined instances of a function.
    pub(crate) fn inlined(&self, id: FunctionId) -> Option<u64> {
        self.function_name(id)?.inlined
    }
}

const UNKNOWN: &str = "[unknown]";

impl Names for SummaryNames<'_> {
    fn function(&self, id: FunctionId) -> String {
        self.function_name(id).map_or(UNKNOWN, |function| &function.name).to_owned()
    }

    fn object_of(&self, id: FunctionId) -> Option<String> {
        self.function_name(id)?.object.clone()
    }

    fn object(&self, id: ObjectId) -> String {
        self.table.objects.get(id.0 as usize).map_or(UNKNOWN, |object| &object.path).to_owned()
    }

    fn site(&self, place: Place) -> String {
        self.places.get(&place).map_or(UNKNOWN, |place| &place.site).to_owned()
    }

    fn line(&self, place: Place) -> Option<String> {
        self.places.get(&place).filter(|_| self.lines)?.line.clone()
    }

    fn thread(&self, tid: Tid) -> Option<String> {
        self.threads.get(&tid).copied().flatten().map(str::to_owned)
    }
}
