//! From what a user writes to functions.

use std::collections::BTreeSet;

use model::{Avma, FunctionId, FunctionLookup, ObjectId, Svma};
use rayon::prelude::*;

use crate::demangle::{Form, demangle};
use crate::image::Image;
use crate::name_entry::NameEntry;
use crate::names::name_index::entries_of;
use crate::names::nearest;
use crate::names::query::{self, Parsed, Query, What};
use crate::needle::needle;

/// How many candidates are offered for a name that is not there or not unique.
const MAX_CANDIDATES: usize = 10;

/// How a query led to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchedBy {
    /// The symbol, as it is in the object.
    Symbol,
    /// The demangled name, with or without parameter types.
    Name,
    /// A glob.
    Glob,
    /// The beginning of its name and of no other.
    Prefix,
    /// The last components of its name and of no other: `commit` for `mtr_t::commit`.
    Suffix,
    /// An address in a process of the recording.
    ProcessAddress,
    /// An address as linked.
    LinkedAddress,
    /// It is offered, not found: its name is near.
    Nearest,
}

/// A function that a query found, or that is offered instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionMatch {
    /// The function.
    pub id: FunctionId,
    /// Its name, without parameter types.
    pub name: String,
    /// Its name, with parameter types.
    pub full_name: String,
    /// All symbols at its entry, the best first.
    pub symbols: Vec<String>,
    /// What else this code is called, with parameter types: aliases, and what the linker folded into it.
    pub aliases: Vec<String>,
    /// The object.
    pub object: ObjectId,
    /// The object's name in the recording.
    pub object_name: String,
    /// Linked address of its entry.
    pub entry: Svma,
    /// Bytes.
    pub size: u64,
    /// It chooses the function of its name (`STT_GNU_IFUNC`): calls run what it chose.
    pub is_resolver: bool,
    /// How it was found.
    pub matched_by: MatchedBy,
}

/// Why a query does not say which function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No function is called so.
    #[error("no function is called '{text}'")]
    Unknown {
        /// The query.
        text: String,
        /// Functions with names near to it, the nearest first.
        candidates: Vec<FunctionMatch>,
    },
    /// No function has code there.
    #[error("no function covers the address '{text}'")]
    NoFunctionAt {
        /// The query.
        text: String,
    },
    /// Several are.
    #[error("'{text}' fits {count} functions")]
    Ambiguous {
        /// The query.
        text: String,
        /// How many there are.
        count: usize,
        /// The first of them, those with the shortest names first.
        candidates: Vec<FunctionMatch>,
    },
    /// A function of the kernel is asked for, and there is no code of that.
    #[error("'{text}' is a function of the kernel, whose code is not here")]
    NoKernelCode {
        /// The query.
        text: String,
    },
    /// The object that was to be searched was not mapped.
    #[error("no process of the recording has mapped '{object}'")]
    NoObject {
        /// The object.
        object: String,
        /// All objects with code.
        objects: Vec<String>,
    },
}

impl FindError {
    /// The functions that may be meant.
    #[must_use]
    pub fn candidates(&self) -> &[FunctionMatch] {
        match self {
            Self::Unknown { candidates, .. } | Self::Ambiguous { candidates, .. } => candidates,
            Self::NoFunctionAt { .. } | Self::NoKernelCode { .. } | Self::NoObject { .. } => &[],
        }
    }
}

/// Whether a name is one of those looked for.
type Fits<'a> = dyn Fn(&NameEntry) -> bool + Sync + 'a;

impl Image {
    /// The functions that a user means: exactly one, or all that a glob matches, by object and address.
    ///
    /// # Errors
    /// [`FindError`] if that is none, or several; it offers candidates.
    pub fn find(&self, query: &Query) -> Result<Vec<FunctionMatch>, FindError> {
        let parsed = query::parse(self, query).map_err(|object| self.no_object(object, query))?;
        let (found, by) = match &parsed.what {
            What::Address(address) => self.find_address(*address, &parsed),
            What::LinkedAddress(svma) => (self.find_linked(*svma, &parsed), MatchedBy::LinkedAddress),
            What::Name(name) => self.find_name(name, &parsed),
        };
        let text = query.text.clone();
        match found.len() {
            0 if !matches!(parsed.what, What::Name(_)) => Err(FindError::NoFunctionAt { text }),
            0 => Err(FindError::Unknown { text, candidates: self.nearest(&parsed) }),
            1 => Ok(self.matches(found, by)),
            _ if by == MatchedBy::Glob => Ok(self.matches(found, by)),
            count => {
                let mut candidates = self.matches(found, by);
                candidates.sort_by_key(|m| m.name.len());
                candidates.truncate(MAX_CANDIDATES);
                Err(FindError::Ambiguous { text, count, candidates })
            }
        }
    }

