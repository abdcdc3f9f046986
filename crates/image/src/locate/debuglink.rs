//! `.gnu_debuglink`: the name of a debug file and the CRC of its bytes.
//!
//! Looked for where GDB does: beside the object, in `.debug` there, and below the directory of debug files.

use std::path::{Path, PathBuf};

use files::Place;

use crate::contents::Contents;
use crate::elf::Elf;
use crate::locate::located::{open, same_build_id};
use crate::options::ImageOptions;

/// The debug file that an object links to: `name` as the recording has it, `object` on this machine.
pub(crate) fn find(
    elf: &Elf<'_>,
    name: &str,
    object: &Place,
    options: &ImageOptions,
) -> Option<(Place, Contents)> {
    let (link, crc) = elf.debug_link()?;
    // A name with directories would lead out of where we look.
    let link = Path::new(link).file_name()?;
    let places = places(Path::new(name), object.path(), Path::new(link), options);
    // An object may link to itself.
    places.into_iter().filter(|path| path != object.path()).find_map(|path| {
        let place = object.other(path);
        let contents = open(&place, None).ok().flatten()?;
        belongs(elf, &contents, crc).then_some((place, contents))
    })
}

fn places(name: &Path, path: &Path, link: &Path, options: &ImageOptions) -> Vec<PathBuf> {
    let beside = path.parent().unwrap_or(Path::new(""));
    let directory = name.parent().unwrap_or(Path::new(""));
    let installed = options.debug_directory.join(directory.strip_prefix("/").unwrap_or(directory)).join(link);
    let beside = [beside.join(link), beside.join(".debug").join(link)];
    beside.into_iter().chain(options.rooted(&installed)).collect()
}

/// The debug file has the object's build id, or where one of them has none the CRC of the link.
fn belongs(elf: &Elf<'_>, debug: &[u8], crc: u32) -> bool {
    let Ok(found) = Elf::parse(debug) else { return false };
    match (elf.build_id(), found.build_id()) {
        (Some(id), Some(found)) => same_build_id(&id, &found),
        _ => crc32fast::hash(debug) == crc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_gdb_looks() {
        let check = |options: &ImageOptions, path: &str, expect: [&str; 3]| {
            let got = places(Path::new("/usr/lib/libx.so"), Path::new(path), Path::new("x.debug"), options);
            assert_eq!(got, expect.map(PathBuf::from));
        };
        check(
            &ImageOptions::default(),
            "/usr/lib/libx.so",
            ["/usr/lib/x.debug", "/usr/lib/.debug/x.debug", "/usr/lib/debug/usr/lib/x.debug"],
        );
        check(
            &ImageOptions { symfs: Some("/s".into()), ..ImageOptions::default() },
            "/s/usr/lib/libx.so",
            ["/s/usr/lib/x.debug", "/s/usr/lib/.debug/x.debug", "/s/usr/lib/debug/usr/lib/x.debug"],
        );
    }
}
