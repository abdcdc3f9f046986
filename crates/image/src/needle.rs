//! A word of what a user writes that stands letter by letter in every symbol of such a name.
//!
//! Mangling keeps identifiers, so most symbols of a large program need not be demangled to know that they
//! have another name.

/// What demanglers print that need not be in the symbol. Anything else that they make up stands in `<>`,
/// `()`, `{}` or `[]`, or has `operator` in it.
const MADE_UP: &[&str] = &[
    // substitutions: St, Sa, Ss, Sb, Si, So, Sd
    "std",
    "allocator",
    "basic_string",
    "basic_istream",
    "basic_ostream",
    "basic_iostream",
    // thunks and what else has a name of its own
    "virtual",
    "override",
    "non",
    "thunk",
    "to",
    "covariant",
    "return",
    "construction",
    "vtable",
    "typeinfo",
    "name",
    "fn",
    "for",
    "guard",
    "variable",
    "reference",
    "temporary",
    "TLS",
    "init",
    "wrapper",
    "function",
    "invocation",
    "in",
    "block",
    "transaction",
    "clone",
    "global",
    "constructors",
    "destructors",
    "keyed",
    "java",
    "resource",
    "auto",
];

/// The longest word of a name, of its beginning or end, or of a pattern, that stands in every symbol of such
/// a name.
///
/// Where a pattern's later words may be found is not known: `*int*` is in `f<int>`.
pub(crate) fn needle(name: &str) -> Option<&str> {
    let cut = name.find(['<', '>', '(', ')', '{', '}', '[', ']', '*', '?']);
    let (plain, rest) = name.split_at_checked(cut.unwrap_or(name.len()))?;
    if rest.starts_with(['>', ')', '}', ']']) {
        return None; // it begins inside
    }
    if !name.is_ascii() || plain.contains("operator") {
        return None;
    }
    let is_made_up = |word: &&str| "operator".contains(word) || MADE_UP.iter().any(|w| w.contains(word));
    let words = plain.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.filter(|word| !is_made_up(word)).max_by_key(|word| word.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demangle::{Form, demangle};
    use crate::elf::Elf;
    use crate::elf::strings::Strings;

    #[test]
    fn the_longest_word_that_no_demangler_makes_up() {
        let table = [
            ("row_search_mvcc", Some("row_search_mvcc")),
            ("handler::ha_write_row", Some("ha_write_row")),
            ("handler::ha_write_row(unsigned char const*)", Some("ha_write_row")),
            ("btr_*_insert", Some("btr_")),
            ("*_insert", None),
            ("int>", None),
            ("std::vector<int>::push_back", Some("vector")),
            ("f.part.0", Some("part")),
            ("std::basic_str", None),
            ("std::string", None),
            ("Foo::operator new", None),
            ("Foo::oper", Some("Foo")),
            ("virtual thunk to Foo", Some("Foo")),
            ("(anonymous namespace)::run", None),
            ("<T as Trait>::run", None),
            ("größe", None),
            ("*", None),
        ];
        for (name, expect) in table {
            assert_eq!(needle(name), expect, "{name}");
        }
    }

    /// Every function of this test's own binary and of the C++ library, if that is here: whatever a user
    /// writes to find it by name, the word stands in the symbol.
    #[test]
    fn it_stands_in_the_symbol() {
        let own = std::env::current_exe().unwrap();
        let libraries = ["/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/bin/gdb", "/usr/sbin/mariadbd"];
        let mut checked = 0;
        for file in std::iter::once(own).chain(libraries.map(Into::into)) {
            let Ok(bytes) = std::fs::read(&file) else { continue };
            let elf = Elf::parse(&bytes).unwrap();
            let tables = [elf.static_symbols(), elf.dynamic_symbols()];
            for table in tables.into_iter().flatten() {
                let strings = Strings::new(&bytes[table.strings]);
                for symbol in table.symbols.iter().map(|symbol| strings.text(symbol.name)) {
                    let (short, full) = (demangle(&symbol, Form::Short), demangle(&symbol, Form::Full));
                    let last = short.rsplit("::").next().unwrap_or(&short);
                    // The beginning of a name may end anywhere, its end begins with a component.
                    let half = short.get(..short.len() / 2).unwrap_or_default();
                    for written in [&short, &full, last, half, &format!("{half}*")] {
                        let found = needle(written);
                        assert!(found.is_none_or(|word| symbol.contains(word)), "{written} is {symbol}");
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 1000, "{checked} names");
    }
}
