//! A function's lines or instructions, with what calls did at each.

pub mod json;
pub mod text;

use model::FunctionId;

use super::Names;
use crate::listing::instructions::Listing;
use crate::listing::lines::{Line, LineKey};
use crate::listing::source_text::SourceText;

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency.annotate/1";

/// A function's code with what calls did in it.
#[derive(Clone, Copy)]
pub struct View<'a> {
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

impl View<'_> {
    /// The text of a source line, if it is there.
    fn text_of(&self, line: &LineKey) -> Option<String> {
        self.source?.line(&line.file, line.line)
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
