//! Numbers for the functions and objects of summaries, by their names alone.
//!
//! ```text
//!   a.json  1 f  2 g         rank: the least number that a recording gave it
//!   b.json  1 g  2 h         together: in the order of ranks, then of names
//! ```

use std::collections::BTreeMap;

use model::{FunctionId, ObjectId, Svma};

use super::SummaryFile;
use super::names::{FunctionName, NameTable, ObjectName, PlaceName, TableIds};
use analyzer::NewIds;

/// A function in all summaries.
type FunctionKey = (String, Option<String>, u32);

/// An object in all summaries.
type ObjectKey = (String, u32);

fn function_key(function: &FunctionName) -> FunctionKey {
    (function.name.clone(), function.object.clone(), function.nth)
}

fn object_key(object: &ObjectName) -> ObjectKey {
    (object.path.clone(), object.nth)
}

/// Functions and objects, each once, with their numbers.
struct NumberOf {
    functions: BTreeMap<FunctionKey, FunctionId>,
    objects: BTreeMap<ObjectKey, ObjectId>,
    table: NameTable,
}

impl NumberOf {
    fn of(tables: &[&NameTable]) -> Self {
        let mut functions: BTreeMap<FunctionKey, FunctionName> = BTreeMap::new();
        for function in tables.iter().flat_map(|table| &table.functions) {
            let known = functions.entry(function_key(function)).or_insert_with(|| function.clone());
            known.rank = known.rank.min(function.rank);
            known.inlined = known.inlined.max(function.inlined);
        }
        let mut objects: BTreeMap<ObjectKey, ObjectName> = BTreeMap::new();
        for object in tables.iter().flat_map(|table| &table.objects) {
            let known = objects.entry(object_key(object)).or_insert_with(|| object.clone());
            known.rank = known.rank.min(object.rank);
        }
        // Stable: equals stay in the order of their names.
        let mut functions: Vec<(FunctionKey, FunctionName)> = functions.into_iter().collect();
        functions.sort_by_key(|(_, function)| function.rank);
        let mut objects: Vec<(ObjectKey, ObjectName)> = objects.into_iter().collect();
        objects.sort_by_key(|(_, object)| object.rank);
        let table = NameTable {
            functions: functions.iter().map(|(_, function)| function.clone()).collect(),
            objects: objects.iter().map(|(_, object)| object.clone()).collect(),
            ..NameTable::default()
        };
        let functions = functions.into_iter().map(|(key, _)| key).zip((1..).map(FunctionId)).collect();
        let objects = objects.into_iter().map(|(key, _)| key).zip((0..).map(ObjectId)).collect();
        Self { functions, objects, table }
    }

    /// The new numbers of one of the tables.
    fn ids(&self, table: &NameTable) -> TableIds {
        let function = |(old, function): (FunctionId, &FunctionName)| {
            self.functions.get(&function_key(function)).map(|new| (old, *new))
        };
        let object = |(old, object): (ObjectId, &ObjectName)| {
            self.objects.get(&object_key(object)).map(|new| (old, *new))
        };
        TableIds {
            functions: (1..).map(FunctionId).zip(&table.functions).filter_map(function).collect(),
            objects: (0..).map(ObjectId).zip(&table.objects).filter_map(object).collect(),
        }
    }
}

/// The places of tables, each once; of several names that one has, the first in their order.
fn places(tables: &[(&NameTable, TableIds)]) -> Vec<PlaceName> {
    let mut places: BTreeMap<(ObjectId, Svma), PlaceName> = BTreeMap::new();
    for (table, ids) in tables {
        for place in &table.places {
            let place = PlaceName { object: ids.object(place.object), ..place.clone() };
            let known = places.entry((place.object, place.svma)).or_insert_with(|| place.clone());
            known.site = known.site.clone().min(place.site);
            known.line = known.line.clone().into_iter().chain(place.line).min();
        }
    }
    places.into_values().collect()
}

fn renumbered(file: SummaryFile, ids: &TableIds, names: NameTable) -> SummaryFile {
    let hosts = file.hosts.into_iter().map(|(host, sums)| (host, sums.renumbered(ids))).collect();
    SummaryFile { hosts, names, ..file }
}

/// Both with the numbers of one table, which the first has then.
pub(super) fn together(one: SummaryFile, other: SummaryFile) -> (SummaryFile, SummaryFile) {
    let mut numbers = NumberOf::of(&[&one.names, &other.names]);
    let (of_one, of_other) = (numbers.ids(&one.names), numbers.ids(&other.names));
    let mut threads = [one.names.threads.clone(), other.names.threads.clone()].concat();
    threads.sort();
    numbers.table.threads = threads;
    let tables = [(&one.names, of_one), (&other.names, of_other)];
    numbers.table.places = places(&tables);
    let [(_, of_one), (_, of_other)] = tables;
    (renumbered(one, &of_one, numbers.table), renumbered(other, &of_other, NameTable::default()))
}

impl SummaryFile {
    /// The numbers that it would have if it was merged.
    pub(super) fn numbered_by_names(self) -> Self {
        let mut numbers = NumberOf::of(&[&self.names]);
        let ids = numbers.ids(&self.names);
        numbers.table.threads = self.names.threads.clone();
        numbers.table.threads.sort();
        let tables = [(&self.names, ids)];
        numbers.table.places = places(&tables);
        let [(_, ids)] = tables;
        renumbered(self, &ids, numbers.table)
    }
}
