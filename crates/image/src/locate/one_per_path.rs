//! What the recording has for a path (a build id, an inode), if that is the same everywhere: records without
//! it mean it, too.

use rustc_hash::FxHashMap;

/// By path; `None` where there are several.
pub(crate) struct OnePerPath<T>(FxHashMap<String, Option<T>>);

impl<T> Default for OnePerPath<T> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<T: Clone + PartialEq> OnePerPath<T> {
    pub(crate) fn add(&mut self, name: &str, value: &T) {
        match self.0.get_mut(name) {
            None => {
                self.0.insert(name.to_string(), Some(value.clone()));
            }
            Some(known) if known.as_ref() != Some(value) => *known = None,
            Some(_) => (),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<T> {
        self.0.get(name).cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_one_path_are_none() {
        let mut ids = OnePerPath::default();
        for (path, id) in [("/a", 1), ("/b", 1), ("/a", 1), ("/b", 2), ("/b", 1)] {
            ids.add(path, &id);
        }
        assert_eq!(["/a", "/b", "/c"].map(|path| ids.get(path)), [Some(1), None, None]);
    }
}
