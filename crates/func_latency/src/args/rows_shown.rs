//! Options that say which rows of a table are printed.

use clap::Args;

use super::headings::REPORT;
use crate::filter::Percent;
use crate::render::row_limit::RowLimit;

/// Which rows of the tables of a text are printed. JSON has all of them.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct RowsArgs {
    /// Rows of each table of the text, longest first; JSON has all [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = REPORT)]
    pub top: Option<u32>,
    /// Leave out rows of the text's tables that have less than this share of the table's time
    #[arg(long, value_name = "PCT", help_heading = REPORT)]
    pub min_share: Option<Percent>,
    /// All rows of all tables
    #[arg(long, conflicts_with_all = ["top", "min_share"], help_heading = REPORT)]
    pub all: bool,
}

impl RowsArgs {
    /// What they come to.
    #[must_use]
    pub fn limit(&self) -> RowLimit {
        if self.all {
            return RowLimit::ALL;
        }
        let default = RowLimit::default();
        // Who names a share wants all rows that have it.
        let by_default = if self.min_share.is_some() { None } else { default.top };
        RowLimit {
            top: self.top.map(|top| top as usize).or(by_default),
            min_share_percent: self.min_share.map_or(default.min_share_percent, |share| share.0),
        }
    }
}
