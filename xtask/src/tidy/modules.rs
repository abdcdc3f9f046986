//! Names of our code in documents: `decoder::clock::anchor` is a module, or an item of one.

use super::Finding;
use super::tree::Tree;

/// What stands between backquotes and begins with one of our crates.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".md").filter(|(path, _)| *path != "CHANGELOG.md") {
        for (number, line) in (1..).zip(text.lines()) {
            let unknown = line.split('`').skip(1).step_by(2).filter(|name| is_unknown(tree, name));
            findings
                .extend(unknown.map(|name| Finding::new(path, number, format!("`{name}`: no such code"))));
        }
    }
    findings
}

/// A name of one of our crates that leads nowhere.
fn is_unknown(tree: &Tree, name: &str) -> bool {
    let is_path = name.contains("::") && name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    let mut words = name.split("::");
    let root = words.next().map(|of| format!("crates/{of}/src")).filter(|_| is_path);
    let Some(mut directory) = root.filter(|root| tree.has(&format!("{root}/lib.rs"))) else { return false };
    let mut file = format!("{directory}/lib.rs");
    for word in words {
        let inside = format!("{directory}/{word}");
        let modules = [format!("{inside}.rs"), format!("{inside}/mod.rs")];
        match modules.into_iter().find(|module| tree.has(module)) {
            Some(module) => (directory, file) = (inside, module),
            // An item: its content is not looked for.
            None => return !tree.text(&file).is_some_and(|text| has_word(text, word)),
        }
    }
    false
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    #[test]
    fn modules_and_items_are_there() {
        let files = [
            (
                "a.md",
                "`x::clock::anchor`, `x::clock::Slot`, `x::tests`\n`x::clock::slots`, `std::io`, `y::z`\n",
            ),
            ("crates/x/src/clock.rs", "struct Slot(u32);"),
            ("crates/x/src/clock/anchor.rs", ""),
            ("crates/x/src/lib.rs", "mod tests;"),
        ];
        assert_eq!(shown(&check(&Tree::of(&files))), ["a.md:2: `x::clock::slots`: no such code"]);
    }
}