    pub(crate) fn no_object(&self, object: String, query: &Query) -> FindError {
        if object == query::KERNEL && !self.has_kernel_text() {
            return FindError::NoKernelCode { text: query.text.clone() };
        }
        let objects = self.objects().map(|id| self.object_name(id).to_string()).collect();
        FindError::NoObject { object, objects }
    }

    fn find_address(&self, address: u64, parsed: &Parsed) -> (BTreeSet<FunctionId>, MatchedBy) {
        // A user that names an object has looked at its file.
        let linked = || self.find_linked(Svma(address), parsed);
        if parsed.objects.is_some() {
            let found = linked();
            if !found.is_empty() {
                return (found, MatchedBy::LinkedAddress);
            }
        }
        let in_processes = self.spaces.ids().filter_map(|space| {
            let (object, svma) = self.place(space, Avma(address))?;
            allowed(parsed, object).then(|| self.function_at_place(object, svma).id)
        });
        let found: BTreeSet<_> = in_processes.filter(|id| *id != FunctionId::UNKNOWN).collect();
        match found.is_empty() {
            false => (found, MatchedBy::ProcessAddress),
            true => (linked(), MatchedBy::LinkedAddress),
        }
    }

    fn find_linked(&self, svma: Svma, parsed: &Parsed) -> BTreeSet<FunctionId> {
        let usable = self.objects().filter(|o| allowed(parsed, *o) && self.loaded(*o).is_some());
        let found = usable.map(|object| self.function_at_place(object, svma).id);
        found.filter(|id| *id != FunctionId::UNKNOWN).collect()
    }

    /// The functions of the first way to read `name` that fits any.
    fn find_name(&self, name: &str, parsed: &Parsed) -> (BTreeSet<FunctionId>, MatchedBy) {
        if name.is_empty() {
            return (BTreeSet::new(), MatchedBy::Name);
        }
        let with_word: Vec<NameEntry>;
        let entries = match needle(name) {
            Some(word) => {
                with_word = self.objects().flat_map(|object| entries_of(self, object, Some(word))).collect();
                &with_word
            }
            None => self.names(),
        };
        let select = |fits: &Fits<'_>| -> BTreeSet<FunctionId> {
            let entries = entries.par_iter();
            entries.filter(|e| allowed(parsed, e.object) && fits(e)).map(|e| e.id).collect()
        };
        let found = select(&|e| e.symbol(self) == name);
        if !found.is_empty() {
            return (found, MatchedBy::Symbol);
        }
        let spaceless = without_spaces(name);
        let found = select(&|e| {
            let short = e.short(self);
            short == name || (name.starts_with(&*short) && without_spaces(&e.full(self)) == spaceless)
        });
        if !found.is_empty() {
            return (found, MatchedBy::Name);
        }
        if let Some(pattern) = glob_pattern(name) {
            let fits = |e: &NameEntry| pattern.matches(&e.short(self)) || pattern.matches(&e.symbol(self));
            return (select(&fits), MatchedBy::Glob);
        }
        let component = format!("::{name}");
        let ways: [(&Fits<'_>, MatchedBy); 3] = [
            (&|e| begins(&e.short(self), name, true), MatchedBy::Prefix),
            (&|e| e.short(self).ends_with(&component), MatchedBy::Suffix),
            (&|e| begins(&e.short(self), name, false), MatchedBy::Prefix),
        ];
        for (fits, by) in ways {
            let found = select(fits);
            if !found.is_empty() {
                return (found, by);
            }
        }
        (BTreeSet::new(), MatchedBy::Name)
    }

    fn nearest(&self, parsed: &Parsed) -> Vec<FunctionMatch> {
        let What::Name(name) = &parsed.what else { return Vec::new() };
        let entries = self.names().par_iter().filter(|e| allowed(parsed, e.object));
        let mut near: Vec<_> = entries
            .filter_map(|e| nearest::distance(name, &e.short(self)).map(|distance| (distance, e.id)))
            .collect();
        near.sort_unstable();
        let mut seen = BTreeSet::new();
        near.retain(|(_, id)| seen.len() < MAX_CANDIDATES && seen.insert(*id));
        near.into_iter().filter_map(|(_, id)| self.function_match(id, MatchedBy::Nearest)).collect()
    }

