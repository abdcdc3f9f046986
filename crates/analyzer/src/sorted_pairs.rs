//! Maps as lists of pairs in the order of their keys, so that what is written does not depend on a hash.

use std::hash::{BuildHasher, Hash};

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

/// Reads a map; of a key that is there twice the last value counts.
pub(crate) fn deserialize<'de, M, K, V, D>(deserializer: D) -> Result<M, D::Error>
where
    M: Pairs<K, V>,
    K: Deserialize<'de>,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(M::of(Vec::deserialize(deserializer)?))
}

/// A map that can be made of pairs: says which key and value it has.
pub(crate) trait Pairs<K, V> {
    fn of(pairs: Vec<(K, V)>) -> Self;
}

impl<K: Eq + Hash, V, H: BuildHasher + Default> Pairs<K, V> for std::collections::HashMap<K, V, H> {
    fn of(pairs: Vec<(K, V)>) -> Self {
        pairs.into_iter().collect()
    }
}

impl<K: Ord, V> Pairs<K, V> for std::collections::BTreeMap<K, V> {
    fn of(pairs: Vec<(K, V)>) -> Self {
        pairs.into_iter().collect()
    }
}
