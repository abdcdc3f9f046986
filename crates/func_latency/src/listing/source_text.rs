//! The text of source lines, from a directory that the user names.
//!
//! Debug information comes from the traced program: the files that it names are opened below that directory
//! alone, and no link there leads out of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use files::Place;

/// The longest source file that is read.
const BYTES_MAX: u64 = 16 << 20;

/// Source files below a directory.
#[derive(Debug)]
pub struct SourceText {
    root: PathBuf,
    /// The lines of each file that was asked for; `None`: it is not there.
    files: RefCell<BTreeMap<String, Option<Vec<String>>>>,
}

impl SourceText {
    /// Of the files below `root`.
    #[must_use]
    pub fn below(root: PathBuf) -> Self {
        Self { root, files: RefCell::default() }
    }

    /// A line of a file, without the blanks around it; `None`: it is not there.
    #[must_use]
    pub fn line(&self, file: &str, line: u32) -> Option<String> {
        let mut files = self.files.borrow_mut();
        let lines = files.entry(file.to_owned()).or_insert_with(|| self.read(file)).as_ref()?;
        let text = lines.get(usize::try_from(line).ok()?.checked_sub(1)?)?;
        Some(text.trim().to_owned())
    }

    /// The lines of the file below the root that has the longest ending of the compiler's path.
    fn read(&self, file: &str) -> Option<Vec<String>> {
        let parts: Vec<&std::ffi::OsStr> = Path::new(file)
            .components()
            .filter_map(|part| if let Component::Normal(name) = part { Some(name) } else { None })
            .collect();
        (0..parts.len()).find_map(|first| {
            let path: PathBuf = parts.iter().skip(first).collect();
            let opened = Place::below(&self.root, &path).open().ok()?;
            let mut text = Vec::new();
            opened.take(BYTES_MAX).read_to_end(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_the_last_parts_of_its_path_and_not_outside() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("sources");
        std::fs::create_dir_all(root.join("lib")).unwrap();
        std::fs::write(root.join("lib/work.c"), "int f(void)\n{\n\treturn 1;\n}\n").unwrap();
        std::fs::write(directory.path().join("secret"), "of another\n").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("linked")).unwrap();
        let source = SourceText::below(root);
        assert_eq!(source.line("/build/x/lib/work.c", 3).as_deref(), Some("return 1;"));
        assert_eq!(source.line("../lib/work.c", 1).as_deref(), Some("int f(void)"));
        for (file, line) in [("lib/work.c", 5), ("lib/work.c", 0), ("../secret", 1), ("linked", 1), ("", 1)] {
            assert_eq!(source.line(file, line), None, "{file}:{line}");
        }
    }
}
