//! Which crate may use which: the table of docs/architecture.md.  Types only move down it.

use super::Finding;
use super::tree::Tree;

/// The crates in order, and what each may use.  Tests may use any crate.
const USES: [(&str, &[&str]); 12] = [
    ("model", &[]),
    ("files", &[]),
    ("perfdata", &["files", "model"]),
    ("image", &["files", "model"]),
    ("packet", &["model"]),
    ("decoder", &["packet", "model"]),
    ("libipt", &["decoder", "model"]),
    ("analyzer", &["model"]),
    ("recorder", &["perfdata", "packet", "model"]),
    ("bpf", &["model"]),
    (
        "func_latency",
        &[
            "model", "files", "perfdata", "image", "packet", "decoder", "libipt", "analyzer", "recorder",
            "bpf",
        ],
    ),
    ("tracegen", &["packet", "perfdata", "model"]),
];

/// A workspace of its own: libFuzzer is no dependency of ours.
const OTHER_WORKSPACE: &str = "fuzz/Cargo.toml";

/// Where every dependency has its reason.
const REASONS: &str = "docs/dependencies.md";

/// Dependency direction, versions in one place, the workspace's lints in every crate, a reason for each
/// dependency.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = without_reason(tree);
    for (path, text) in tree.texts("/Cargo.toml").filter(|(path, _)| *path != OTHER_WORKSPACE) {
        let manifest = Manifest::parse(text);
        if !manifest.inherits_lints {
            findings.push(Finding::new(path, 0, "no `[lints] workspace = true`"));
        }
        for dependency in manifest.dependencies.iter().filter(|dependency| !dependency.of_workspace) {
            let message = format!("the version of {} belongs in the workspace's Cargo.toml", dependency.name);
            findings.push(Finding::new(path, dependency.line, message));
        }
        let Some(name) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let Some((_, allowed)) = USES.iter().find(|(krate, _)| *krate == name) else {
            findings.push(Finding::new(
                path,
                0,
                "a crate that the table of docs/architecture.md does not have",
            ));
            continue;
        };
        let ours = |dependency: &&Dependency| USES.iter().any(|(krate, _)| *krate == dependency.name);
        for dependency in manifest.dependencies.iter().filter(|dependency| !dependency.for_tests).filter(ours)
        {
            if !allowed.contains(&dependency.name) {
                let message = format!("{name} must not use {}", dependency.name);
                findings.push(Finding::new(path, dependency.line, message));
            }
        }
    }
    findings
}

/// Dependencies of the workspace that [`REASONS`] does not name.
fn without_reason(tree: &Tree) -> Vec<Finding> {
    let (root, reasons) = (tree.text("Cargo.toml").unwrap_or(""), tree.text(REASONS).unwrap_or(""));
    let mut findings = Vec::new();
    let mut section = "";
    for (line, text) in (1..).zip(root.lines()) {
        if text.starts_with('[') {
            section = text;
        }
        let dependency = text.split_once(" = ").filter(|_| section == "[workspace.dependencies]");
        let Some((name, _)) = dependency.filter(|(_, value)| !value.contains("path =")) else { continue };
        if !reasons.contains(&format!("`{name}`")) {
            findings.push(Finding::new("Cargo.toml", line, format!("{REASONS} has no reason for {name}")));
        }
    }
    findings
}

struct Manifest<'a> {
    inherits_lints: bool,
    dependencies: Vec<Dependency<'a>>,
}

struct Dependency<'a> {
    name: &'a str,
    line: usize,
    of_workspace: bool,
    for_tests: bool,
}

impl<'a> Manifest<'a> {
    /// Parses the TOML that our manifests use: one dependency a line.
    fn parse(text: &'a str) -> Self {
        let mut manifest = Self { inherits_lints: false, dependencies: Vec::new() };
        let mut section = "";
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
            } else if section == "lints" && line.replace(' ', "") == "workspace=true" {
                manifest.inherits_lints = true;
            } else if section.ends_with("dependencies") && !section.starts_with("workspace") {
                let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
                    continue;
                };
                manifest.dependencies.push(Dependency {
                    name: key.trim().trim_end_matches(".workspace"),
                    line: index + 1,
                    of_workspace: key.contains(".workspace")
                        || value.replace(' ', "").contains("workspace=true"),
                    for_tests: section.ends_with("dev-dependencies"),
                });
            }
        }
        manifest
    }
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    #[test]
    fn a_crate_uses_only_what_stands_above_it() {
        let image = "[lints]\nworkspace = true\n[dependencies]\nmodel.workspace = true\ndecoder = { workspace = true }\n
            [dev-dependencies]\ntracegen.workspace = true\n";
        let tree = Tree::of(&[("crates/image/Cargo.toml", image)]);
        assert_eq!(shown(&check(&tree)), ["crates/image/Cargo.toml:5: image must not use decoder"]);
    }

    #[test]
    fn versions_and_lints_are_the_workspace_s() {
        let packet = "[dependencies]\n# none = \"1\"\nmodel.workspace = true\nlibc = \"0.2\"\n";
        let found = shown(&check(&Tree::of(&[("crates/packet/Cargo.toml", packet)])));
        assert_eq!(
            found,
            [
                "crates/packet/Cargo.toml: no `[lints] workspace = true`",
                "crates/packet/Cargo.toml:4: the version of libc belongs in the workspace's Cargo.toml",
            ]
        );
    }

    #[test]
    fn a_new_crate_must_find_its_place() {
        let tree = Tree::of(&[("crates/helpers/Cargo.toml", "[lints]\nworkspace = true\n")]);
        assert!(
            shown(&check(&tree))[0].ends_with("a crate that the table of docs/architecture.md does not have")
        );
    }

    #[test]
    fn a_dependency_has_a_reason() {
        let root = "[workspace.dependencies]\nmodel = { path = \"x\" }\nlibc = \"0.2\"\nglob = \"0.3\"\n";
        let tree = Tree::of(&[("Cargo.toml", root), (REASONS, "| `glob` | patterns |")]);
        assert_eq!(shown(&check(&tree)), ["Cargo.toml:3: docs/dependencies.md has no reason for libc"]);
    }
}
