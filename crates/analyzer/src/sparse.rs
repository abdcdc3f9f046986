//! A table by wanted function that has only those which were met: a report may ask for all functions of a
//! server, of which a thread, or a run of calls, meets a few.

use rustc_hash::FxHashMap;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// By number of the wanted function, in the order in which they were met.
#[derive(Clone, Debug)]
pub(crate) struct Sparse<T> {
    met: Vec<(u32, T)>,
    places: FxHashMap<u32, usize>,
    /// The place that was asked for last: calls that follow one another are mostly of one function.
    last: usize,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { met: Vec::new(), places: FxHashMap::default(), last: 0 }
    }
}

impl<T: Serialize> Serialize for Sparse<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.met.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Sparse<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let met: Vec<(u32, T)> = Vec::deserialize(deserializer)?;
        let places: FxHashMap<u32, usize> = met.iter().map(|(wanted, _)| *wanted).zip(0..).collect();
        if places.len() < met.len() {
            return Err(D::Error::custom("a function is there twice"));
        }
        Ok(Self { met, places, last: 0 })
    }
}

impl<T: Default> Sparse<T> {
    /// What is known of a function that was met.
    #[inline]
    pub(crate) fn get(&self, wanted: u32) -> Option<&T> {
        let is_last = |(known, _): &&(u32, T)| *known == wanted;
        let place = || self.places.get(&wanted).and_then(|&place| self.met.get(place));
        self.met.get(self.last).filter(is_last).or_else(place).map(|(_, of)| of)
    }

    /// What is known of a function that was met, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, wanted: u32) -> Option<&mut T> {
        if self.met.get(self.last).is_none_or(|(known, _)| *known != wanted) {
            self.last = *self.places.get(&wanted)?;
        }
        self.met.get_mut(self.last).map(|(_, of)| of)
    }

    /// Meets a function.
    #[inline]
    pub(crate) fn meet(&mut self, wanted: u32) -> Option<&mut T> {
        if self.met.get(self.last).is_none_or(|(known, _)| *known != wanted) {
            self.last = *self.places.entry(wanted).or_insert_with(|| {
                self.met.push((wanted, T::default()));
                self.met.len() - 1
            });
        }
        self.met.get_mut(self.last).map(|(_, of)| of)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.met.iter().map(|(wanted, of)| (*wanted, of))
    }

    pub(crate) fn into_met(self) -> Vec<(u32, T)> {
        self.met
    }

    /// What `of` makes of what is known of each function.
    pub(crate) fn map<U>(self, of: impl Fn(T) -> U) -> Sparse<U> {
        let Self { met, places, last } = self;
        Sparse { met: met.into_iter().map(|(wanted, known)| (wanted, of(known))).collect(), places, last }
    }

    /// What is known of the first `len` functions, met or not, in the order of their numbers.
    pub(crate) fn into_all(self, len: usize) -> impl Iterator<Item = T> {
        let mut met = self.met;
        met.sort_unstable_by_key(|(wanted, _)| *wanted);
        let mut met = met.into_iter().peekable();
        (0..len).map(move |number| {
            met.next_if(|(wanted, _)| *wanted as usize == number).map(|(_, of)| of).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_is_read_twice() {
        let read =
            |text| serde_json::from_str::<Sparse<u64>>(text).ok().and_then(|table| table.get(3).copied());
        assert_eq!((read("[[3,7],[5,8]]"), read("[[3,7],[3,8]]")), (Some(7), None));
    }

    #[test]
    fn only_what_was_met_is_there() {
        let mut table: Sparse<u64> = Sparse::default();
        for wanted in [70_000, 3, 3, 70_000, 5] {
            *table.meet(wanted).unwrap() += 1;
        }
        assert_eq!(
            table.iter().map(|(wanted, n)| (wanted, *n)).collect::<Vec<_>>(),
            [(70_000, 2), (3, 2), (5, 1)]
        );
        assert_eq!((table.get(3), table.get(4)), (Some(&2), None));
        assert_eq!(table.get_mut(4), None);
        table.get_mut(3).into_iter().for_each(|n| *n = 9);
        assert_eq!(table.into_all(6).collect::<Vec<_>>(), [0, 0, 0, 9, 0, 1]);
    }
}
