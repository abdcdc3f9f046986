//! A function's lines or instructions, with what calls did at each.

pub mod json;
pub(crate) mod rows;
pub mod text;

use model::FunctionId;

use super::Names;
use super::units::{counted, percent, share};
use crate::listing::instructions::Listing;
use crate::listing::lines::{Line, LineKey};
use crate::listing::source_text::SourceText;

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency.annotate/1";

/// A function's code with what calls did in it.
#[derive(Clone, Copy)]
pub struct AnnotateView<'a> {
    /// What ids are called.
    pub names: &'a dyn Names,
    /// The recording's file, as it was named.
    pub input: &'a str,
    /// Which function.
    pub function: FunctionId,
    /// What its calls did at each instruction.
    pub listing: &'a Listing,
    /// What they did on each line; `None`: the object says no lines, or instructions are asked for.
    pub lines: Option<&'a [Line]>,
    /// Where the text of lines is.
    pub source: Option<&'a SourceText>,
    /// The groups of calls.
    pub groups: Groups<'a>,
}

/// Which calls are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups<'a> {
    /// All.
    All,
    /// The slow ones, which are those, and typical ones.
    SlowAndTypical(&'a str),
}

impl AnnotateView<'_> {
    /// The text of a source line, if it is there.
    fn text_of(&self, line: &LineKey) -> Option<String> {
        self.source?.line(&line.file, line.line)
    }

    /// What the rows are: `line` or `instruction`.
    pub(crate) const fn row_kind(&self) -> &'static str {
        if self.lines.is_some() { "line" } else { "instruction" }
    }

    /// `3 lines not executed`.
    pub(crate) fn left_out(&self, rows: u64) -> String {
        let is_unseen = self.listing.groups.iter().any(|whole| whole.elsewhere_ns > 0);
        let not = if is_unseen { "not seen" } else { "not executed" };
        format!("{} {not}", counted(rows, self.row_kind()))
    }

    /// How exact the figures are, in words.
    pub(crate) fn exactness(&self) -> String {
        let spent: Vec<_> = match self.lines {
            Some(lines) => lines.iter().flat_map(|line| &line.spent).collect(),
            None => self.listing.instructions.iter().flat_map(|one| &one.spent).collect(),
        };
        let sum = |times: &mut dyn Iterator<Item = u64>| times.fold(0, u64::saturating_add);
        let estimated_ns = sum(&mut spent.iter().map(|spent| spent.estimated_ns));
        let own_ns = sum(&mut self.listing.groups.iter().map(|whole| whole.own_ns));
        format!(
            "Executions are exact. Of straight code between two branches only the time as a whole is known: \
             {}s in it have an even share by instructions. {} % of self is such a share, an estimate.",
            self.row_kind(),
            percent(share(estimated_ns, own_ns)),
        )
    }
}

impl Groups<'_> {
    /// Their names.
    #[must_use]
    pub const fn names(&self) -> &'static [&'static str] {
        match self {
            Self::All => &["all"],
            Self::SlowAndTypical(_) => &["slow", "typical"],
        }
    }
}
