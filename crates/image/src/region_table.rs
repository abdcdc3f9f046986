//! The regions of an image, and where they begin and end.

use model::{Mark, ObjectId, Region, Svma};

/// The regions that were added, with ids after those of all functions.
#[derive(Default)]
pub(crate) struct Regions {
    named: Vec<(String, Region)>,
    /// Where they begin and end, in order.
    marks: Vec<Mark>,
}

impl Regions {
    /// Number `index` of them, and its name.
    pub(crate) fn get(&self, index: u32) -> Option<(&str, &Region)> {
        self.named.get(index as usize).map(|(name, region)| (&**name, region))
    }

    /// No region begins or ends anywhere.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.named.len()).unwrap_or(u32::MAX)
    }

    /// The first mark of an object from `svma` on.
    pub(crate) fn mark_from(&self, object: ObjectId, svma: Svma) -> Option<Svma> {
        let at = self.marks.partition_point(|mark| *mark < (object, svma));
        self.marks.get(at).filter(|(of, _)| *of == object).map(|(_, svma)| *svma)
    }

    pub(crate) fn add(&mut self, name: &str, region: Region) {
        self.marks.extend(region.starts.iter().chain(&region.ends));
        self.marks.sort_unstable();
        self.marks.dedup();
        self.named.push((name.to_owned(), region));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_mark_is_one_of_the_same_object() {
        let mut regions = Regions::default();
        let mark = |object, svma| (ObjectId(object), Svma(svma));
        let of = |starts: &[Mark], ends: &[Mark]| Region {
            starts: starts.to_vec(),
            ends: ends.to_vec(),
            functions: vec![],
        };
        regions.add("a", of(&[mark(2, 0x30)], &[mark(1, 0x20), mark(1, 0x10)]));
        regions.add("b", of(&[mark(1, 0x20)], &[mark(1, 0x20)]));
        let from = |svma| regions.mark_from(ObjectId(1), Svma(svma)).map(|mark| mark.0);
        assert_eq!(
            [0, 0x10, 0x11, 0x20, 0x21].map(from),
            [Some(0x10), Some(0x10), Some(0x20), Some(0x20), None]
        );
        assert_eq!((regions.len(), regions.get(1).map(|(name, _)| name)), (2, Some("b")));
    }
}
