//! From what a user writes for a place in code to instructions.

use std::collections::BTreeSet;

use model::{Avma, FunctionId, FunctionLookup, Mark, ObjectId, Svma};

use crate::elf::usdt;
use crate::image::Image;
use crate::names::find::FindError;
use crate::names::line_begins::LineBegins;
use crate::names::query::{self, Query, What};

/// Probes and lines that an error lists.
const MAX_CANDIDATES: usize = 10;

/// Instructions that a place stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The instructions, in order.
    pub at: Vec<Mark>,
    /// It is a USDT probe that code may pass by: the program reaches it while its semaphore is not 0 only.
    pub has_semaphore: bool,
}

/// Why a place is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// There is no such function, or there are several.
    #[error(transparent)]
    Function(#[from] FindError),
    /// There is no code at an address.
    #[error("there is no code at {0}")]
    NoCode(String),
    /// A function does not reach so far.
    #[error("{function} has {size} bytes of code, and +{offset:#x} is not in it")]
    OutsideOfFunction {
        /// The function.
        function: String,
        /// Its bytes.
        size: u64,
        /// Where the place would be.
        offset: u64,
    },
    /// No code begins a line.
    #[error("no statement begins on line {line} of {file}: {}", near(.file_is_known, .nearest))]
    NoLine {
        /// The source file.
        file: String,
        /// The line.
        line: u32,
        /// Some object has lines of the file.
        file_is_known: bool,
        /// The lines before and after it that instructions begin.
        nearest: Vec<u32>,
    },
    /// No object has such a USDT probe.
    #[error("no object has a USDT probe {name}: {}", probes_there_are(.known))]
    NoProbe {
        /// Provider and name.
        name: String,
        /// The probes that there are.
        known: Vec<String>,
    },
}

fn near(file_is_known: &bool, nearest: &[u32]) -> String {
    match nearest {
        [] if *file_is_known => "the file has no line with one near it".to_owned(),
        [] => "no object has line information of that file (compile with -g, or name SYMBOL+0xOFFSET)"
            .to_owned(),
        lines => {
            let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
            format!("the nearest lines with one: {}", lines.join(", "))
        }
    }
}

fn probes_there_are(known: &[String]) -> String {
    match known {
        [] => "there are no USDT probes at all".to_owned(),
        known => format!("there are {}", known.join(", ")),
    }
}

