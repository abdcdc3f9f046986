//! From functions to the few ranges that an IP filter may have.
//!
//! By priority: the functions, the ancestor, the functions' cold parts, the ancestor's.  What is near to a range that is there
//! widens it instead of taking one of its own: the code in between is traced for nothing, and ignored.  The kernel compares files, so
//! that code of which processes have several files (containers) takes a range in each.

use std::path::PathBuf;

use anyhow::Result;
use image::FunctionMatch;
use model::{FileOffset, ObjectId};
use recorder::{IpRange, Proc};

use crate::exit::{Exit, failure};
use crate::live_code::LiveCode;
use crate::messages;
use crate::target::Wanted;

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
    functions: &[Wanted],
    ancestor: Option<&FunctionMatch>,
    limit: usize,
    proc: &Proc,
) -> Result<Chosen> {
    if limit == 0 {
        let message =
            "-i: this processor's trace unit has no IP filters (nr_addr_filters is 0): record without -i";
        return Err(failure(Exit::NotPossible, message));
    }
    let parts = parts(code, functions, ancestor);
    let files = copies(code, &parts, limit, proc)?;
    let (kept, left_out) = fit(parts, limit / files);
    if let Some(part) = left_out.iter().find(|part| part.hot) {
        let message = format!(
            "-i: the processor has {limit} ranges, and there is none left for {}: name fewer functions, or record without -i",
            part.name
        );
        return Err(failure(Exit::Usage, message));
    }
    let mut chosen = Vec::new();
    for part in &kept {
        chosen.extend(ranges(code, part, proc)?);
    }
    Ok(Chosen { ranges: chosen, left_out: left_out.into_iter().map(|part| part.name).collect() })
}

/// How many ranges a part takes: one for each file that it is in, as processes of several containers have it.
///
/// # Errors
/// More than there are.
fn copies(code: &LiveCode, parts: &[Part], limit: usize, proc: &Proc) -> Result<usize> {
    let mut most = 1;
    for part in parts.iter().filter(|part| part.hot) {
        let files = files(code, part, proc)?;
        if files.len() > limit {
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            let message = format!(
                "-i: the processor has {limit} ranges, and {} is in {} files: {}: name fewer processes, or record without -i",
                part.name,
                files.len(),
                messages::list(&files)
            );
            return Err(failure(Exit::Usage, message));
        }
        most = most.max(files.len());
    }
    Ok(most)
}

fn parts(code: &LiveCode, functions: &[Wanted], ancestor: Option<&FunctionMatch>) -> Vec<Part> {
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
    let (wanted, above): (Vec<Part>, Vec<Part>) = (
        functions.iter().map(|wanted| &wanted.function).flat_map(of).collect(),
        ancestor.into_iter().flat_map(of).collect(),
    );
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

fn ranges(code: &LiveCode, part: &Part, proc: &Proc) -> Result<Vec<IpRange>> {
    let mapped_as = code.image.object_name(part.object).to_owned();
    let range = |file| IpRange {
        mapped_as: mapped_as.clone(),
        file,
        start: FileOffset(part.start),
        bytes: part.end - part.start,
    };
    Ok(files(code, part, proc)?.into_iter().map(range).collect())
}

/// The files that a part is in.
fn files(code: &LiveCode, part: &Part, proc: &Proc) -> Result<Vec<PathBuf>> {
    let start = FileOffset(part.start);
    let mapped_as = code.image.object_name(part.object).to_owned();
    if mapped_as.contains([' ', '\t', '\n', ',']) {
        let message = format!(
            "-i: {mapped_as} has a space or a comma in its name, and no recording can name such a file in its filter: \
             record without -i"
        );
        return Err(failure(Exit::NotPossible, message));
    }
    if let [first, second, ..] = code.strangers(part.object, start)[..] {
        let message = format!(
            "-i: what process {} has mapped as {mapped_as} is another file than that of process {}, and a recording names a file \
             in its filter by its name only: record one process at a time, or without -i",
            first.0, second.0
        );
        return Err(failure(Exit::Usage, message));
    }
    code.filter_files(part.object, start, proc).ok_or_else(|| {
        let message = format!(
            "-i: the kernel finds the code of {} by its file, and the file that is mapped as {mapped_as} is no longer there, \
             not to be seen from here, or has no code just before it: run as root (or with CAP_CHECKPOINT_RESTORE, and \
             CAP_DAC_READ_SEARCH where it is another user's process), or record without -i",
            part.name
        );
        failure(Exit::NotPossible, message)
    })
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
