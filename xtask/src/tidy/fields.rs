//! Size of types: a `struct` with many fields hides other types in it.

use super::Finding;
use super::tree::Tree;

/// Where the rule holds.
const SOURCES: &str = "crates/analyzer/src/";

/// Fields that a type may have.
const FIELDS_MAX: usize = 12;

/// Types with more fields than they may have.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs").filter(|(path, _)| path.starts_with(SOURCES)) {
        for (number, name, fields) in structs(text) {
            if fields > FIELDS_MAX {
                let message =
                    format!("`{name}` has {fields} fields: above {FIELDS_MAX} it hides other types");
                findings.push(Finding::new(path, number, message));
            }
        }
    }
    findings
}

/// The types of a formatted file that have named fields: line, name and number of fields.
fn structs(text: &str) -> Vec<(usize, &str, usize)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let code = line.trim_start();
        let Some(rest) = after_visibility(code).strip_prefix("struct ") else { continue };
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let outer = line.strip_suffix(code).unwrap_or_default();
        // The bounds of its parameters may come first.
        let is_open = line.ends_with('{')
            || !line.ends_with([';', '}', '('])
                && lines.any(|(_, line)| line.strip_prefix(outer) == Some("{"));
        if is_open {
            let inside = lines.by_ref().map_while(|(_, line)| {
                line.strip_prefix(outer).filter(|code| *code != "}").or(line.is_empty().then_some(""))
            });
            let own = inside.filter_map(|code| code.strip_prefix("    "));
            found.push((number, name, own.filter(|code| is_field(code)).count()));
        }
    }
    found
}

/// The line begins a field: a name, and its type.
fn is_field(code: &str) -> bool {
    let name =
        after_visibility(code).split_once(':').map(|(name, _)| name.strip_prefix("r#").unwrap_or(name));
    name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

fn after_visibility(code: &str) -> &str {
    match code.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")) {
        Some((_, rest)) => rest,
        None => code.strip_prefix("pub ").unwrap_or(code),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    fn found(fields: usize) -> Vec<String> {
        let field = "    /// A doc: of a field.\n    #[serde(skip)]\n    pub(crate) x: Vec<u8>,\n";
        let text = format!("/// A doc.\npub struct Part<'a> {{\n{}}}\n", field.repeat(fields));
        shown(&check(&Tree::of(&[("crates/analyzer/src/a.rs", &text), ("crates/x/src/a.rs", &text)])))
    }

    #[test]
    fn a_type_has_few_fields() {
        assert_eq!(found(12), [""; 0]);
        assert_eq!(
            found(13),
            ["crates/analyzer/src/a.rs:2: `Part` has 13 fields: above 12 it hides other types"]
        );
    }

    #[test]
    fn fields_are_those_of_the_type() {
        let text = "struct Unit;\nstruct Empty {}\nstruct Pair(u8, u8);\nstruct Long(\n    u8,\n);\n\
                    struct Bounded<C>\nwhere\n    C: Copy,\n{\n    of: C,\n    to: fn(u8) -> u8,\n}\n\
                    fn f() {\n    struct Inner {\n        one: u8,\n    }\n    let x: u8 = 1;\n}\n";
        assert_eq!(structs(text), [(7, "Bounded", 2), (15, "Inner", 1)]);
    }
}
