//! `merge` of parts: the report of the whole recording, or a file of several parts.

use std::path::Path;

use anyhow::Result;

use super::file::{PartFile, is_of_parts};
use super::make;
use super::set::PartSet;
use crate::args::{InputArgs, MergeArgs, PartArgs, QueryArgs, ReportArgs};
use crate::bundle_dir;
use crate::config::ReportConfig;
use crate::exit::{Exit, failure};
use crate::output::{self, OutputAsked};
use crate::report_command;

/// Whether the files are parts.
///
/// # Errors
/// Some are and some are not, or an option is for the others.
pub(crate) fn are_parts(args: &MergeArgs) -> Result<bool> {
    let (parts, others): (Vec<_>, Vec<_>) = args.files.iter().partition(|path| is_of_parts(path));
    if let (Some(part), Some(other)) = (parts.first(), others.first()) {
        // One that is not there, or has nothing, was meant to be a part: that says why it is none.
        if !std::fs::metadata(other).is_ok_and(|other| other.len() > 0) {
            PartFile::open(other)?;
        }
        let message = format!(
            "{} is a part of a recording, and {} is none: merge the parts of a recording alone, with --summary \
             FILE, and that summary with the others",
            part.display(),
            other.display()
        );
        return Err(failure(Exit::Usage, message));
    }
    let of_parts = [
        ("--part-out", args.part_out.is_some()),
        ("--input", args.input.is_some()),
        ("--symfs", args.symfs.is_some()),
        ("--kcore", args.kcore.is_some()),
        ("--vmlinux", args.vmlinux.is_some()),
        ("--workers", args.workers.is_some()),
    ];
    match of_parts.iter().find(|(_, is_asked)| *is_asked && parts.is_empty()) {
        None => Ok(!parts.is_empty()),
        Some((option, _)) => {
            let message = format!("{option} is for parts (report --part), and these files are none");
            Err(failure(Exit::Usage, message))
        }
    }
}

/// Merges parts.
pub(crate) fn run(args: &MergeArgs) -> Result<Exit> {
    if !args.functions.is_empty() {
        let message = "-f chooses among the functions of summaries; the parts are of the functions that they \
                       were made with: leave it out";
        return Err(failure(Exit::Usage, message));
    }
    let inputs: Vec<&Path> = args.files.iter().map(std::path::PathBuf::as_path).collect();
    let part_out = args.part_out.iter().map(|path| OutputAsked { option: "--part-out", path });
    let summary = args.summary.iter().map(|path| OutputAsked { option: "--summary", path });
    output::check_apart(&inputs, &part_out.chain(summary).collect::<Vec<_>>())?;
    let set = PartSet::open(&args.files)?;
    if let Some(path) = &args.part_out {
        output::check_writable(path)?;
        set.write(path)?;
        return Ok(Exit::Done);
    }
    let missing = set.missing();
    let mut problems: Vec<String> = Vec::new();
    if !missing.is_empty() {
        let whose = if missing.len() == 1 { "its" } else { "their" };
        let (parts, of) = (named(&missing), set.facts().of);
        problems.push(format!("missing: {parts} of {of}; {whose} calls are not counted"));
    }
    problems.extend(args.missing.iter().map(|what| format!("missing: {what}; its calls are not counted")));
    report_command::run_of_stored(&config(args, &set)?, &set, &|opened| set.check_fits(opened), &problems)
}

/// The report that the parts were made for, as the command line wants it.
fn config(args: &MergeArgs, set: &PartSet) -> Result<ReportConfig> {
    let facts = set.facts();
    let unknown = || failure(Exit::BadInput, "the parts do not say what they were made of: make them again");
    let mut report = make::parse(&facts.words).ok_or_else(unknown)?;
    if args.input.is_some() {
        report.input = InputArgs { file: None, input: args.input.clone() };
    }
    if args.symfs.is_some() {
        report.query.calls.symfs.clone_from(&args.symfs);
    }
    let kernel = &mut report.query.calls.kernel;
    for (here, there) in [(&args.kcore, &mut kernel.kcore), (&args.vmlinux, &mut kernel.vmlinux)] {
        if here.is_some() {
            there.clone_from(here);
        }
    }
    // The parts' command line was resolved, too, before they were made.
    bundle_dir::resolve_report(&mut report)?;
    let ReportArgs { input, query, .. } = report;
    if make::asked(&query.calls) != facts.asked {
        return Err(failure(
            Exit::BadInput,
            "the parts were made of other calls than they say: make them again",
        ));
    }
    let mut calls = query.calls;
    (calls.workers, calls.verbose) = (args.workers, args.verbose);
    let query = QueryArgs {
        calls,
        srcline: args.srcline || query.srcline,
        unfold: args.unfold,
        table_rows: args.table_rows,
        format: args.format,
        tu: 1,
        labels: if args.summary.is_some() { query.labels } else { Vec::new() },
        summary: args.summary.clone(),
        ..QueryArgs::default()
    };
    ReportConfig::new(ReportArgs { input, query, part: PartArgs::default() })
}

/// `part 3`, or `parts 1 to 4, 7`.
fn named(parts: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &part in parts {
        match ranges.last_mut().filter(|(_, last)| last.checked_add(1) == Some(part)) {
            Some((_, last)) => *last = part,
            None => ranges.push((part, part)),
        }
    }
    let named = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let ranges: Vec<String> = ranges.iter().map(named).collect();
    format!("{} {}", if parts.len() == 1 { "part" } else { "parts" }, ranges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn parts_that_follow_one_another_are_a_range() {
        assert_eq!(named(&[3]), "part 3");
        assert_eq!(named(&[1, 2, 5, 7, 8, 9]), "parts 1, 2, 5, 7 to 9");
    }
}
