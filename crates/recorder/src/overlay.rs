//! Where the files of an overlay mount really are: in the directories that it lays over one another.

use std::path::{Path, PathBuf};

/// Where the file at `path` may be, the upper layer first; empty if it is on no overlay.  `mounts` is a `mountinfo`.
pub(crate) fn layers(mounts: &str, path: &Path) -> Vec<PathBuf> {
    // The mount that is farthest down the path holds it; of two at one place the later one.
    let overlays = mounts.lines().filter_map(Mount::parse).filter(|mount| path.starts_with(&mount.point));
    let Some(mount) = overlays.max_by_key(|mount| mount.point.components().count()) else {
        return Vec::new();
    };
    let (Some(options), Ok(inside)) = (mount.overlay_options, path.strip_prefix(&mount.point)) else {
        return Vec::new();
    };
    let value =
        |name: &str| options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    let upper = value("upperdir").into_iter();
    let lower = value("lowerdir").into_iter().flat_map(|list| list.split(':'));
    upper.chain(lower).map(|layer| Path::new(&unescaped(layer)).join(inside)).collect()
}

/// One line of `mountinfo`.
struct Mount<'t> {
    point: PathBuf,
    /// Of the file system, if it is an overlay.
    overlay_options: Option<&'t str>,
}

impl<'t> Mount<'t> {
    /// `36 35 0:30 / /merged rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/c`
    fn parse(line: &'t str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = PathBuf::from(unescaped(mount.split(' ').nth(4)?));
        let mut words = file_system.split(' ');
        let overlay = words.next()? == "overlay";
        Some(Self { point, overlay_options: words.nth(1).filter(|_| overlay) })
    }
}

/// The kernel writes space, tab, newline and backslash as octal numbers.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        36 22 0:30 / /merged rw - overlay overlay rw,lowerdir=/l1:/l\\0402,upperdir=/up,workdir=/w\n\
        37 36 0:31 / /merged/data rw - tmpfs tmpfs rw\n";

    #[test]
    fn a_file_is_in_one_of_the_layers() {
        let found = |path: &str| layers(MOUNTS, Path::new(path));
        let expect = ["/up/bin/x", "/l1/bin/x", "/l 2/bin/x"].map(PathBuf::from);
        assert_eq!(found("/merged/bin/x"), expect);
        assert_eq!(found("/merged/data/x"), [] as [PathBuf; 0], "a mount on top of it");
        assert_eq!(found("/bin/x"), [] as [PathBuf; 0]);
    }
}
