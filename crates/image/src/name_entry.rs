//! A name of a function, as an image keeps it: what it needs of the image is in `name_index`.

use std::sync::OnceLock;

use model::{FunctionId, ObjectId};

/// One name of one function.
pub(crate) struct NameEntry {
    pub(crate) id: FunctionId,
    pub(crate) object: ObjectId,
    /// Offset in the object's string table.
    pub(crate) symbol: u32,
    /// Without parameter types, once it is asked for; `None` if the symbol is not mangled.
    pub(crate) demangled: OnceLock<Option<Box<str>>>,
}
