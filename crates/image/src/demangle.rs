//! Names as people write them.

use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Longer names are shown as they are in the object: a short symbol can stand for a name without end.
const MAX_NAME_BYTES: usize = 1 << 16;

/// C++ names deeper than this are shown as they are in the object.
const MAX_DEPTH: u32 = 128;

/// How much of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Without parameter types: `mtr_t::commit`.
    Short,
    /// With them: `mtr_t::commit()`.
    Full,
}

/// The name of a symbol; the symbol itself if it is not mangled.
pub(crate) fn demangle(symbol: &str, form: Form) -> String {
    rust(symbol, form).or_else(|| cpp(symbol, form)).unwrap_or_else(|| symbol.to_string())
}

fn rust(symbol: &str, form: Form) -> Option<String> {
    if !symbol.starts_with("_R") && !symbol.starts_with("_ZN") {
        return None;
    }
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut out = Bounded::default();
    match form {
        Form::Short => fmt::write(&mut out, format_args!("{name:#}")),
        Form::Full => fmt::write(&mut out, format_args!("{name}")),
    }
    .ok()?;
    Some(out.0)
}

fn cpp(symbol: &str, form: Form) -> Option<String> {
    if !symbol.starts_with("_Z") && !symbol.starts_with("__Z") {
        return None;
    }
    // What compilers append to a copy of a function is part of its name: `.constprop.0`.
    let (mangled, tail) = symbol.split_at(symbol.find('.').unwrap_or(symbol.len()));
    let parse = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let parsed = BorrowedSymbol::new_with_options(mangled.as_bytes(), &parse).ok()?;
    let options = DemangleOptions::new().recursion_limit(MAX_DEPTH);
    let options = match form {
        Form::Short => options.no_params().no_return_type(),
        Form::Full => options.no_return_type(),
    };
    let mut out = Bounded::default();
    parsed.structured_demangle(&mut out, &options).ok()?;
    out.write_str(tail).ok()?;
    Some(out.0)
}

/// A string that refuses to grow without end.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_parameters() {
        let table = [
            ("row_search_mvcc", "row_search_mvcc", "row_search_mvcc"),
            ("_ZN5mtr_t6commitEv", "mtr_t::commit", "mtr_t::commit()"),
            ("_ZNK3foo3barEi", "foo::bar", "foo::bar(int) const"),
            ("_Z3addIiET_S0_S0_", "add<int>", "add<int>(int, int)"),
            ("_ZN3FooC1Ev", "Foo::Foo", "Foo::Foo()"),
            ("_ZN3FoocvbEv", "Foo::operator bool", "Foo::operator bool()"),
            ("_ZN12_GLOBAL__N_13runEv", "(anonymous namespace)::run", "(anonymous namespace)::run()"),
            ("_Z1fv.part.0", "f.part.0", "f().part.0"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
                "core::fmt::Write::write_fmt::h0123456789abcdef",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar", "123foo::bar"),
            ("_Z", "_Z", "_Z"),
            ("_ZN", "_ZN", "_ZN"),
        ];
        for (symbol, short, full) in table {
            assert_eq!(demangle(symbol, Form::Short), short);
            assert_eq!(demangle(symbol, Form::Full), full);
        }
    }

    #[test]
    fn a_name_without_end_is_cut_short() {
        // Each substitution doubles the name.
        let mut symbol = String::from("_Z1f1AI1BS0_E");
        for i in 0..30 {
            symbol += &format!("S{}_", char::from_digit(i, 36).unwrap().to_ascii_uppercase());
        }
        assert!(demangle(&symbol, Form::Full).len() <= MAX_NAME_BYTES);
        assert!(!demangle(&"_ZN1aI".repeat(5000), Form::Short).is_empty());
    }
}
