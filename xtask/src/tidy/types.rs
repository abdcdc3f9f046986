//! Types of one name: a reader who finds `Part` has to know which of them is meant.
//!
//! Within a crate each `struct`, `enum`, `union`, `trait` and `type` has a name of its own, tests excepted;
//! `Error` is each library's.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

/// Names of types by crate, each with the files that define it.
type Definitions<'t> = BTreeMap<(&'t str, &'t str), Vec<(&'t str, usize)>>;

/// Names that a crate has twice.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ((_, name), places) in definitions(tree).iter().filter(|((_, name), _)| *name != "Error") {
        let [(first, line), others @ ..] = places.as_slice() else { continue };
        findings.extend(others.iter().map(|(path, number)| {
            Finding::new(path, *number, format!("a second type `{name}`: {first}:{line} has the first"))
        }));
    }
    findings
}

fn definitions(tree: &Tree) -> Definitions<'_> {
    let mut all = Definitions::new();
    for (path, text) in tree.texts(".rs") {
        let Some((of, inside)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        if inside.split('/').any(|part| ["tests", "tests.rs", "rules", "rules.rs"].contains(&part)) {
            continue;
        }
        let mut lines = (1..).zip(text.lines()).peekable();
        while let Some((number, line)) = lines.next() {
            let ends_code =
                line == "#[cfg(test)]" && lines.peek().is_some_and(|(_, next)| next.ends_with('{'));
            if ends_code {
                break; // the file's tests
            }
            if let Some(name) = defined(line) {
                all.entry((of, name)).or_default().push((path, number));
            }
        }
    }
    all
}

/// The type that a line defines, outside of functions and of other items.
fn defined(line: &str) -> Option<&str> {
    let visible = line.strip_prefix("pub").map_or(Some(line), |rest| match rest.strip_prefix('(') {
        Some(limited) => limited.split_once(") ").map(|(_, rest)| rest),
        None => rest.strip_prefix(' '),
    })?;
    let item = visible.strip_prefix("unsafe ").unwrap_or(visible);
    let kinds = ["struct ", "enum ", "union ", "trait ", "type "];
    let rest = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    const FIRST: (&str, &str) =
        ("crates/x/src/a.rs", "pub(crate) struct Part;\nimpl T for Part {\n    type Error = u8;\n}\n");

    #[test]
    fn a_name_stands_once_in_a_crate() {
        let files = [
            FIRST,
            ("crates/x/src/b/c.rs", "//! A doc.\nenum Part<'a> {}\npub enum Error {}\n"),
            ("crates/x/src/d.rs", "pub trait Part {}\npub type Error = u8;\n"),
            ("crates/y/src/b.rs", "pub struct Part;\n"),
        ];
        let found = shown(&check(&Tree::of(&files)));
        assert_eq!(
            found,
            [
                "crates/x/src/b/c.rs:2: a second type `Part`: crates/x/src/a.rs:1 has the first",
                "crates/x/src/d.rs:1: a second type `Part`: crates/x/src/a.rs:1 has the first",
            ]
        );
    }

    #[test]
    fn tests_may_have_any_name() {
        let files = [
            FIRST,
            ("crates/x/src/b.rs", "struct Other;\n#[cfg(test)]\nmod tests {\n}\nstruct Part;\n"),
            ("crates/x/src/b/tests.rs", "struct Part;\n"),
            ("crates/x/tests/b.rs", "struct Part;\n"),
        ];
        assert_eq!(check(&Tree::of(&files)), []);
    }
}
