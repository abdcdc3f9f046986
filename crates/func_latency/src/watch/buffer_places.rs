//! The places of buffers in a recording that grows: each has its own for as long as its thread is known.

use std::collections::BTreeMap;

use model::{AuxBuffer, AuxOwner};

/// The buffers that are known.
#[derive(Default)]
pub(super) struct BufferPlaces {
    /// The owner of each place, with perf's number; of a free one, the last that had it.
    places: Vec<(AuxOwner, u32)>,
    known: BTreeMap<AuxOwner, usize>,
    free: Vec<usize>,
}

impl BufferPlaces {
    /// A buffer that may not be known yet.
    pub(super) fn meet(&mut self, owner: AuxOwner, index: u32) {
        let Self { places, known, free } = self;
        known.entry(owner).or_insert_with(|| {
            let place = free.pop().unwrap_or(places.len());
            match places.get_mut(place) {
                Some(of_dead) => *of_dead = (owner, index),
                None => places.push((owner, index)),
            }
            place
        });
    }

    /// No more of this buffer will come: its place is free for another one.
    pub(super) fn forget(&mut self, owner: AuxOwner) {
        self.free.extend(self.known.remove(&owner));
    }

    /// A buffer for each place, without trace.
    pub(super) fn empty_buffers<'a>(&self) -> impl Iterator<Item = AuxBuffer<'a>> + use<'a, '_> {
        let empty =
            |&(owner, index): &(AuxOwner, u32)| AuxBuffer { index, owner, pieces: vec![], records: vec![] };
        self.places.iter().map(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Tid;

    #[test]
    fn the_place_of_a_buffer_that_is_forgotten_is_that_of_the_next_one() {
        let of = |tid| AuxOwner::Thread(Tid(tid));
        let mut places = BufferPlaces::default();
        (1..=3).for_each(|tid| places.meet(of(tid), tid as u32));
        places.forget(of(2));
        places.forget(of(2));
        places.meet(of(3), 9);
        for tid in [4, 5] {
            places.meet(of(tid), tid as u32);
        }
        let owners: Vec<_> = places.empty_buffers().map(|buffer| (buffer.owner, buffer.index)).collect();
        assert_eq!(owners, [1, 4, 3, 5].map(|tid| (of(tid), tid as u32)));
    }
}
