//! From functions to the few ranges that an IP filter may have.
//!
//! By priority: the functions, the ancestor, the functions' cold parts, the ancestor's. What is near to a
//! range that is there widens it instead of taking one of its own: the code in between is traced for nothing,
//! and ignored. The kernel compares files, so that code of which processes have several files (containers)
//! takes a range in each.
//!
//! The kernel looks for some ranges where their code never runs (`recorder::filter_mapping`). A cold part
//! with such a range is left out. A function with such a range can only be recorded without a filter: one
//! for other functions would hide it.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use image::FunctionMatch;
use model::{FileOffset, ObjectId};
use recorder::{IpRange, Misplaced, Proc};

use crate::exit::{Exit, failure};
use crate::live_code::LiveCode;
use crate::messages;

/// Less code between two ranges than this may be traced for nothing.
const NEAR_BYTES: u64 = 4096;

/// A stretch of code that is to be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TracedCode {
    object: ObjectId,
    start: u64,
    end: u64,
    /// For people: `f`, `f.cold`.
    name: String,
    /// Without it there is nothing to see.
    hot: bool,
}

impl TracedCode {
    fn range(&self) -> Range<FileOffset> {
        FileOffset(self.start)..FileOffset(self.end)
    }
}

/// What is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// Code in ranges.
    Ranges { ranges: Vec<IpRange>, left_out: Vec<CodeLeftOut> },
    /// All user code, because of a function that the kernel cannot filter for.
    Everything { function: String, why: Misplaced },
}

impl Chosen {
    /// What the user must know before trusting the result.
    pub(crate) fn warnings(&self) -> Vec<String> {
        match self {
            Self::Everything { function, why } => {
                vec![format!("-i: all user code is recorded: the kernel cannot filter for {function}: {why}")]
            }
            Self::Ranges { left_out, .. } => {
                let same_reason = left_out.chunk_by(|one, next| one.why == next.why);
                let warning = |parts: &[CodeLeftOut]| {
                    let names: Vec<String> = parts.iter().map(|left_out| left_out.part.clone()).collect();
                    let why = parts.first().map_or(Why::NoRange, |left_out| left_out.why);
                    format!(
                        "-i: not in the filter, so that a throw or a return from there is not seen: {}: {why}",
                        messages::list(&names)
                    )
                };
                same_reason.map(warning).collect()
            }
        }
    }
}

/// A part of a function that the filter does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeLeftOut {
    pub(crate) part: String,
    pub(crate) why: Why,
}

/// Why the filter does not have a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The processor has no more ranges.
    NoRange,
    /// The kernel would look for it elsewhere.
    Misplaced(Misplaced),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRange => f.write_str("the processor has no more ranges"),
            Self::Misplaced(misplaced) => misplaced.fmt(f),
        }
    }
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
    let all = parts(code, functions, ancestor);
    let copies = copies(code, &all, limit, proc)?;
    let is_found = |part: &TracedCode| code.range_is_found(part.object, &part.range(), proc);
    let (mut placed, mut left_out) = (Vec::new(), Vec::new());
    for part in all {
        match is_found(&part) {
            Ok(()) => placed.push(part),
            Err(why) if part.hot => return Ok(Chosen::Everything { function: part.name, why }),
            Err(why) => left_out.push(CodeLeftOut { part: part.name, why: Why::Misplaced(why) }),
        }
    }
    let (kept, no_range) = fit(placed, limit / copies);
    if let Some(part) = no_range.iter().find(|part| part.hot) {
        let message = format!(
            "-i: the processor has {limit} ranges, and there is none left for {}: name fewer functions, or record without -i",
            part.name
        );
        return Err(failure(Exit::Usage, message));
    }
    left_out.extend(no_range.into_iter().map(|part| CodeLeftOut { part: part.name, why: Why::NoRange }));
    let mut chosen = Vec::new();
    for part in &kept {
        // Parts that one range has together may lie in two mappings.
        if let Err(why) = is_found(part) {
            return Ok(Chosen::Everything { function: part.name.clone(), why });
        }
        chosen.extend(ranges(code, part, proc)?);
    }
    Ok(Chosen::Ranges { ranges: chosen, left_out })
}

