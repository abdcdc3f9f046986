//! The trace of a recording where it was decoded before ([`crate::parts`]).

use anyhow::Result;
use decoder::{StoredOutputs, StoredSegment};

/// Outputs of all segments that are there.
pub(crate) trait StoredTrace: StoredOutputs {
    /// The segments that are there, in the order of their keys.
    fn segments(&self) -> Vec<StoredSegment>;

    /// Whether all outputs could be read that were asked for.
    ///
    /// # Errors
    /// One could not.
    fn check_read(&self) -> Result<()>;
}
