//! All functions' names, demangled once, when somebody first searches by name.

use std::borrow::Cow;

use model::{FunctionId, FunctionKind, ObjectId};
use rayon::prelude::*;

use crate::demangle::{Form, demangle};
use crate::image::Image;

/// One name of one function.
pub(crate) struct NameEntry {
    pub(crate) id: FunctionId,
    pub(crate) object: ObjectId,
    /// Offset in the object's string table.
    symbol: u32,
    /// Without parameter types; `None` if the symbol is not mangled.
    demangled: Option<Box<str>>,
}

/// All names, by object and address.
pub(crate) struct NameIndex {
    pub(crate) entries: Vec<NameEntry>,
}

impl NameIndex {
    pub(crate) fn new(image: &Image) -> Self {
        let entries = image.objects().flat_map(|object| entries_of(image, object)).collect();
        Self { entries }
    }
}

impl NameEntry {
    /// The symbol as it is in the object.
    pub(crate) fn symbol<'a>(&self, image: &'a Image) -> Cow<'a, str> {
        image.loaded(self.object).map_or(Cow::Borrowed(""), |loaded| loaded.strings().text(self.symbol))
    }

    /// The name without parameter types.
    pub(crate) fn short<'a>(&'a self, image: &'a Image) -> Cow<'a, str> {
        match &self.demangled {
            Some(name) => Cow::Borrowed(name),
            None => self.symbol(image),
        }
    }

    /// The name with parameter types.
    pub(crate) fn full(&self, image: &Image) -> String {
        demangle(&self.symbol(image), Form::Full)
    }
}

fn entries_of(image: &Image, object: ObjectId) -> Vec<NameEntry> {
    let Some(loaded) = image.loaded(object) else { return Vec::new() };
    let strings = loaded.strings();
    let count = u32::try_from(loaded.functions.list.len()).unwrap_or(u32::MAX);
    let named = (0..count).into_par_iter().filter(|index| {
        let kind = loaded.functions.get(*index).map(|f| f.kind);
        matches!(kind, Some(FunctionKind::Symbol | FunctionKind::Loader))
    });
    let entries = named.flat_map_iter(|index| {
        let id = image.function_id(object, index);
        loaded.functions.names_of(index).iter().map(move |symbol| {
            let name = strings.text(*symbol);
            let demangled = demangle(&name, Form::Short);
            let demangled = (demangled != name).then(|| demangled.into_boxed_str());
            NameEntry { id, object, symbol: *symbol, demangled }
        })
    });
    entries.collect()
}
