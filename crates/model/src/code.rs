//! What the decoder and the analyzer ask of the traced program's code.  `image` answers.

use serde::{Deserialize, Serialize};
use std::ops::Range;

use crate::address::{Avma, FileOffset, Svma};
use crate::clock::Ns;
use crate::ids::Pid;

/// An address space for as long as its code does not change: two mappings of different code at one
/// address have different ids, and so has a process after `execve`.  Mapping more code does not change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpaceId(pub u32);

/// An object file (or kernel, or anonymous memory) that was mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId(pub u32);

/// A function of an object.  The same in every process that maps the object, and on every run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionId(pub u32);

impl FunctionId {
    /// Code that no object explains.
    pub const UNKNOWN: Self = Self(0);
}

/// What kind of code a function id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// A symbol.
    Symbol,
    /// Code between symbols: it has a made-up name and no known entry.
    Unnamed,
    /// A stub of the procedure linkage table: neither caller nor child.
    Plt,
    /// Code of the dynamic loader between its symbols: holds the lazy binder.
    Loader,
}

/// What stands at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAt {
    /// The function; a cold part (`f.cold`) belongs to its function.
    pub id: FunctionId,
    /// The address is the first of the function.
    pub at_entry: bool,
}

impl FunctionAt {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { id: FunctionId::UNKNOWN, at_entry: false };
}

/// Addresses that are all of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionStretch {
    /// The addresses.
    pub addresses: Range<Avma>,
    /// The function.
    pub id: FunctionId,
    /// Its first address, here or elsewhere; `None` if it is not known.
    pub entry: Option<Avma>,
}

impl FunctionStretch {
    /// Only one address.
    #[must_use]
    pub fn alone(ip: Avma, FunctionAt { id, at_entry }: FunctionAt) -> Self {
        Self { addresses: ip..ip.plus(1), id, entry: at_entry.then_some(ip) }
    }

    /// What stands at one of the addresses.
    #[inline]
    #[must_use]
    pub fn at(&self, ip: Avma) -> FunctionAt {
        FunctionAt { id: self.id, at_entry: self.entry == Some(ip) }
    }
}

/// An instruction of an object, by its linked address.
pub type Mark = (ObjectId, Svma);

/// What a pseudo-function stands for: it begins when control reaches one of `starts` and ends at one of
/// `ends`, in the frame in which it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub starts: Vec<Mark>,
    /// Where it ends.
    pub ends: Vec<Mark>,
    /// The functions that these places are in.
    pub functions: Vec<FunctionId>,
}

/// Why there are no code bytes at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCode {
    /// No mapping.
    Unmapped,
    /// Kernel address, and no kernel text was given.
    Kernel,
    /// The object's file is missing or has the wrong build id.
    MissingObject(ObjectId),
}

/// The code bytes of the traced processes.
///
/// `Sync`: decoding workers share it.  Answers never depend on earlier questions.
pub trait CodeSource: Sync {
    /// The address space of `pid` at `time`.
    fn space(&self, pid: Pid, time: Ns) -> SpaceId;

    /// Until when that is the same as at `time`, or until some time before.
    fn space_until(&self, _: Pid, time: Ns) -> Ns {
        time
    }

    /// The bytes from `ip` to the end of its mapping; never empty.
    ///
    /// # Errors
    /// [`NoCode`] where there are none.
    fn code(&self, space: SpaceId, ip: Avma) -> Result<&[u8], NoCode>;

    /// In some process there is a page in which the kernel runs instructions that uprobes have replaced
    /// (`[uprobes]`): of its code nothing is known but that.
    fn has_uprobes_pages(&self) -> bool {
        false
    }

    /// `ip` is in such a page.
    fn is_in_uprobes_page(&self, space: SpaceId, ip: Avma) -> bool {
        let _ = (space, ip);
        false
    }

    /// The object's code reaches that of others by indirect branches and returns only, as linkers make it. A
    /// compiler at run time may have written calls of any address.
    fn is_linked(&self, object: ObjectId) -> bool {
        let _ = object;
        true
    }

    /// The file that `ip` was mapped from, by the path that the recording has, and where in it.
    fn file_place(&self, space: SpaceId, ip: Avma) -> Option<(&str, FileOffset)> {
        let _ = (space, ip);
        None
    }
}

/// The functions of the traced processes.
pub trait FunctionLookup: Sync {
    /// The function at an address.
    fn function_at(&self, space: SpaceId, ip: Avma) -> FunctionAt;

    /// The function at an address, with addresses around it that are known to be of it, too.
    fn stretch_around(&self, space: SpaceId, ip: Avma) -> FunctionStretch {
        FunctionStretch::alone(ip, self.function_at(space, ip))
    }

    /// The object and linked address of an instruction: the same for every process and run.
    fn place(&self, space: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)>;

    /// What kind of code a function is.
    fn kind(&self, id: FunctionId) -> FunctionKind;

    /// The object that a function belongs to; `None` for [`FunctionId::UNKNOWN`].
    fn object(&self, id: FunctionId) -> Option<ObjectId>;

    /// Where an exception that passes through the call which returns to `ret` goes on; `None`: it passes the
    /// function that made the call, or no table says.
    fn pad_of_call(&self, _space: SpaceId, _ret: Avma) -> Option<Avma> {
        None
    }

    /// A landing pad begins at `ip`: no return leads there, and no indirect jump but the unwinder's.
    fn is_landing_pad(&self, _space: SpaceId, _ip: Avma) -> bool {
        false
    }

    /// The first instruction from `ip` on, in its mapping, at which a region begins or ends.
    fn next_mark(&self, _space: SpaceId, _ip: Avma) -> Option<Avma> {
        None
    }

    /// The region that a pseudo-function stands for; `None`: it is a function.
    fn region(&self, _id: FunctionId) -> Option<&Region> {
        None
    }

    /// The function is one of the kernel's.
    fn is_of_kernel(&self, _id: FunctionId) -> bool {
        false
    }

    /// The kernel's function at an address of its stacks; `None`: not known.
    fn kernel_function(&self, _address: Avma) -> Option<&str> {
        None
    }
}
