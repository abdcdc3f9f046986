//! What a slot keeps until its time is asked for.

/// What had passed at a flow packet: small, for each has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// [`Span::most`](super::span::Span::most) since the anchor before it, less that of its run.
    pub(super) most: u32,
    /// Instructions, wrapping, when what it stands for happened: its packet was followed to there.
    pub(super) work: u32,
}
