//! Calls that are not compared.

use crate::call_row::CallRow;
use crate::status::Status;
use crate::tree::NESTED_MAX;

/// The number of calls that are not compared, by cause.
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
        let is_nested = call.end.status.counted() && call.depth >= NESTED_MAX;
        self.nested += u64::from(is_nested);
        self.compares_status(call.end.status) && !is_nested
    }

    /// Calls of this status are compared; one that is not is counted.
    pub fn compares_status(&mut self, status: Status) -> bool {
        match status {
            Status::OpenStart => self.open_start += 1,
            Status::OpenEnd => self.open_end += 1,
            Status::Cut => self.cut += 1,
            Status::Complete | Status::Unwound => return true,
        }
        false
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        self.open_start += other.open_start;
        self.open_end += other.open_end;
        self.cut += other.cut;
        self.nested += other.nested;
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.open_start + self.open_end + self.cut + self.nested
    }
}
