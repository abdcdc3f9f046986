//! Pieces: what compilers split off a function or copy of it, as functions of their own.
//!
//! `f.part.0`, `f.isra.0`, `f.constprop.0`, and the `f.cold.1` of LLVM's outliner are called, so their calls
//! are not calls of `f`. A user that asks for `f` should know of them.

use std::collections::BTreeSet;

use model::FunctionId;

use crate::image::Image;
use crate::names::find::{FunctionMatch, MatchedBy};
use crate::names::name_index::entries_of;

impl Image {
    /// The pieces of a function that have entries of their own, by address; not its cold part, which belongs
    /// to it.
    #[must_use]
    pub fn pieces(&self, function: &FunctionMatch) -> Vec<FunctionMatch> {
        let mut pieces: BTreeSet<FunctionId> = BTreeSet::new();
        for symbol in &function.symbols {
            let is_piece = |name: &str| {
                name.strip_prefix(symbol.as_str()).is_some_and(|rest| rest.starts_with('.') && rest.len() > 1)
            };
            // What is no text is not the same in the file.
            let word = symbol.is_ascii().then_some(symbol.as_str());
            let entries = entries_of(self, function.object, word);
            let others = entries.iter().filter(|e| e.id != function.id);
            pieces.extend(others.filter(|e| is_piece(&e.symbol(self))).map(|e| e.id));
        }
        pieces.into_iter().filter_map(|id| self.function_match(id, MatchedBy::Prefix)).collect()
    }
}
