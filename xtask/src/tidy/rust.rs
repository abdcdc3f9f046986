//! Rules for Rust files that the compiler and clippy do not know.

use super::Finding;
use super::tree::Tree;

/// Files that may use `unsafe`: the modules that map files (`files::mapped` also handles SIGBUS: a mapped
/// file may be cut), those that call libipt, the kernel and assembly, and a test with a symbol that must keep
/// its name (`no_mangle`).
const UNSAFE_ALLOWED: [&str; 6] = [
    "crates/bpf/src/idle.rs",
    "crates/files/src/mapped.rs",
    "crates/image/tests/own_program.rs",
    "crates/libipt/src/sys.rs",
    "crates/recorder/src/sys.rs",
    "crates/tracegen/src/log/mapped.rs",
];

/// A file up to this length explains itself.
const SHORT_LINES: usize = 40;

/// Above this a file has more than one concept; told, not failed for.
const LONG_LINES: usize = 600;

/// What must not stand in code, in halves so that this file does not have it, and why.
const FORBIDDEN: [(&str, &str, &str); 4] = [
    ("todo", "!(", "unfinished"),
    ("unimplemented", "!(", "unfinished"),
    ("#[ign", "ore", "a test runs or says why it is skipped"),
    ("dbg", "!(", "left from debugging"),
];

/// Headers, length, leftovers and `unsafe`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs") {
        let count = text.lines().count();
        if count > SHORT_LINES && !text.starts_with("//!") {
            findings.push(Finding::new(path, 0, "does not begin with `//!` and what it is about"));
        }
        if count > LONG_LINES {
            let message = format!("{count} lines; above {LONG_LINES} a file has more than one concept");
            findings.push(Finding { note: true, ..Finding::new(path, 0, message) });
        }
        for (number, line) in (1..).zip(text.lines()) {
            let message = leftover(line).or_else(|| lint_off(path, line));
            findings.extend(message.map(|message| Finding::new(path, number, message)));
        }
    }
    findings
}

fn leftover(line: &str) -> Option<String> {
    FORBIDDEN.iter().find_map(|(first, second, why)| {
        let pattern = format!("{first}{second}");
        // A macro of another name may end like one of these.
        let (before, _) = line.split_once(&pattern)?;
        let own_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        own_word.then(|| format!("`{pattern}`: {why}"))
    })
}

/// The compiler denies `unsafe` in the whole workspace, so only switching that off needs to be looked for.
fn lint_off(path: &str, line: &str) -> Option<String> {
    let off = line.contains("unsafe_code") && line.contains("#") && !line.trim_start().starts_with("//");
    (off && !UNSAFE_ALLOWED.contains(&path) && !path.starts_with("xtask/"))
        .then(|| "`unsafe` here: the modules that may are listed in xtask/src/tidy/rust.rs".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    #[test]
    fn headers_and_length() {
        let long = "fn f() {}\n".repeat(41);
        assert_eq!(
            shown(&check(&Tree::of(&[("a.rs", &long)]))),
            ["a.rs: does not begin with `//!` and what it is about"]
        );
        let longer = format!("//! About f.\n{}", "fn f() {}\n".repeat(600));
        let found = check(&Tree::of(&[("a.rs", &longer)]));
        assert_eq!(shown(&found), ["a.rs: note: 601 lines; above 600 a file has more than one concept"]);
        assert!(found[0].note);
        assert_eq!(check(&Tree::of(&[("a.rs", "fn f() {}\n")])), []);
    }

    #[test]
    fn leftovers() {
        let text = ["fn f() { todo", "!() }\n#[ign", "ore]\nmy_dbg", "!(x)\n"].concat();
        assert_eq!(
            shown(&check(&Tree::of(&[("a.rs", &text)]))),
            [
                format!("a.rs:1: `{}{}`: unfinished", "todo", "!("),
                format!("a.rs:2: `{}{}`: a test runs or says why it is skipped", "#[ign", "ore"),
            ]
        );
    }

    #[test]
    fn unsafe_stands_only_in_its_modules() {
        let text = "#![allow(unsafe_code)]\n";
        assert_eq!(check(&Tree::of(&[("crates/files/src/mapped.rs", text)])), []);
        assert_eq!(check(&Tree::of(&[("crates/packet/src/tnt.rs", text)])).len(), 1);
    }
}
