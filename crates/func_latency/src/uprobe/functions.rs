//! Where the wanted functions are probed, and in which processes.

use std::path::PathBuf;

use anyhow::Result;
use bpf::{CodePart, FunctionCode, ProbePoints, ProbedFunction, ProbedPlace};
use image::FunctionMatch;
use recorder::Proc;

use crate::exit::{Exit, failure};
use crate::live_code::LiveCode;
use crate::target::Wanted;

/// The probes of the wanted functions, in their order.
///
/// # Errors
/// A function cannot be probed without breaking the program.
pub(super) fn probed(code: &LiveCode, wanted: &[Wanted], proc: &Proc) -> Result<Vec<ProbedFunction>> {
    wanted.iter().map(|wanted| of_function(code, &wanted.function, proc)).collect()
}

fn of_function(code: &LiveCode, function: &FunctionMatch, proc: &Proc) -> Result<ProbedFunction> {
    let refused =
        |why: String| failure(Exit::NotPossible, format!("{} cannot be probed: {why}", function.name));
    if code.image.is_go(function.object) {
        return Err(refused(
            "it is Go, whose goroutines change stacks and threads between a call's entry and its return: no probe can pair them"
                .to_owned(),
        ));
    }
    let parts: Vec<CodePart<'_>> = (code.image.function_code(function.id).into_iter())
        .map(|(start, file_offset, bytes)| CodePart { start, file_offset, bytes })
        .collect();
    let places = match parts.first() {
        Some(part) => code.places(function.object, part.file_offset, proc),
        None => Vec::new(),
    };
    let points = ProbePoints::of(&FunctionCode { entry: function.entry, parts })
        .map_err(|error| refused(error.to_string()))?;
    let places: Vec<ProbedPlace> =
        places.into_iter().map(|(pid, file): (_, PathBuf)| ProbedPlace { pid, file }).collect();
    if places.is_empty() {
        return Err(refused(format!("the file of {} cannot be opened", function.object_name)));
    }
    Ok(ProbedFunction { points, is_child: false, places })
}