    fn matches(&self, ids: BTreeSet<FunctionId>, by: MatchedBy) -> Vec<FunctionMatch> {
        ids.into_iter().filter_map(|id| self.function_match(id, by)).collect()
    }

    /// A function, or region, as a query would find it by its name.
    #[must_use]
    pub fn describe(&self, id: FunctionId) -> Option<FunctionMatch> {
        self.function_match(id, MatchedBy::Name)
    }

    pub(crate) fn function_match(&self, id: FunctionId, matched_by: MatchedBy) -> Option<FunctionMatch> {
        let object = self.object(id)?;
        let (full_name, symbols) = (self.function_full_name(id), self.function_symbols(id));
        let mut aliases: Vec<String> = symbols.iter().map(|symbol| demangle(symbol, Form::Full)).collect();
        aliases.retain(|alias| *alias != full_name);
        aliases.sort_unstable();
        aliases.dedup(); // C++ has two symbols of a constructor
        Some(FunctionMatch {
            id,
            name: self.function_name(id),
            full_name,
            symbols,
            aliases,
            object,
            object_name: self.object_name(object).to_string(),
            entry: self.function_entry(id).unwrap_or_default(),
            size: self.function_size(id),
            is_resolver: self
                .function(id)
                .is_some_and(|(object, index, _)| object.functions.resolvers.binary_search(&index).is_ok()),
            matched_by,
        })
    }
}

fn allowed(parsed: &Parsed, object: ObjectId) -> bool {
    parsed.objects.as_ref().is_none_or(|objects| objects.contains(&object))
}

fn without_spaces(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The pattern, if `text` is one.  `**` would mean directories.
fn glob_pattern(text: &str) -> Option<glob::Pattern> {
    if !text.contains(['*', '?', '[']) {
        return None;
    }
    let mut simple = text.to_string();
    while simple.contains("**") {
        simple = simple.replace("**", "*");
    }
    glob::Pattern::new(&simple).ok()
}

/// `name` begins with `prefix`, which ends where a component of the name does if `whole`.
fn begins(name: &str, prefix: &str, whole: bool) -> bool {
    let Some(rest) = name.strip_prefix(prefix) else { return false };
    !whole || !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$')
}

#[cfg(test)]
mod tests {
    use model::{FileOffset, Mmap, Ns, Pid, Sideband, SidebandRecord, SpaceId};

    use super::*;
    use crate::options::ImageOptions;

    /// The program that runs this test, as if it was mapped at its linked addresses.
    fn own_image() -> Image {
        let path = std::env::current_exe().unwrap();
        let mmap = Mmap {
            pid: Pid(7),
            start: Avma(0x10_0000),
            len: std::fs::metadata(&path).unwrap().len(),
            file_offset: FileOffset(0),
            path: path.to_str().unwrap().to_owned(),
            build_id: None,
            inode: None,
            executable: true,
            kernel: false,
        };
        let body = Sideband::from(mmap);
        let record =
            SidebandRecord { time: Some(Ns(1)), cpu: None, pid: None, tid: None, file_offset: 0, body };
        Image::load(&[record], &ImageOptions::default())
    }

    /// What a report on a large program does before it decodes: of thousands of names it demangles a few, and
    /// opens no DWARF.
    #[test]
    fn a_function_is_found_without_looking_at_all_names_or_lines() {
        let object = ObjectId(0);
        let looked_through = own_image();
        let all = looked_through.names();
        let names = all.iter().map(|entry| entry.short(&looked_through));
        let name = names.filter(|name| name.starts_with("image::")).max_by_key(|name| name.len()).unwrap();

        let image = own_image();
        let word = needle(&name);
        assert!(word.is_some() && all.len() > 1000, "{name}");
        let found = image.find(&Query { text: name.to_string(), ..Query::default() });
        let candidates = found.as_ref().map_or_else(|error| error.candidates().to_vec(), Clone::clone);
        assert!(candidates.iter().any(|found| found.name == name), "{name}: {candidates:?}");
        assert!(image.names.get().is_none(), "all names were listed");
        let looked_at = entries_of(&image, object, word).len();
        assert!((1..all.len() / 10).contains(&looked_at), "{looked_at} of {} names", all.len());

        let lines = |image: &Image| image.loaded(object).is_some_and(|loaded| loaded.lines.get().is_some());
        assert!(!lines(&image), "DWARF was opened for a name");
        let _ = image.source_line(SpaceId(0), Avma(0));
        assert!(!lines(&image), "DWARF was opened for what is not there");
        assert!(image.source_line_at(object, candidates[0].entry).is_some() && lines(&image));
    }
}