/// How many ranges a part takes: one for each file that it is in, as processes of several containers have it.
///
/// # Errors
/// More than there are.
fn copies(code: &LiveCode, parts: &[TracedCode], limit: usize, proc: &Proc) -> Result<usize> {
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

fn parts(code: &LiveCode, functions: &[FunctionMatch], ancestor: Option<&FunctionMatch>) -> Vec<TracedCode> {
    let of = |function: &FunctionMatch| {
        let ranges = code.image.function_file_ranges(function.id).into_iter().enumerate();
        let part = |(number, (FileOffset(start), bytes)): (usize, (FileOffset, u64))| TracedCode {
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
    let (wanted, above): (Vec<TracedCode>, Vec<TracedCode>) =
        (functions.iter().flat_map(of).collect(), ancestor.into_iter().flat_map(of).collect());
    let pick =
        |parts: &[TracedCode], hot| parts.iter().filter(|part| part.hot == hot).cloned().collect::<Vec<_>>();
    [pick(&wanted, true), pick(&above, true), pick(&wanted, false), pick(&above, false)].concat()
}

/// The parts that fit, by priority, and those that do not.
fn fit(parts: Vec<TracedCode>, limit: usize) -> (Vec<TracedCode>, Vec<TracedCode>) {
    let (mut kept, mut left_out): (Vec<TracedCode>, Vec<TracedCode>) = (Vec::new(), Vec::new());
    for part in parts {
        let gap = |other: &TracedCode| {
            other.start.saturating_sub(part.end).max(part.start.saturating_sub(other.end))
        };
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

fn ranges(code: &LiveCode, part: &TracedCode, proc: &Proc) -> Result<Vec<IpRange>> {
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
fn files(code: &LiveCode, part: &TracedCode, proc: &Proc) -> Result<Vec<PathBuf>> {
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
             or not to be seen from here: run as root (or with CAP_CHECKPOINT_RESTORE, and \
             CAP_DAC_READ_SEARCH where it is another user's process), or record without -i",
            part.name
        );
        failure(Exit::NotPossible, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_code::laid_out::{self, LaidOut};
    use crate::target::{Wanted, with_code};

    fn part(object: u32, start: u64, name: &str, hot: bool) -> TracedCode {
        TracedCode { object: ObjectId(object), start, end: start + 0x100, name: name.to_owned(), hot }
    }

    fn fitted(parts: &[TracedCode], limit: usize) -> (Vec<(u64, u64)>, Vec<String>) {
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
    fn a_cold_part_that_the_kernel_does_not_find_is_left_out() {
        let laid = LaidOut::new(laid_out::CONSTANTS_FIRST);
        let inside = laid_out::functions(&laid.code, &["inside"]);
        let Chosen::Ranges { ranges, left_out } = choose(&laid.code, &inside, None, 2, &laid.proc).unwrap()
        else {
            panic!("inside has a range")
        };
        let starts: Vec<_> = ranges.iter().map(|range| range.start).collect();
        assert_eq!(starts, [FileOffset(0x2c30)]);
        let why = Why::Misplaced(Misplaced::Mapping(laid_out::PID));
        assert_eq!(left_out, [CodeLeftOut { part: "the cold part of inside".to_owned(), why }]);
    }

    #[test]
    fn for_a_function_that_the_kernel_does_not_find_all_is_traced() {
        let laid = LaidOut::new(laid_out::CONSTANTS_FIRST);
        let why = Misplaced::Mapping(laid_out::PID);
        let everything = |name: &str| Chosen::Everything { function: name.to_owned(), why };
        let chosen = |names: &[&str], ancestor: Option<&str>| {
            let ancestor = ancestor.map(|name| laid_out::function(&laid.code, name));
            let functions = laid_out::functions(&laid.code, names);
            choose(&laid.code, &functions, ancestor.as_ref(), 2, &laid.proc).unwrap()
        };
        assert_eq!(chosen(&["shared"], None), everything("shared"));
        assert_eq!(chosen(&["inside", "border"], None), everything("border"));
        assert_eq!(chosen(&["inside"], Some("shared")), everything("shared"));
        let code = laid.not_started();
        let shared = laid_out::functions(&code, &["shared"]);
        let started = choose(&code, &shared, None, 2, &laid.proc).unwrap();
        assert_eq!(started.warnings(), [] as [String; 0]);
        assert!(matches!(started, Chosen::Ranges { ranges, .. } if ranges[0].start == FileOffset(0x1c30)));
    }

    #[test]
    fn of_a_region_the_functions_are_those_of_its_places() {
        let mut laid = LaidOut::new(laid_out::CONSTANTS_FIRST);
        let names = ["inside", "border"];
        let functions = laid_out::functions(&laid.code, &names);
        let places = functions.iter().map(|function| vec![(function.object, function.entry)]);
        let [start, end] = <[_; 2]>::try_from(places.collect::<Vec<_>>()).unwrap();
        laid.code.image.add_region("from one to the other", start, end);
        let region = laid.code.image.regions().next().and_then(|id| laid.code.image.describe(id)).unwrap();
        let mut wanted = vec![Wanted { function: region }];
        let found = |wanted: &[Wanted]| -> Vec<String> {
            with_code(&laid.code.image, wanted).into_iter().map(|function| function.name).collect()
        };
        let mut all = found(&wanted);
        all.sort_unstable();
        assert_eq!(all, ["border", "inside"]);
        // A function that is asked for, too, is one of them.
        wanted.insert(0, Wanted { function: functions[0].clone() });
        assert_eq!(found(&wanted).len(), 2);
    }

    #[test]
    fn warnings_name_what_is_not_filtered_and_why() {
        let left_out = |part: &str, why| CodeLeftOut { part: part.to_owned(), why };
        let misplaced = Misplaced::Mapping(model::Pid(7));
        let chosen = Chosen::Ranges {
            ranges: Vec::new(),
            left_out: vec![
                left_out("the cold part of f", Why::NoRange),
                left_out("the cold part of g", Why::NoRange),
                left_out("the cold part of h", Why::Misplaced(misplaced)),
            ],
        };
        let [no_range, elsewhere] = &chosen.warnings()[..] else { panic!("{:?}", chosen.warnings()) };
        assert!(
            no_range.ends_with("the cold part of f, the cold part of g: the processor has no more ranges")
        );
        assert!(elsewhere.contains("the cold part of h: attaching to process 7"), "{elsewhere}");
        let everything = Chosen::Everything { function: "f".to_owned(), why: misplaced };
        let warning = &everything.warnings()[0];
        assert!(warning.starts_with(
            "-i: all user code is recorded: the kernel cannot filter for f: attaching to process 7"
        ));
        let none = Chosen::Ranges { ranges: Vec::new(), left_out: Vec::new() };
        assert_eq!(none.warnings(), [] as [String; 0]);
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
