//! How much of what can be tested is.

/// How much is tested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What every change must pass.
    Quick,
    /// The long loops and the advisories, too.
    Full,
}
