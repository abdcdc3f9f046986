//! Modules of one crate that use each other: none can be read, tested or moved without the others.
//!
//! ```text
//!   crates/x/src   clock        uses walk::Step      a circle of clock and walk
//!                  clock/ratio
//!                  walk         uses clock::Slot
//! ```
//! Compared are the modules of one directory, each with all that is below it. A module and its own parent may
//! use each other: they are one thing, told in parts.

mod names;

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::Tree;
use names::Crate;

/// The circles that remain, with what keeps each: `DIRECTORY: MODULE MODULE ..: REASON`.
const KNOWN: &str = "xtask/src/tidy/known_circles.txt";

/// Modules by the directory that they are in, and which of the others there each uses.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Circles that are not in [`KNOWN`], and lines of it that name no circle.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let known: Vec<(usize, &str)> = (1..).zip(tree.text(KNOWN).unwrap_or_default().lines()).collect();
    let found = circles(tree);
    let found_names = || found.iter().map(|(circle, _)| circle);
    let is_line_of = |circle: &String, line: &str| {
        line.strip_prefix(circle.as_str())
            .and_then(|rest| rest.strip_prefix(": "))
            .is_some_and(|why| !why.is_empty())
    };
    let new = found.iter().filter(|(circle, _)| !known.iter().any(|(_, line)| is_line_of(circle, line)));
    let new = new.map(|(circle, uses)| {
        let (directory, modules) = circle.split_once(": ").unwrap_or((circle, ""));
        let message = format!("a circle of modules, not in {KNOWN}: {modules} ({uses})");
        Finding::new(directory, 0, message)
    });
    let gone = known.iter().filter(|(_, line)| !found_names().any(|circle| is_line_of(circle, line)));
    let gone = gone.map(|(number, line)| Finding::new(KNOWN, *number, format!("no such circle: {line}")));
    new.chain(gone).collect()
}

/// Every circle, as `DIRECTORY: MODULE MODULE ..`, and which of them use which.
fn circles(tree: &Tree) -> Vec<(String, String)> {
    let mut circles = Vec::new();
    for of in crates(tree) {
        for (directory, uses) in uses(&Crate::read(tree, &of)) {
            for group in groups(&uses).into_iter().filter(|group| group.len() > 1) {
                let used = |from: &String| {
                    let inside = uses.get(from).into_iter().flatten().filter(|to| group.contains(to));
                    format!("{from} uses {}", inside.map(String::as_str).collect::<Vec<_>>().join(", "))
                };
                let used: Vec<String> = group.iter().map(used).collect();
                circles.push((format!("{directory}: {}", group.join(" ")), used.join("; ")));
            }
        }
    }
    circles
}

/// Source directories of the crates.
fn crates(tree: &Tree) -> Vec<String> {
    let roots = ["lib.rs", "main.rs"].into_iter().flat_map(|root| {
        let ending = if root == "lib.rs" { "/src/lib.rs" } else { "/src/main.rs" };
        tree.texts(ending).filter_map(move |(path, _)| path.strip_suffix(root)?.strip_suffix('/'))
    });
    let all: BTreeSet<String> = roots.map(str::to_owned).collect();
    all.into_iter().collect()
}

fn uses(of: &Crate<'_>) -> Uses {
    let mut uses = Uses::new();
    for (module, used) in of.uses() {
        let common = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
        let (Some(from), Some(to)) = (module.get(common), used.get(common)) else {
            continue; // a module and its parent
        };
        let parents = module[..common].iter().map(|name| format!("/{name}"));
        let directory = [of.directory.to_owned()].into_iter().chain(parents).collect::<String>();
        uses.entry(directory).or_default().entry(from.clone()).or_default().insert(to.clone());
    }
    uses
}

/// Modules that reach each other, sorted; each module is in one group.
fn groups(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|from| (from.as_str(), reached(uses, from))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut groups: Vec<Vec<String>> = Vec::new();
    for module in uses.keys() {
        match groups.iter_mut().find(|group| reaches(&group[0], module) && reaches(module, &group[0])) {
            Some(group) => group.push(module.clone()),
            None => groups.push(vec![module.clone()]),
        }
    }
    groups
}

/// All that a module uses, and what that uses.
fn reached<'a>(uses: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut all = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(module) = open.pop() {
        let used = uses.get(module).into_iter().flatten();
        open.extend(used.map(String::as_str).filter(|used| all.insert(*used)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    const FILES: [(&str, &str); 5] = [
        (
            "crates/x/src/lib.rs",
            "mod clock;\nmod walk;\nmod other;\npub use walk::Step;\n#[cfg(test)]\nmod rules;\n",
        ),
        ("crates/x/src/clock.rs", "mod ratio;\nuse crate::Step;\npub struct Slot;\n"),
        ("crates/x/src/clock/ratio.rs", "use super::Slot;\nfn f(_: crate::other::Other) {}\n"),
        ("crates/x/src/walk.rs", "pub struct Step(crate::other::Other);\n"),
        ("crates/x/src/other.rs", "pub struct Other; // crate::walk\n"),
    ];

    fn with(file: (&str, &str)) -> Vec<String> {
        let files: Vec<_> = FILES.iter().copied().filter(|(path, _)| *path != file.0).chain([file]).collect();
        shown(&check(&Tree::of(&files)))
    }

    #[test]
    fn a_module_and_its_parent_are_no_circle() {
        assert_eq!(check(&Tree::of(&FILES)), []);
    }

    #[test]
    fn modules_that_use_each_other_are_one() {
        let found =
            with(("crates/x/src/walk.rs", "use crate::{clock::{ratio, Slot}, other};\npub struct Step;\n"));
        let circle = format!(
            "crates/x/src: a circle of modules, not in {KNOWN}: clock walk (clock uses walk; walk uses clock)"
        );
        assert_eq!(found, [circle]);
    }

    #[test]
    fn a_circle_goes_through_other_modules() {
        let found = with(("crates/x/src/other.rs", "use crate::clock;\npub struct Other;\n"));
        let circle = format!(
            "crates/x/src: a circle of modules, not in {KNOWN}: clock other walk \
            (clock uses other, walk; other uses clock; walk uses other)"
        );
        assert_eq!(found, [circle]);
    }

    #[test]
    fn a_known_circle_has_a_reason_and_exists() {
        let uses = ("crates/x/src/other.rs", "use crate::clock;\npub struct Other;\n");
        let known = "crates/x/src: clock other walk: they are one\ncrates/x/src: walk: gone\n";
        let files: Vec<_> = FILES[..4].iter().copied().chain([uses, (KNOWN, known)]).collect();
        let gone = format!("{KNOWN}:2: no such circle: crates/x/src: walk: gone");
        assert_eq!(shown(&check(&Tree::of(&files))), [gone]);
    }

    #[test]
    fn tests_may_use_anything() {
        let test = "pub struct Other;\n#[cfg(test)]\nmod tests {\n    use crate::clock;\n}\n";
        assert_eq!(with(("crates/x/src/other.rs", test)), [""; 0]);
    }
}
