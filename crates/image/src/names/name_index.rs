//! The names of all functions: each is demangled when it is first asked for.

use std::borrow::Cow;
use std::sync::OnceLock;

use model::ObjectId;

use crate::demangle::{Form, demangle};
use crate::elf::strings::WithWord;
use crate::image::Image;
use crate::name_entry::NameEntry;

impl Image {
    /// All names, by object and address.
    pub(crate) fn names(&self) -> &[NameEntry] {
        let all = || self.objects().flat_map(|object| entries_of(self, object, None)).collect();
        self.names.get_or_init(all)
    }
}

impl NameEntry {
    /// The symbol as it is in the object.
    pub(crate) fn symbol<'a>(&self, image: &'a Image) -> Cow<'a, str> {
        image.loaded(self.object).map_or(Cow::Borrowed(""), |loaded| loaded.strings().text(self.symbol))
    }

    /// The name without parameter types.
    pub(crate) fn short<'a>(&'a self, image: &'a Image) -> Cow<'a, str> {
        let demangled = self.demangled.get_or_init(|| {
            let symbol = self.symbol(image);
            let name = demangle(&symbol, Form::Short);
            (name != symbol).then(|| name.into_boxed_str())
        });
        match demangled {
            Some(name) => Cow::Borrowed(name),
            None => self.symbol(image),
        }
    }

    /// The name with parameter types.
    pub(crate) fn full(&self, image: &Image) -> String {
        demangle(&self.symbol(image), Form::Full)
    }
}

/// A shorter word is in too many names: to note which names costs more than to look at each name.
const MIN_WORD_BYTES: usize = 4;

/// The names of an object that may have a word in their symbols: all of them if there is none, or it is
/// short.
pub(crate) fn entries_of(image: &Image, object: ObjectId, word: Option<&str>) -> Vec<NameEntry> {
    let Some(loaded) = image.loaded(object) else { return Vec::new() };
    let word = word.filter(|word| word.len() >= MIN_WORD_BYTES);
    let with_word = word.map(|word| WithWord::new(loaded.strings(), word.as_bytes()));
    let names = (0..).zip(&loaded.functions.names);
    let names = names.filter(|(_, symbol)| with_word.as_ref().is_none_or(|names| names.has(**symbol)));
    let entry = |(number, symbol): (u32, &u32)| {
        let id = image.function_id(object, loaded.functions.of_name(number)?);
        Some(NameEntry { id, object, symbol: *symbol, demangled: OnceLock::new() })
    };
    names.filter_map(entry).collect()
}
