//! Which code an IP filter shows.

use std::ops::Range;

use analyzer::Place;
use model::{FunctionId, FunctionLookup as _, ObjectId};

use crate::Opened;
use crate::pipeline::Error;

/// The ranges of an IP filter, by the symbols that it was made of.
#[derive(Clone, Debug, Default)]
pub struct FilteredCode {
    ranges: Vec<(ObjectId, Range<u64>)>,
}

impl FilteredCode {
    /// `f` is the function without its cold part, `f.cold` that part.
    ///
    /// # Errors
    /// There is no such function.
    pub fn new(opened: &Opened<'_>, symbols: &[String]) -> Result<Self, Error> {
        let mut ranges = Vec::new();
        for symbol in symbols {
            let name = symbol.strip_suffix(".cold");
            let function = opened.function(name.unwrap_or(symbol))?;
            let object = opened.image.object(function).unwrap_or(ObjectId(0));
            let entry = opened.image.function_entry(function);
            let is_cold = |(start, _): &(_, _)| Some(*start) != entry;
            let parts = opened.image.function_parts(function).into_iter();
            let parts: Vec<_> = parts.filter(|part| is_cold(part) == name.is_some()).collect();
            ranges.extend(parts.iter().map(|&(start, len)| (object, start.0..start.0 + len)));
        }
        Ok(Self { ranges })
    }

    /// A function begins in the filter.
    pub(super) fn has_entry(&self, opened: &Opened<'_>, function: FunctionId) -> bool {
        let entry = opened.image.object(function).zip(opened.image.function_entry(function));
        entry.is_some_and(|(object, svma)| self.has(Place { object, svma }))
    }

    /// All parts of a function are in the filter.
    pub(super) fn has_all(&self, opened: &Opened<'_>, function: FunctionId) -> bool {
        let Some(object) = opened.image.object(function) else { return false };
        let parts = opened.image.function_parts(function);
        parts.iter().all(|&(svma, _)| self.has(Place { object, svma }))
    }

    /// An instruction is in the filter.
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        self.ranges.iter().any(|(object, range)| *object == place.object && range.contains(&place.svma.0))
    }
}
