//! Where the files of an overlay mount really are: in the directories that it lays over one another.

use std::path::{Path, PathBuf};

/// Where the file at `path` may be, the upper layer first; empty if it is on no overlay. `mounts` is a
/// `mountinfo`.
pub(crate) fn layers(mounts: &str, path: &Path) -> Vec<PathBuf> {
    // The mount that is farthest down the path holds it; of two at one place the later one.
    let overlays = mounts.lines().filter_map(Mount::parse).filter(|mount| path.starts_with(&mount.point));
    let Some(mount) = overlays.max_by_key(|mount| mount.point.components().count()) else {
        return Vec::new();
    };
    let (Some(options), Ok(inside)) = (mount.overlay_options, path.strip_prefix(&mount.point)) else {
        return Vec::new();
    };
    let values = |name: &'static str| {
        let options = options.split(',').filter_map(|option| option.split_once('='));
        options.filter(move |(key, _)| *key == name).map(|(_, value)| PathBuf::from(unescaped(value)))
    };
    let mut layers: Vec<PathBuf> = values("upperdir").collect();
    layers.extend(values("lowerdir").flat_map(|list| listed(&list.to_string_lossy())));
    // Linux 6.8 and newer, one by one.
    layers.extend(values("lowerdir+").chain(values("datadir+")));
    let anchors: Vec<PathBuf> =
        values("upperdir").chain(values("workdir")).filter(|dir| dir.is_absolute()).collect();
    let absolute = layers.into_iter().filter_map(|layer| resolved(layer, &anchors));
    absolute.map(|layer| layer.join(inside)).collect()
}

/// The layers of a `lowerdir`: between colons, of which two stand in front of those that have only data; a
/// colon of a name has a backslash.
fn listed(list: &str) -> Vec<PathBuf> {
    let mut layers = vec![String::new()];
    let mut letters = list.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ':' => layers.push(String::new()),
            letter => {
                let plain = if letter == '\\' { letters.next() } else { Some(letter) };
                layers.last_mut().into_iter().for_each(|layer| layer.extend(plain));
            }
        }
    }
    layers.into_iter().filter(|layer| !layer.is_empty()).map(PathBuf::from).collect()
}

/// Where a layer is. Docker and containerd mount from the directory that has all layers, if their names are
/// long, and name them from there (`l/ABC`, `12/fs`). Their upper directory is as far below it (`ID/diff`,
/// `13/fs`).
fn resolved(layer: PathBuf, anchors: &[PathBuf]) -> Option<PathBuf> {
    if layer.is_absolute() {
        return Some(layer);
    }
    let depth = layer.components().count();
    anchors.iter().find_map(|anchor| anchor.ancestors().nth(depth)).map(|root| root.join(&layer))
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

/// The kernel writes letters that have a meaning here as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let letter = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        match (letter, part.get(3..)) {
            (Some(letter), Some(rest)) => {
                plain.push(char::from(letter));
                plain.push_str(rest);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
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

    fn bin_x(options: &str) -> Vec<PathBuf> {
        let mounts = format!("36 22 0:30 / / rw - overlay overlay rw,{options},xino=off\n");
        layers(&mounts, Path::new("/bin/x"))
    }

    /// By util-linux 2.39, containerd 2, podman: the file was told to be gone.
    #[test]
    fn layers_that_were_added_one_by_one() {
        let found = bin_x("lowerdir+=/a:b,lowerdir+=/c,datadir+=/data,upperdir=/up,workdir=/w");
        assert_eq!(found, ["/up/bin/x", "/a:b/bin/x", "/c/bin/x", "/data/bin/x"].map(PathBuf::from));
    }

    #[test]
    fn layers_are_named_from_the_directory_that_has_all_of_them() {
        let containerd =
            bin_x("lowerdir=12/fs:11/fs,upperdir=/var/snapshots/13/fs,workdir=/var/snapshots/13/work");
        let expect =
            ["/var/snapshots/13/fs/bin/x", "/var/snapshots/12/fs/bin/x", "/var/snapshots/11/fs/bin/x"];
        assert_eq!(containerd, expect.map(PathBuf::from));
        let docker =
            bin_x("lowerdir=l/ABC:l/DEF,upperdir=/var/overlay2/7f/diff,workdir=/var/overlay2/7f/work");
        assert_eq!(
            docker[1..],
            ["/var/overlay2/l/ABC/bin/x", "/var/overlay2/l/DEF/bin/x"].map(PathBuf::from)
        );
        // The directory that these names start from is not known.
        assert_eq!(bin_x("lowerdir=l/ABC,upperdir=7f/diff,workdir=7f/work"), [] as [PathBuf; 0]);
    }

    #[test]
    fn letters_that_have_a_meaning_may_be_part_of_a_name() {
        let found = bin_x("lowerdir=/a\\134:b:/c\\054d::/e\\075f");
        assert_eq!(found, ["/a:b/bin/x", "/c,d/bin/x", "/e=f/bin/x"].map(PathBuf::from));
        for (text, plain) in
            [("\\040x\\", " x\\"), ("a\\09", "a\\09"), ("\\377", "\\377"), ("\\é40", "\\é40")]
        {
            assert_eq!(unescaped(text), plain);
        }
    }
}
