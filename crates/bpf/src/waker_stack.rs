//! What is told of who wakes a thread.

/// Which stack of who wakes a thread is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakerStack {
    /// That in the kernel, which tells interrupts from threads.
    #[default]
    Kernel,
    /// That of its own code, too, by frame pointers.
    User,
}
