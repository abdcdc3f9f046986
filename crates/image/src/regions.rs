//! Regions as pseudo-functions of the image: they have ids, names and an object, as functions have.

use model::{Avma, FunctionId, FunctionLookup, Mark, Region, SpaceId};

use crate::image::Image;

impl Image {
    /// Adds a pseudo-function: the code from any of `starts` to any of `ends`.
    pub fn add_region(&mut self, name: &str, starts: Vec<Mark>, ends: Vec<Mark>) {
        let of = |(object, svma): &Mark| self.function_at_place(*object, *svma).id;
        let mut functions: Vec<FunctionId> = starts.iter().chain(&ends).map(of).collect();
        functions.sort_unstable();
        functions.dedup();
        self.regions.add(name, Region { starts, ends, functions });
    }

    /// The regions that were added, in their order.
    pub fn regions(&self) -> impl Iterator<Item = FunctionId> + use<> {
        let first = self.first_region();
        (first..first.saturating_add(self.regions.len())).map(FunctionId)
    }

    /// The id after those of all functions.
    fn first_region(&self) -> u32 {
        self.bases.last().copied().unwrap_or(u32::MAX)
    }

    /// The region that has this id, and its name.
    pub(crate) fn named_region(&self, id: FunctionId) -> Option<(&str, &Region)> {
        self.regions.get(id.0.checked_sub(self.first_region())?)
    }

    /// Where a region begins.
    pub(crate) fn region_start(&self, id: FunctionId) -> Option<Mark> {
        self.named_region(id)?.1.starts.first().copied()
    }

    /// The first instruction from `ip` on, in its mapping, at which a region begins or ends.
    pub(crate) fn mark_from(&self, space: SpaceId, ip: Avma) -> Option<Avma> {
        if self.regions.is_empty() {
            return None;
        }
        let end = self.spaces.mapping(space, ip)?.end;
        let (object, svma) = self.place(space, ip)?;
        let mark = self.regions.mark_from(object, svma)?;
        Some(ip.plus(mark.0.wrapping_sub(svma.0))).filter(|mark| *mark < end)
    }
}