/// A place, taken apart.
#[derive(Debug, PartialEq, Eq)]
enum MarkPlace<'t> {
    Usdt(&'t str),
    Line(&'t str, u32),
    Code(&'t str),
}

impl<'t> MarkPlace<'t> {
    fn parse(text: &'t str) -> Self {
        if let Some(name) = text.strip_prefix("usdt:") {
            return Self::Usdt(name);
        }
        let line = text.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
        match line.filter(|(file, _)| !file.is_empty() && !file.ends_with(':')) {
            Some((file, line)) => Self::Line(file, line),
            None => Self::Code(text),
        }
    }
}

impl Image {
    /// The instructions that a user means: an address, `SYMBOL+0x10`, `file.c:120` (each that begins the
    /// line), or `usdt:PROVIDER:NAME` (each place of the probe).
    ///
    /// # Errors
    /// [`MarkError`] if there are none.
    pub fn find_marks(&self, query: &Query) -> Result<Marks, MarkError> {
        let text = query.text.trim();
        match MarkPlace::parse(text) {
            MarkPlace::Usdt(name) => self.probes(name, query),
            MarkPlace::Line(file, line) => self.line(file, line, query),
            MarkPlace::Code(_) => self.code_at(query).map(|at| Marks { at, has_semaphore: false }),
        }
    }

    fn searched(&self, query: &Query) -> Result<Vec<ObjectId>, MarkError> {
        let any = Query { text: String::new(), object: query.object.clone() };
        let parsed = query::parse(self, &any).map_err(|object| self.no_object(object, query))?;
        Ok(parsed.objects.unwrap_or_else(|| self.objects().collect()))
    }

    fn probes(&self, wanted: &str, query: &Query) -> Result<Marks, MarkError> {
        let (mut marks, mut known) = (Marks::default(), BTreeSet::new());
        for object in self.searched(query)? {
            let Some(loaded) = self.loaded(object) else { continue };
            for probe in usdt::probes(&loaded.contents) {
                let name = format!("{}:{}", probe.provider, probe.name);
                if name == wanted {
                    marks.at.push((object, probe.at));
                    marks.has_semaphore |= probe.has_semaphore;
                } else if known.len() < MAX_CANDIDATES {
                    known.insert(name);
                }
            }
        }
        marks.at.sort_unstable();
        marks.at.dedup();
        if marks.at.is_empty() {
            return Err(MarkError::NoProbe { name: wanted.to_owned(), known: known.into_iter().collect() });
        }
        Ok(marks)
    }

    fn line(&self, file: &str, line: u32, query: &Query) -> Result<Marks, MarkError> {
        let mut found = LineBegins::default();
        let mut at = Vec::new();
        for object in self.searched(query)? {
            let Some(loaded) = self.loaded(object) else { continue };
            let begins = found.search(loaded, file, line).into_iter().map(|svma| (object, svma));
            // Code that the linker has left out keeps its lines.
            at.extend(
                begins.filter(|(of, svma)| self.function_at_place(*of, *svma).id != FunctionId::UNKNOWN),
            );
        }
        at.sort_unstable();
        at.dedup();
        if at.is_empty() {
            let LineBegins { file_is_known, before, after } = found;
            let nearest = before.into_iter().chain(after).collect();
            return Err(MarkError::NoLine { file: file.to_owned(), line, file_is_known, nearest });
        }
        Ok(Marks { at, has_semaphore: false })
    }

    fn code_at(&self, query: &Query) -> Result<Vec<Mark>, MarkError> {
        let parsed = query::parse(self, query);
        let address = parsed.ok().and_then(|parsed| match parsed.what {
            What::Address(address) => Some((Some(Avma(address)), Svma(address), parsed.objects)),
            What::LinkedAddress(svma) => Some((None, svma, parsed.objects)),
            What::Name(_) => None,
        });
        match address {
            Some((avma, svma, objects)) => {
                let found = self.at_address(avma, svma, objects.as_deref());
                if found.is_empty() { Err(MarkError::NoCode(query.text.clone())) } else { Ok(found) }
            }
            None => self.in_function(query),
        }
    }

    /// At an address of a process, or else as linked.
    fn at_address(&self, avma: Option<Avma>, svma: Svma, objects: Option<&[ObjectId]>) -> Vec<Mark> {
        let is_allowed = |object: &ObjectId| objects.is_none_or(|objects| objects.contains(object));
        let is_code = |(object, svma): &Mark| {
            is_allowed(object) && self.function_at_place(*object, *svma).id != FunctionId::UNKNOWN
        };
        let linked = self.objects().map(|object| (object, svma)).filter(is_code);
        let linked: Vec<Mark> = linked.filter(|(object, _)| self.loaded(*object).is_some()).collect();
        let Some(avma) = avma.filter(|_| objects.is_none() || linked.is_empty()) else { return linked };
        let mapped: BTreeSet<Mark> =
            self.spaces.ids().filter_map(|space| self.place(space, avma)).filter(is_code).collect();
        if mapped.is_empty() { linked } else { mapped.into_iter().collect() }
    }

    fn in_function(&self, query: &Query) -> Result<Vec<Mark>, MarkError> {
        let (name, offset) = symbol_and_offset(&query.text);
        let found = self.find(&Query { text: name.to_owned(), object: query.object.clone() })?;
        let [function] = found.as_slice() else {
            let (text, count) = (name.to_owned(), found.len());
            return Err(FindError::Ambiguous { text, count, candidates: found }.into());
        };
        let at = Svma(function.entry.0.saturating_add(offset));
        if self.function_at_place(function.object, at).id != function.id {
            let (function, size) = (function.name.clone(), function.size);
            return Err(MarkError::OutsideOfFunction { function, size, offset });
        }
        Ok(vec![(function.object, at)])
    }
}

/// `f+0x10`; the plus of `operator+` is none.
fn symbol_and_offset(text: &str) -> (&str, u64) {
    let split = text.rsplit_once('+').and_then(|(name, offset)| {
        let hex = offset.strip_prefix("0x").or_else(|| offset.strip_prefix("0X"));
        let offset = match hex {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => offset.parse().ok()?,
        };
        Some((name, offset)).filter(|_| !name.is_empty())
    });
    split.unwrap_or((text, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        assert_eq!(MarkPlace::parse("usdt:mysql:query__start"), MarkPlace::Usdt("mysql:query__start"));
        assert_eq!(MarkPlace::parse("src/row0sel.cc:120"), MarkPlace::Line("src/row0sel.cc", 120));
        assert_eq!(MarkPlace::parse("std::swap"), MarkPlace::Code("std::swap"));
        assert_eq!(MarkPlace::parse("0x401000"), MarkPlace::Code("0x401000"));
        assert_eq!(MarkPlace::parse("ns::3"), MarkPlace::Code("ns::3"));
    }

    #[test]
    fn offsets_are_hexadecimal_or_decimal() {
        assert_eq!(symbol_and_offset("f+0x1f"), ("f", 0x1f));
        assert_eq!(symbol_and_offset("f+12"), ("f", 12));
        assert_eq!(symbol_and_offset("operator+"), ("operator+", 0));
        assert_eq!(symbol_and_offset("a::operator++0x4"), ("a::operator+", 4));
    }
}
