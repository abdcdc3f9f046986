//! Links between the documents: the file is there, and so is the heading.

use super::Finding;
use super::tree::Tree;

/// Relative links of all Markdown files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".md") {
        for (line, link) in links(text) {
            if let Some(message) = broken(tree, path, link) {
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// Why a link leads nowhere.
fn broken(tree: &Tree, from: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let target = if file.is_empty() { Some(from.to_owned()) } else { resolve(from, file) };
    let Some(target) = target.filter(|target| tree.has(target)) else {
        return Some(format!("link to {link}: no such file"));
    };
    let heading = heading?;
    let known = tree.text(&target).is_some_and(|text| anchors(text).any(|anchor| anchor == heading));
    (!known).then(|| format!("link to {link}: no such heading"))
}

/// `to` as seen from the directory of `from`; `None` if it leaves the repository.
fn resolve(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.trim_end_matches('/').split('/') {
        match part {
            "." => (),
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The targets of `[text](target)` outside code, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (line, text) in prose(text) {
        // Every second part is between backticks, code.
        for text in text.split('`').step_by(2) {
            for rest in text.split("](").skip(1) {
                links.extend(rest.split_once(')').map(|(link, _)| (line, link)));
            }
        }
    }
    links
}

/// The lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// What a heading is called in a link: lower case, spaces to dashes, no punctuation.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings =
        prose(text).filter_map(|(_, line)| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
    headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    #[test]
    fn links_that_resolve_are_silent() {
        let tree = Tree::of(&[
            ("README.md", "[a](docs/a.md), [web](https://x.org/y) `[no](no.md)`\n```\n[no](no.md)\n```\n"),
            ("docs/a.md", "# The `one` thing\n[top](../README.md) [me](#the-one-thing) [dir](../docs/)"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn broken_links_are_found() {
        let tree = Tree::of(&[("docs/a.md", "# One\n\n[b](b.md) [c](../../c.md)\n[two](a.md#two)\n")]);
        assert_eq!(
            shown(&check(&tree)),
            [
                "docs/a.md:3: link to b.md: no such file",
                "docs/a.md:3: link to ../../c.md: no such file",
                "docs/a.md:4: link to a.md#two: no such heading",
            ]
        );
    }
}
