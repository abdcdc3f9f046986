//! Calls that are not compared.

use crate::call_row::CallRow;
use crate::status::Status;
use crate::tree::NESTED_MAX;

/// Calls that are not compared, by what is the matter with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Their entry was not seen.
    pub open_start: u64,
    /// They had not ended.
    pub open_end: u64,
    /// Something inside of them was lost.
    pub cut: u64,
    /// They are inside of [`NESTED_MAX`] others of their function.
    pub nested: u64,
}

impl LeftOut {
    /// The call is compared; one that is not is counted.
    pub(crate) fn compares(&mut self, call: &CallRow) -> bool {
        let reason = match call.status {
            Status::OpenStart => &mut self.open_start,
            Status::OpenEnd => &mut self.open_end,
            Status::Cut => &mut self.cut,
            Status::Complete | Status::Unwound if call.depth >= NESTED_MAX => &mut self.nested,
            Status::Complete | Status::Unwound => return true,
        };
        *reason += 1;
        false
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.open_start + self.open_end + self.cut + self.nested
    }
}
