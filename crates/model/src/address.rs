//! Addresses.  Three spaces name the same instruction: the traced process (`Avma`), the object as it was
//! linked (`Svma`), and the object's file (`FileOffset`).  Only `image` converts between them.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl $name {
            /// This address plus `bytes`, wrapping as the hardware does.
            #[inline]
            #[must_use]
            pub const fn plus(self, bytes: u64) -> Self {
                Self(self.0.wrapping_add(bytes))
            }

            /// Bytes from `start` to here, wrapping.
            #[inline]
            #[must_use]
            pub const fn minus(self, start: Self) -> u64 {
                self.0.wrapping_sub(start.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

address! {
    /// Actual virtual memory address: where the traced process had the byte.
    Avma
}
address! {
    /// Stated virtual memory address: where the object file says the byte goes (ELF `p_vaddr`, `st_value`).
    Svma
}
address! {
    /// Offset in an object file.
    FileOffset
}
address! {
    /// Offset in one AUX buffer's stream, from the start of the recording.
    AuxOffset
}

impl Avma {
    /// Where the kernel's half of the address space begins.
    pub const KERNEL_HALF: Self = Self(1 << 63);

    /// True for the kernel's half of the address space.
    #[inline]
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.0 >= Self::KERNEL_HALF.0
    }
}
