//! Parts of one recording: which one is analysed, and what parts there are.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use decoder::Share;

use super::headings::FILES;
use super::{AFTER_HELP, Format, InputArgs, form};
use crate::render::plan;

/// More parts than machines: what a part costs besides its share of the trace would be most of it.
pub(crate) const PARTS_MAX: u32 = 1 << 16;

/// Which part of the recording.
#[derive(Clone, Debug, Default, Args)]
pub struct PartArgs {
    /// Decode part K of N of the trace only, for `func_latency merge`, and print no report; see
    /// docs/parts.md
    #[arg(long, value_name = "K/N", requires = "part_out")]
    #[arg(help_heading = FILES)]
    pub part: Option<PartNumber>,
    /// Where what --part has decoded is written
    #[arg(long, value_name = "FILE", requires = "part")]
    #[arg(help_heading = FILES)]
    pub part_out: Option<PathBuf>,
}

/// `3/64`: a part, from 1, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartNumber(pub Share);

impl FromStr for PartNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse::<u32>().ok();
        let numbers = text.split_once('/').and_then(|(k, n)| Some((number(k)?, number(n)?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) && of <= PARTS_MAX => {
                Ok(Self(Share { number, of }))
            }
            _ => Err(format!(
                "`{text}` is no part: K/N with K from 1 to N, and N up to {PARTS_MAX} (example: 3/64)"
            )),
        }
    }
}

/// `func_latency plan`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct PlanArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Parts that are wanted; there are fewer where smaller ones would cost more than they save
    #[arg(short = 'n', long = "parts", value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTS_MAX)))]
    pub parts: u32,
    /// Form of the plan.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("plan", plan::SCHEMA))]
    pub format: Format,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_one_of_those_that_there_are() {
        let of =
            |text: &str| text.parse::<PartNumber>().ok().map(|PartNumber(share)| (share.number, share.of));
        assert_eq!((of("1/1"), of("3/64")), (Some((1, 1)), Some((3, 64))));
        for wrong in ["", "3", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "1/65537"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
