//! What may lie where, and how large.

use super::Finding;
use super::tree::Tree;

/// The top level, besides dotfiles.
const TOP: [&str; 14] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "crates",
    "docs",
    "fixtures",
    "fuzz",
    "python",
    "tests",
    "xtask",
];

/// A file in the repository.
const FILE_LIMIT_BYTES: u64 = 1 << 20;

/// All recordings together: every clone pays for them, for ever.
const RECORDINGS_LIMIT_BYTES: u64 = 2 << 20;

/// The top level, the size of files and of all recordings.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut recordings = 0;
    for file in &tree.files {
        let top = file.path.split('/').next().unwrap_or_default();
        if !top.starts_with('.') && !TOP.contains(&top) {
            findings.push(Finding::new(&file.path, 0, "does not belong at the top level"));
        }
        if file.size > FILE_LIMIT_BYTES {
            findings.push(Finding::new(&file.path, 0, format!("{} bytes; the limit is 1 MB", file.size)));
        }
        if is_recording(&file.path) {
            recordings += file.size;
        }
    }
    if recordings > RECORDINGS_LIMIT_BYTES {
        findings.push(Finding::new(".", 0, format!("{recordings} bytes of recordings; the limit is 2 MB")));
    }
    findings
}

fn is_recording(path: &str) -> bool {
    path.ends_with(".data") || path.ends_with(".truth") || path.contains("perf.data")
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::super::tree::File;
    use super::*;

    #[test]
    fn strays_are_found() {
        let tree = Tree::of(&[("README.md", ""), (".ci/run", ""), ("notes.txt", ""), ("src/main.rs", "")]);
        assert_eq!(
            shown(&check(&tree)),
            ["notes.txt: does not belong at the top level", "src/main.rs: does not belong at the top level"]
        );
    }

    #[test]
    fn large_files_and_many_recordings_are_found() {
        let file = |path: &str, size| File { path: path.to_owned(), size, text: None };
        let tree = Tree { files: vec![file("tests/a.bin", (1 << 20) + 1), file("tests/b.bin", 1 << 20)] };
        assert_eq!(shown(&check(&tree)), ["tests/a.bin: 1048577 bytes; the limit is 1 MB"]);
        let files = (0..3).map(|i| file(&format!("tests/{i}.data"), 1_000_000)).collect();
        assert_eq!(shown(&check(&Tree { files })), [".: 3000000 bytes of recordings; the limit is 2 MB"]);
    }
}
