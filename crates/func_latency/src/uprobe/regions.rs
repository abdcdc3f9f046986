//! Where a region is probed: where it begins, and where it ends.

use std::collections::BTreeSet;

use anyhow::Result;
use bpf::{CallFrame, ProbePoints, ProbedFunction, RegionPlace};
use image::Unwinding;
use model::{FunctionId, FunctionLookup, Mark, Region};
use recorder::Proc;

use super::functions::{Candidate, code_of, places};
use crate::exit::{Exit, failure};
use crate::live_code::LiveCode;
use crate::target::Wanted;

/// The wanted regions, in their order.
///
/// # Errors
/// A region cannot be probed, or its frame is not known.
pub(super) fn wanted(code: &LiveCode, wanted: &[Wanted], proc: &Proc) -> Result<Vec<Candidate>> {
    let candidate = |Wanted { function }: &Wanted| {
        let region = code.image.region(function.id).ok_or_else(|| "it is no region".to_owned());
        let candidate = region.and_then(|region| candidate(code, function.id, region, proc));
        candidate
            .map_err(|why| failure(Exit::NotPossible, format!("{} cannot be probed: {why}", function.name)))
    };
    wanted.iter().map(candidate).collect()
}

fn candidate(code: &LiveCode, id: FunctionId, region: &Region, proc: &Proc) -> Result<Candidate, String> {
    let image = &code.image;
    let marks: BTreeSet<Mark> = region.starts.iter().chain(&region.ends).copied().collect();
    let (object, _) = *marks.first().ok_or("it begins nowhere")?;
    if marks.iter().any(|(of, _)| *of != object) {
        return Err("it is in several files, and a frame is in one".to_owned());
    }
    let unwinding = Unwinding::new(image);
    let place = |mark: &Mark| {
        let (object, at) = *mark;
        let function = image.function_at_place(object, at).id;
        let frame = unwinding.frame_at(object, at);
        Ok(RegionPlace {
            code: code_of(image, function)?,
            at,
            starts: region.starts.contains(mark),
            ends: region.ends.contains(mark),
            frame: frame.map(|(by_rbp, offset)| CallFrame { by_rbp, offset }),
        })
    };
    let probed: Vec<RegionPlace<'_>> = marks.iter().map(place).collect::<Result<_, String>>()?;
    let first = probed.first().and_then(|place| place.code.parts.first()).ok_or("its code cannot be read")?;
    let places = places(code, object, first.file_offset, proc)?;
    let points = ProbePoints::of_region(&probed).map_err(|error| error.to_string())?;
    let probed = ProbedFunction { points, is_child: false, places };
    Ok(Candidate { id, probed, at_instructions: None })
}
