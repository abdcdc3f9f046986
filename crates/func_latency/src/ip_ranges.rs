//! From functions to the few ranges that an IP filter may have.
//!
//! By priority: the functions, the ancestor, the functions' cold parts, the ancestor's.  What is near to a range that is there
//! widens it instead of taking one of its own: the code in between is traced for nothing, and ignored.

use anyhow::Result;
use image::FunctionMatch;
use model::{FileOffset, ObjectId};
use recorder::{IpRange, Proc};

use crate::exit::{Exit, failure};
use crate::live_code::LiveCode;

/// Less code between two ranges than this may be traced for nothing.
const NEAR_BYTES: u64 = 4096;

/// A stretch of code that is to be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    object: ObjectId,
    start: u64,
    end: u64,
    /// For people: `f`, `f.cold`.
    name: String,
    /// Without it there is nothing to see.
    hot: bool,
}

/// The ranges, and what did not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) ranges: Vec<IpRange>,
    pub(crate) left_out: Vec<String>,
}

/// Chooses at most `limit` ranges.
///
/// # Errors
/// The functions need more, the processor has none, or the file of a function cannot be named to the kernel.
pub(crate) fn choose(
    code: &LiveCode,
    functions: &[FunctionMatch],
    ancestor: Option<&FunctionMatch>,
    limit: usize,
    proc: &Proc,
) -> Result<Chosen> {
    if limit == 0 {
        let message =
            "-i: this processor's trace unit has no IP filters (nr_addr_filters is 0): record without -i";
        return Err(failure(Exit::NotPossible, message));
    }
    let (kept, left_out) = fit(parts(code, functions, ancestor), limit);
    if let Some(part) = left_out.iter().find(|part| part.hot) {
        let message = format!(
            "-i: the processor has {limit} ranges, and there is none left for {}: name fewer functions, or record without -i",
            part.name
        );
        return Err(failure(Exit::Usage, message));
    }
    let ranges = kept.iter().map(|part| range(code, part, proc)).collect::<Result<_>>()?;
    Ok(Chosen { ranges, left_out: left_out.into_iter().map(|part| part.name).collect() })
}

fn parts(code: &LiveCode, functions: &[FunctionMatch], ancestor: Option<&FunctionMatch>) -> Vec<Part> {
    let of = |function: &FunctionMatch| {
        let ranges = code.image.function_file_ranges(function.id).into_iter().enumerate();
        let part = |(number, (FileOffset(start), bytes)): (usize, (FileOffset, u64))| Part {
            object: function.object,
            start,
            end: start.saturating_add(bytes),
            name: if number == 0 {
                function.name.clone()
            } else {
                format!("the cold part of {}", function.name)
            },
            hot: number == 0,
        };
        ranges.map(part).collect::<Vec<_>>()
    };
    let (wanted, above): (Vec<Part>, Vec<Part>) =
        (functions.iter().flat_map(of).collect(), ancestor.into_iter().flat_map(of).collect());
    let pick = |parts: &[Part], hot| parts.iter().filter(|part| part.hot == hot).cloned().collect::<Vec<_>>();
    [pick(&wanted, true), pick(&above, true), pick(&wanted, false), pick(&above, false)].concat()
}

/// The parts that fit, by priority, and those that do not.
fn fit(parts: Vec<Part>, limit: usize) -> (Vec<Part>, Vec<Part>) {
    let (mut kept, mut left_out): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    for part in parts {
        let gap =
            |other: &Part| other.start.saturating_sub(part.end).max(part.start.saturating_sub(other.end));
        let full = kept.len() == limit;
        let within = if full { NEAR_BYTES } else { 0 };
        let near = kept.iter_mut().find(|other| other.object == part.object && gap(other) <= within);
        match near {
            Some(other) => {
                other.start = other.start.min(part.start);
                other.end = other.end.max(part.end);
            }
            None if full => left_out.push(part),
            None => kept.push(part),
        }
    }
    (kept, left_out)
}

fn range(code: &LiveCode, part: &Part, proc: &Proc) -> Result<IpRange> {
    let start = FileOffset(part.start);
    let mapped_as = code.image.object_name(part.object).to_owned();
    let Some(file) = code.filter_file(part.object, start, proc) else {
        let message = format!(
            "-i: the kernel finds the code of {} by its file, and the file that is mapped as {mapped_as} is no longer there, \
             or not to be seen from here: run as root (or with CAP_CHECKPOINT_RESTORE), or record without -i",
            part.name
        );
        return Err(failure(Exit::NotPossible, message));
    };
    Ok(IpRange { mapped_as, file, start, bytes: part.end - part.start })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(object: u32, start: u64, name: &str, hot: bool) -> Part {
        Part { object: ObjectId(object), start, end: start + 0x100, name: name.to_owned(), hot }
    }

    fn fitted(parts: &[Part], limit: usize) -> (Vec<(u64, u64)>, Vec<String>) {
        let (kept, left_out) = fit(parts.to_vec(), limit);
        let ranges = kept.iter().map(|part| (part.start, part.end)).collect();
        (ranges, left_out.into_iter().map(|part| part.name).collect())
    }

    #[test]
    fn what_comes_first_has_a_range() {
        let parts = [
            part(0, 0x10000, "f", true),
            part(0, 0x50000, "ancestor", true),
            part(0, 0x90000, "cold f", false),
        ];
        let first_two = vec![(0x10000, 0x10100), (0x50000, 0x50100)];
        assert_eq!(fitted(&parts, 2), (first_two, vec!["cold f".to_owned()]));
        assert_eq!(fitted(&parts, 3).1, [] as [String; 0]);
    }

    #[test]
    fn what_is_near_widens_a_range_if_there_is_none_left() {
        let parts = [part(0, 0x10000, "f", true), part(0, 0x10800, "cold", false)];
        assert_eq!(fitted(&parts, 1), (vec![(0x10000, 0x10900)], vec![]));
        assert_eq!(fitted(&parts, 2).0, [(0x10000, 0x10100), (0x10800, 0x10900)]);
        // In another file it is not near.
        let parts = [part(0, 0x10000, "f", true), part(1, 0x10800, "cold", false)];
        assert_eq!(fitted(&parts, 1).1, ["cold"]);
        // What touches is one, and it may stand in front.
        let parts = [part(0, 0x10100, "f", true), part(0, 0x10000, "before", false)];
        assert_eq!(fitted(&parts, 2).0, [(0x10000, 0x10200)]);
    }
}
