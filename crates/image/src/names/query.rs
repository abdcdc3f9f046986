//! What a user may write for a function.

use model::{ObjectId, Svma};

use crate::image::Image;
use crate::locate::object_key::basename;

/// A function as a user names it.
///
/// `text` is a symbol, a demangled name with or without parameters, the unique beginning of one, a glob
/// (`*`, `?`, `[..]`), an address (`0x...`, `object+0x...`), or any of these after `OBJECT:`. `k:` stands for
/// all objects of the kernel, unless an object has that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The function.
    pub text: String,
    /// Only in this object: its path, the last part of it, or another path to the same file.
    pub object: Option<String>,
}

/// In the place of an object: the kernel and its modules.
pub(crate) const KERNEL: &str = "k";

/// A query, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) what: What,
    /// The only objects to look into.
    pub(crate) objects: Option<Vec<ObjectId>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Name(String),
    Address(u64),
    /// Always a linked one: `object+0x...`.
    LinkedAddress(Svma),
}

/// Takes a query apart; the error is the object that there is not.
pub(crate) fn parse(image: &Image, query: &Query) -> Result<Parsed, String> {
    let mut objects = None;
    if let Some(name) = &query.object {
        objects = Some(matching(image, name));
        if objects.as_ref().is_some_and(Vec::is_empty) {
            return Err(name.clone());
        }
    }
    let text = query.text.trim();
    if let Some((object, address)) = site(text) {
        let found = within(matching(image, object), objects.as_ref());
        if !found.is_empty() {
            return Ok(Parsed { what: What::LinkedAddress(Svma(address)), objects: Some(found) });
        }
    }
    for (object, name) in object_prefixes(text) {
        let found = within(matching(image, object), objects.as_ref());
        if !found.is_empty() {
            return Ok(Parsed { what: name_or_address(name), objects: Some(found) });
        }
        if object == KERNEL {
            return Err(object.to_owned());
        }
    }
    Ok(Parsed { what: name_or_address(text), objects })
}

fn name_or_address(text: &str) -> What {
    address(text).map_or_else(|| What::Name(text.to_string()), What::Address)
}

fn address(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok()
}

/// `object+0x12`, also in brackets: how we print code without a name.
fn site(text: &str) -> Option<(&str, u64)> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let (object, offset) = bare.rsplit_once('+')?;
    Some((object, address(offset)?))
}

/// Every way to read `OBJECT:NAME`; the colons of `a::b` separate nothing.
fn object_prefixes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices(':').filter_map(|(at, _)| {
        let (object, name) = (text.get(..at)?, text.get(at + 1..)?);
        (!object.is_empty() && !object.ends_with(':') && !name.starts_with(':')).then_some((object, name))
    })
}

/// The objects that a user means: by path or last part of it, else by being the same file.
fn matching(image: &Image, name: &str) -> Vec<ObjectId> {
    let by_name = |id: &ObjectId| image.object_name(*id) == name || image.object_basename(*id) == name;
    let found: Vec<_> = image.objects().filter(by_name).collect();
    if !found.is_empty() {
        return found;
    }
    if name == KERNEL {
        return image.objects().filter(|id| image.is_kernel_object(*id)).collect();
    }
    let Some(wanted) = identity(name.as_ref()) else {
        // A path on another machine still ends with the name of the file.
        let last = basename(name);
        let same_last = |id: &ObjectId| last != name && image.object_basename(*id) == last;
        return image.objects().filter(same_last).collect();
    };
    let same_file = |id: &ObjectId| image.object_path(*id).and_then(identity) == Some(wanted);
    let found: Vec<_> = image.objects().filter(same_file).collect();
    if !found.is_empty() {
        return found;
    }
    // It may be the one that was meant for an object that has no file.
    let is_missing = |id: &ObjectId| image.object_path(*id).is_none();
    let same_last = |id: &ObjectId| image.object_basename(*id) == basename(name);
    image.objects().filter(is_missing).filter(same_last).collect()
}

fn within(found: Vec<ObjectId>, allowed: Option<&Vec<ObjectId>>) -> Vec<ObjectId> {
    found.into_iter().filter(|id| allowed.is_none_or(|allowed| allowed.contains(id))).collect()
}

/// Device and inode.
fn identity(path: &std::path::Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_and_prefixes() {
        assert_eq!(site("[libc.so.6+0x1f]"), Some(("libc.so.6", 0x1f)));
        assert_eq!(site("a+b+0x10"), Some(("a+b", 0x10)));
        assert_eq!(site("operator+"), None);
        let prefixes = |text| object_prefixes(text).collect::<Vec<_>>();
        assert_eq!(prefixes("mysqld:mtr_t::commit"), [("mysqld", "mtr_t::commit")]);
        assert_eq!(prefixes("a::b"), []);
        assert_eq!(prefixes("/x:y/z:f"), [("/x", "y/z:f"), ("/x:y/z", "f")]);
        assert_eq!(address("0x"), None);
        assert_eq!(address("0x1F"), Some(0x1f));
    }
}
