//! `tidy`: the rules of this repository that no other tool checks. Each rule is a function from the tree of
//! files to findings, in a file of its own with its tests.

mod circles;
mod crates;
mod fields;
mod files;
mod links;
mod modules;
mod prose;
mod rust;
mod text;
mod tree;
mod types;

use std::fmt;

use crate::layout;
use crate::process::Result;
use tree::Tree;

/// A place where a rule does not hold.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// From 1; 0: the file as a whole.
    line: usize,
    message: String,
    /// Only told, not failed for.
    note: bool,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into(), note: false }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}{}", if self.note { "note: " } else { "" }, self.message)
    }
}

/// Prints the findings; an error if any of them is more than a note.
pub(crate) fn run() -> Result {
    let tree = Tree::read(&layout::root())?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let failures = findings.iter().filter(|finding| !finding.note).count();
    println!("tidy: {} files, {failures} findings", tree.files.len());
    if failures == 0 { Ok(()) } else { Err(format!("tidy: {failures} findings")) }
}

fn check(tree: &Tree) -> Vec<Finding> {
    let rules = [
        circles::check,
        crates::check,
        fields::check,
        files::check,
        links::check,
        modules::check,
        prose::check,
        rust::check,
        text::check,
        types::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

/// What the tests of the rules compare.
#[cfg(test)]
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
