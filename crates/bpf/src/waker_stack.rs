//! Which stack of a waking thread is recorded.

/// The stack that is taken of a thread that wakes another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakerStack {
    /// Its stack in the kernel, which tells interrupts from threads.
    #[default]
    Kernel,
    /// The stack of its own code, too, by frame pointers.
    User,
}
