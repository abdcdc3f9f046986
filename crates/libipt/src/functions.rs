//! Which functions addresses belong to.

use std::cell::RefCell;

use model::{Avma, FunctionLookup, SpaceId, Target};

/// The number of answers that are kept: about that of a segment's branches.
const KEPT: usize = 1 << 10;

/// Answers of a [`FunctionLookup`], and the last ones again.
pub(crate) struct Functions<'a> {
    lookup: &'a dyn FunctionLookup,
    kept: RefCell<Vec<Option<(SpaceId, Target)>>>,
}

impl<'a> Functions<'a> {
    pub(crate) fn new(lookup: &'a dyn FunctionLookup) -> Self {
        Self { lookup, kept: RefCell::new(vec![None; KEPT]) }
    }

    /// A place in an address space.
    pub(crate) fn target(&self, space: SpaceId, ip: Avma) -> Target {
        let mut kept = self.kept.borrow_mut();
        let slot = usize::try_from(ip.0 % KEPT as u64).ok().and_then(|index| kept.get_mut(index));
        if let Some(Some((of, target))) = slot.as_deref()
            && (*of, target.ip) == (space, ip)
        {
            return *target;
        }
        let function = self.lookup.function_at(space, ip);
        let target = Target { ip, function: function.id, at_entry: function.at_entry };
        if let Some(slot) = slot {
            *slot = Some((space, target));
        }
        target
    }
}
