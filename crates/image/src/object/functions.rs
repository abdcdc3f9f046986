//! The functions of one object: every address of its code belongs to one of them.
//!
//! ```text
//! symbols      f [.......)   g [...........)      f.cold [..)
//!                              h  [..)
//! unwind tables                                [..)
//! pieces       f          -  g h    g         -u  -f
//!
//! u, -: without a name; -: a gap, without an entry, too
//! ```

use model::FunctionKind;

/// A stretch of linked addresses that belongs to one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The function's index.
    pub(crate) owner: u32,
    /// Its entry, which need not be here.
    pub(crate) entry: Option<u64>,
}

/// No function: outside of all code.
pub(crate) const NONE: u32 = u32::MAX;

/// One function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Linked address of the first byte.
    pub(crate) entry: u64,
    /// Bytes, without the cold part.
    pub(crate) size: u64,
    /// First of its names in [`Functions::names`]; they end where the next function's begin.
    pub(crate) first_name: u32,
    /// What it is.
    pub(crate) kind: FunctionKind,
    /// It is known to be entered at `entry`.
    pub(crate) has_entry: bool,
}

/// The functions of one object, by entry.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    pub(crate) list: Vec<Function>,
    /// Offsets in the string table, the best name of each function first.
    pub(crate) names: Vec<u32>,
    /// First addresses of the pieces, ascending, and the function that each belongs to.
    pub(crate) starts: Vec<u64>,
    pub(crate) owners: Vec<u32>,
    /// Names of the PLT stubs, by function.
    pub(crate) stub_names: Vec<(u32, String)>,
    /// Functions that choose the function of their name (`STT_GNU_IFUNC`), ascending.
    pub(crate) resolvers: Vec<u32>,
}

impl Functions {
    /// The function of an address, and whether it is its entry.
    pub(crate) fn at(&self, svma: u64) -> Option<(u32, bool)> {
        self.piece(svma).map(|piece| (piece.owner, piece.entry == Some(svma)))
    }

    /// The piece that an address is in, if it is a function's.
    pub(crate) fn piece(&self, svma: u64) -> Option<Piece> {
        let after = self.starts.partition_point(|start| *start <= svma);
        let piece = after.checked_sub(1)?;
        let (start, owner) = (*self.starts.get(piece)?, *self.owners.get(piece)?);
        let function = self.get(owner)?;
        let end = self.starts.get(after).copied().unwrap_or(u64::MAX);
        Some(Piece { start, end, owner, entry: function.has_entry.then_some(function.entry) })
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Function> {
        self.list.get(index as usize)
    }

    /// Offsets of a function's names in the string table, the best first.
    pub(crate) fn names_of(&self, index: u32) -> &[u32] {
        let Some(function) = self.get(index) else { return &[] };
        let next = index.checked_add(1).and_then(|next| self.get(next));
        let end = next.map_or(self.names.len(), |f| f.first_name as usize);
        self.names.get(function.first_name as usize..end).unwrap_or_default()
    }

    /// The function with the name of this number in [`Self::names`].
    pub(crate) fn of_name(&self, number: u32) -> Option<u32> {
        let next = self.list.partition_point(|function| function.first_name <= number);
        u32::try_from(next.checked_sub(1)?).ok()
    }

    pub(crate) fn stub_name(&self, index: u32) -> Option<&str> {
        let at = self.stub_names.binary_search_by_key(&index, |(function, _)| *function).ok()?;
        self.stub_names.get(at).map(|(_, name)| name.as_str())
    }

    /// The stretches of linked addresses that belong to a function: start and length.
    pub(crate) fn parts(&self, index: u32) -> Vec<(u64, u64)> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let ends = self.starts.iter().skip(1).copied().chain([u64::MAX]);
        for ((start, owner), end) in self.starts.iter().zip(&self.owners).zip(ends) {
            if *owner != index {
                continue;
            }
            match parts.last_mut() {
                Some((first, len)) if first.saturating_add(*len) == *start => *len += end - start,
                _ => parts.push((*start, end - start)),
            }
        }
        parts
    }
}
