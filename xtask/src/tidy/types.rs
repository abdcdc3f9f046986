//! Types of one name: a reader who finds `Part` has to know which of them is meant.
//!
//! Within a crate each `struct`, `enum`, `union`, `trait` and `type` has a name of its own, tests excepted;
//! `Error` is each library's. Names that are there twice still are listed, and the list only gets shorter.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::Tree;

/// Names that remain: `CRATE NAME`, sorted.
const KNOWN: &str = "xtask/src/tidy/known_names.txt";

/// Names of types by crate, each with the files that define it.
type Definitions<'t> = BTreeMap<(&'t str, &'t str), Vec<(&'t str, usize)>>;

/// Names that a crate has twice and that are not in [`KNOWN`], and lines of it that name none.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let known: BTreeSet<&str> = tree.text(KNOWN).unwrap_or_default().lines().collect();
    let mut found = definitions(tree);
    found.retain(|(_, name), places| places.len() > 1 && *name != "Error");
    let name_of = |(of, name): &(&str, &str)| format!("{of} {name}");
    let gone = (1..).zip(tree.text(KNOWN).unwrap_or_default().lines());
    let gone = gone.filter(|(_, line)| !found.keys().any(|key| name_of(key) == *line));
    let mut findings: Vec<Finding> =
        gone.map(|(number, line)| Finding::new(KNOWN, number, format!("no longer twice: {line}"))).collect();
    for (key, places) in found.iter().filter(|(key, _)| !known.contains(name_of(key).as_str())) {
        let [(first, line), others @ ..] = places.as_slice() else { continue };
        findings.extend(others.iter().map(|(path, number)| {
            let message = format!("a second type `{}`: {first}:{line} has the first", key.1);
            Finding::new(path, *number, message)
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

    #[test]
    fn the_list_has_only_names_that_are_there_twice() {
        let files = [FIRST, ("crates/x/src/b.rs", "struct Part;\n"), (KNOWN, "x Other\nx Part\n")];
        assert_eq!(shown(&check(&Tree::of(&files))), [format!("{KNOWN}:1: no longer twice: x Other")]);
    }
}
