//! The repository's files as the rules see them.

use std::fs;
use std::path::Path;

use crate::process::Result;

/// A file.
#[derive(Debug)]
pub(super) struct File {
    /// From the top of the repository, with `/`.
    pub(super) path: String,
    /// Bytes.
    pub(super) size: u64,
    /// Its text, if it is text.
    pub(super) text: Option<String>,
}

/// All files, sorted by path.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The files.
    pub(super) files: Vec<File>,
}

/// Not ours, or made by us: version control, build output (as in `.gitignore`).
const SKIPPED: [&str; 5] = [".git", "target", "out", "fuzz/target", "fuzz/artifacts"];

/// Nothing that we read is larger.
const TEXT_LIMIT_BYTES: u64 = 4 << 20;

impl Tree {
    /// Reads the files below `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut dirs = vec![String::new()];
        while let Some(dir) = dirs.pop() {
            let named = |e: std::io::Error| format!("{}: {e}", root.join(&dir).display());
            for entry in fs::read_dir(root.join(&dir)).map_err(named)? {
                let entry = entry.map_err(named)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                let meta = entry.metadata().map_err(named)?;
                if SKIPPED.contains(&path.as_str()) {
                    continue;
                } else if meta.is_dir() {
                    dirs.push(path);
                } else {
                    let small = meta.len() <= TEXT_LIMIT_BYTES;
                    let text = small.then(|| fs::read_to_string(entry.path()).ok()).flatten();
                    files.push(File { path, size: meta.len(), text });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// Text files with a name that ends in `ending`: path and text.
    pub(super) fn texts<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self.files.iter().filter(move |file| file.path.ends_with(ending));
        files.filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// A file's text.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text.as_deref()
    }

    /// A file or directory is there.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.iter().any(|file| {
            file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// A tree for tests.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            size: text.len() as u64,
            text: Some((*text).to_owned()),
        };
        Self { files: files.iter().map(file).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_count_as_there() {
        let tree = Tree::of(&[("docs/a.md", "x")]);
        assert!(tree.has("docs") && tree.has("docs/a.md"));
        assert!(!tree.has("doc") && !tree.has("docs/a"));
        assert_eq!(tree.text("docs/a.md"), Some("x"));
    }
}
