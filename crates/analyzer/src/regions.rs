//! The regions that are asked for, by the instructions at which they begin and end.

use std::sync::Arc;

use model::{Avma, FunctionId, FunctionLookup, FunctionSet, Mark, SpaceId};
use rustc_hash::FxHashMap;

use crate::request::Request;

/// What an instruction is to one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtMark {
    /// Its pseudo-function, and the number of that among the wanted ones.
    pub(crate) region: FunctionId,
    pub(crate) wanted: u32,
    /// It begins there.
    pub(crate) starts: bool,
    /// It ends there.
    pub(crate) ends: bool,
}

/// The regions of a request.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// That they begin and end in: any other instruction is passed by at the cost of one test.
    functions: FunctionSet,
    marks: FxHashMap<Mark, Arc<[AtMark]>>,
}

impl Regions {
    pub(crate) fn of(request: &Request, functions: &dyn FunctionLookup) -> Self {
        let mut marks: FxHashMap<Mark, Vec<AtMark>> = FxHashMap::default();
        let mut inside = Vec::new();
        for (&id, wanted) in request.functions.iter().zip(0..) {
            let Some(region) = functions.region(id) else { continue };
            inside.extend(&region.functions);
            for &mark in region.starts.iter().chain(&region.ends) {
                let here = marks.entry(mark).or_default();
                if here.iter().all(|known| known.wanted != wanted) {
                    let (starts, ends) = (region.starts.contains(&mark), region.ends.contains(&mark));
                    here.push(AtMark { region: id, wanted, starts, ends });
                }
            }
        }
        let marks = marks.into_iter().map(|(mark, here)| (mark, here.into())).collect();
        Self { functions: inside.into_iter().collect(), marks }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The functions that they begin and end in.
    pub(crate) fn functions(&self) -> &FunctionSet {
        &self.functions
    }

    /// What begins and ends at an instruction of a function, if anything does.
    pub(crate) fn at(
        &self,
        functions: &dyn FunctionLookup,
        space: SpaceId,
        (ip, function): (Avma, FunctionId),
    ) -> Option<Arc<[AtMark]>> {
        if !self.functions.contains(function) {
            return None;
        }
        self.marks.get(&functions.place(space, ip)?).cloned()
    }
}
