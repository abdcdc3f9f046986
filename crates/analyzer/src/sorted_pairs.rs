//! Maps as lists of pairs in the order of their keys, so that the written bytes do not depend on a hash.

use std::hash::{BuildHasher, Hash};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes a map.
pub(crate) fn serialize<'m, M, K, V, S>(map: &'m M, serializer: S) -> Result<S::Ok, S::Error>
where
    &'m M: IntoIterator<Item = (&'m K, &'m V)>,
    K: Ord + Serialize + 'm,
    V: Serialize + 'm,
    S: Serializer,
{
    let mut all: Vec<(&K, &V)> = map.into_iter().collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    serializer.collect_seq(all)
}

/// Reads a map, in which no key is there twice.
pub(crate) fn deserialize<'de, M, K, V, D>(deserializer: D) -> Result<M, D::Error>
where
    M: Pairs<K, V>,
    K: Deserialize<'de>,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let pairs: Vec<(K, V)> = Vec::deserialize(deserializer)?;
    let len = pairs.len();
    let map = M::of(pairs);
    if map.len() < len { Err(D::Error::custom("a key is there twice")) } else { Ok(map) }
}

/// A map that can be made of pairs: says which key and value it has.
pub(crate) trait Pairs<K, V> {
    fn of(pairs: Vec<(K, V)>) -> Self;

    fn len(&self) -> usize;
}

impl<K: Eq + Hash, V, H: BuildHasher + Default> Pairs<K, V> for std::collections::HashMap<K, V, H> {
    fn of(pairs: Vec<(K, V)>) -> Self {
        pairs.into_iter().collect()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl<K: Ord, V> Pairs<K, V> for std::collections::BTreeMap<K, V> {
    fn of(pairs: Vec<(K, V)>) -> Self {
        pairs.into_iter().collect()
    }

    fn len(&self) -> usize {
        self.len()
    }
}
