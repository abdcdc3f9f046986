//! Rules for every text file: no blanks at line ends, and nothing of the machine it was written on.

use super::Finding;
use super::tree::Tree;

/// Directories of a developer's machine, in halves so that this file does not name them.
const MACHINE_PATHS: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")];

/// File types in which blanks are ours to choose; a golden text has them as the program prints them.
const OURS: [&str; 9] = [".rs", ".toml", ".md", ".c", ".cpp", ".h", ".js", ".css", ".html"];

/// Blanks and machine paths.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts("") {
        let ours = OURS.iter().any(|ending| path.ends_with(ending));
        for (number, line) in (1..).zip(text.lines()) {
            if ours && line.trim_end() != line {
                findings.push(Finding::new(path, number, "blanks at the end of the line"));
            }
            if path.ends_with(".rs") && line.contains('\t') {
                findings.push(Finding::new(path, number, "a tab"));
            }
            if let Some(machine) = machine_path(line) {
                findings.push(Finding::new(path, number, format!("a path of one machine: {machine}")));
            }
        }
    }
    findings
}

/// The first path of a machine in the line, where a path can begin.
fn machine_path(line: &str) -> Option<String> {
    MACHINE_PATHS.iter().map(|(first, second)| format!("{first}{second}")).find(|pattern| {
        let mut starts = line.match_indices(pattern.as_str()).map(|(at, _)| &line[..at]);
        starts.any(|before| !before.ends_with(|c: char| c.is_alphanumeric() || "._-~/}".contains(c)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    #[test]
    fn blanks() {
        let tree = Tree::of(&[("a.rs", "fn f() {} \n\tx\n"), ("golden.txt", "a  \n")]);
        assert_eq!(shown(&check(&tree)), ["a.rs:1: blanks at the end of the line", "a.rs:2: a tab"]);
    }

    #[test]
    fn machine_paths() {
        let line = ["see /wo", "rk/x"].concat();
        assert_eq!(
            shown(&check(&Tree::of(&[("a.md", &line)]))),
            [["a.md:1: a path of one machine: /wo", "rk/"].concat()]
        );
        let inside = ["docs/net/wo", "rk/x"].concat();
        assert_eq!(check(&Tree::of(&[("a.md", &inside)])), []);
    }
}
