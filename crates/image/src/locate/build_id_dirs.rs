//! Directories that keep files by build id.
//!
//! ```text
//! DIR/.build-id/ab/cdef          perf archive, ~/.debug: a link to the file, or to a directory with
//! DIR/.build-id/ab/cdef/elf        the object,
//! DIR/.build-id/ab/cdef/vdso       the vDSO,
//! DIR/.build-id/ab/cdef/debug      its debug file
//! DIR/.build-id/ab/cdef.debug    distributions: the debug file
//! DIR/abcdef/executable          debuginfod's client: the object,
//! DIR/abcdef/debuginfo             its debug file
//! ```

use std::path::{Path, PathBuf};

use model::BuildId;

use crate::options::ImageOptions;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Code.
    Code,
    /// Symbols and DWARF without code.
    Debug,
}

/// Where a file of this build id may be, the best first.
pub(crate) fn places(id: &BuildId, part: Part, options: &ImageOptions) -> Vec<PathBuf> {
    let hex = id.to_string();
    let mut list = Vec::new();
    let debug_directory = options.rooted(&options.debug_directory);
    let roots = options.symfs.iter().chain(&debug_directory).chain(&options.build_id_cache);
    for root in roots {
        list.extend(in_build_id_tree(root, &hex, part));
    }
    if let Some(cache) = &options.debuginfod_cache {
        let name = match part {
            Part::Code => "executable",
            Part::Debug => "debuginfo",
        };
        list.push(cache.join(&hex).join(name));
    }
    list
}

fn in_build_id_tree(root: &Path, hex: &str, part: Part) -> Vec<PathBuf> {
    // Two digits name the directory; an id so short is none.
    let Some((first, rest)) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let directory = root.join(".build-id").join(first);
    let entry = directory.join(rest);
    match part {
        Part::Code => vec![entry.join("elf"), entry.join("vdso"), entry],
        Part::Debug => vec![entry.join("debug"), directory.join(format!("{rest}.debug"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_is_looked_into() {
        let options = ImageOptions {
            symfs: Some("/s".into()),
            build_id_cache: Some("/home-of-me/.debug".into()),
            debuginfod_cache: Some("/home-of-me/.cache/debuginfod_client".into()),
            ..ImageOptions::default()
        };
        let check = |part, expect: &[&str]| {
            let id = BuildId(vec![0xab, 0xcd, 0xef]);
            let got = places(&id, part, &options);
            assert_eq!(got, expect.iter().map(PathBuf::from).collect::<Vec<_>>());
        };
        check(
            Part::Code,
            &[
                "/s/.build-id/ab/cdef/elf",
                "/s/.build-id/ab/cdef/vdso",
                "/s/.build-id/ab/cdef",
                "/s/usr/lib/debug/.build-id/ab/cdef/elf",
                "/s/usr/lib/debug/.build-id/ab/cdef/vdso",
                "/s/usr/lib/debug/.build-id/ab/cdef",
                "/home-of-me/.debug/.build-id/ab/cdef/elf",
                "/home-of-me/.debug/.build-id/ab/cdef/vdso",
                "/home-of-me/.debug/.build-id/ab/cdef",
                "/home-of-me/.cache/debuginfod_client/abcdef/executable",
            ],
        );
        check(
            Part::Debug,
            &[
                "/s/.build-id/ab/cdef/debug",
                "/s/.build-id/ab/cdef.debug",
                "/s/usr/lib/debug/.build-id/ab/cdef/debug",
                "/s/usr/lib/debug/.build-id/ab/cdef.debug",
                "/home-of-me/.debug/.build-id/ab/cdef/debug",
                "/home-of-me/.debug/.build-id/ab/cdef.debug",
                "/home-of-me/.cache/debuginfod_client/abcdef/debuginfo",
            ],
        );
        assert_eq!(places(&BuildId(vec![0xab]), Part::Code, &ImageOptions::default()), [] as [PathBuf; 0]);
    }
}
