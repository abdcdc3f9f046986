//! Where the wanted functions and what they call are probed, and in which processes.

use std::collections::BTreeSet;

use anyhow::Result;
use bpf::{CodePart, Ends, FunctionCode, ProbePoints, ProbedFunction, ProbedPlace};
use image::{Image, MatchedBy, Query};
use model::{FileOffset, FunctionId, FunctionKind, FunctionLookup, ObjectId, Svma};
use recorder::Proc;

use crate::exit::{Exit, failure};
use crate::live_code::LiveCode;
use crate::target::Wanted;

/// A function and its probes.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The function.
    pub(super) id: FunctionId,
    /// Where it is probed.
    pub(super) probed: ProbedFunction,
    /// Its probes at instructions, or why there can be none, where `probed` has those for a rewritten return
    /// address and it is yet to be decided whether that is safe.
    pub(super) at_instructions: Option<Result<ProbePoints, String>>,
}

/// The wanted functions, in their order.
///
/// # Errors
/// A function cannot be probed without breaking the program.
pub(super) fn wanted(
    code: &LiveCode,
    wanted: &[Wanted],
    ends: Option<Ends>,
    proc: &Proc,
) -> Result<Vec<Candidate>> {
    let candidate = |wanted: &Wanted| {
        let (id, name) = (wanted.function.id, &wanted.function.name);
        let candidate = candidate(code, id, false, ends, proc);
        candidate.map_err(|why| failure(Exit::NotPossible, format!("{name} cannot be probed: {why}")))
    };
    wanted.iter().map(candidate).collect()
}

/// Functions that the wanted ones call directly, as far as they can be probed; each once, by id.
pub(super) fn children(
    code: &LiveCode,
    wanted: &[Candidate],
    ends: Option<Ends>,
    proc: &Proc,
) -> Vec<Candidate> {
    let of = |candidate: &Candidate| {
        let object = FunctionLookup::object(&code.image, candidate.id);
        let callees = candidate.probed.points.callees.iter();
        callees.filter_map(|at| callee(&code.image, object?, *at)).collect::<Vec<_>>()
    };
    let called: BTreeSet<FunctionId> = wanted.iter().flat_map(of).collect();
    let others = called.into_iter().filter(|id| wanted.iter().all(|candidate| candidate.id != *id));
    let candidates = others.filter_map(|id| candidate(code, id, true, ends, proc).ok());
    // Whichever way it is decided.
    candidates.filter(|child| !matches!(child.at_instructions, Some(Err(_)))).collect()
}

/// The function at an address; behind a stub of the linkage table, the one of its name.
fn callee(image: &Image, object: ObjectId, at: Svma) -> Option<FunctionId> {
    let id = image.function_at_place(object, at).id;
    if image.kind(id) != FunctionKind::Plt {
        return (image.kind(id) == FunctionKind::Symbol).then_some(id);
    }
    let stub = image.function_name(id);
    let found = image.find(&Query { text: stub.strip_suffix("@plt")?.to_owned(), object: None }).ok()?;
    match found.as_slice() {
        [one] if matches!(one.matched_by, MatchedBy::Symbol | MatchedBy::Name) && !one.is_resolver => {
            Some(one.id)
        }
        _ => None,
    }
}

/// The code of a function.
pub(super) fn code_of(image: &Image, id: FunctionId) -> Result<FunctionCode<'_>, String> {
    let parts = image.function_code(id).into_iter();
    let parts = parts.map(|(start, file_offset, bytes)| CodePart { start, file_offset, bytes }).collect();
    let entry = image.function_entry(id).ok_or("its entry is not known")?;
    Ok(FunctionCode { entry, parts })
}

/// In which processes code is probed, and by which file there.
pub(super) fn places(
    code: &LiveCode,
    object: ObjectId,
    at: FileOffset,
    proc: &Proc,
) -> Result<Vec<ProbedPlace>, String> {
    let places = code.places(object, at, proc).into_iter();
    let places: Vec<ProbedPlace> = places.map(|(pid, file)| ProbedPlace { pid, file }).collect();
    if places.is_empty() {
        return Err(format!("the file of {} cannot be opened", code.image.object_name(object)));
    }
    Ok(places)
}

fn candidate(
    code: &LiveCode,
    id: FunctionId,
    is_child: bool,
    ends: Option<Ends>,
    proc: &Proc,
) -> Result<Candidate, String> {
    let image = &code.image;
    let object = FunctionLookup::object(image, id).ok_or("it belongs to no file")?;
    // What is told at its entry needs no pair.
    if image.is_go(object) && ends != Some(Ends::AtEntry) {
        return Err("it is Go, whose goroutines change stacks and threads between a call's entry and its return: no probe can \
                    pair them"
            .to_owned());
    }
    let function = code_of(image, id)?;
    let first = function.parts.first().ok_or("its code cannot be read")?;
    let places = places(code, object, first.file_offset, proc)?;
    let points = |ends| ProbePoints::new(&function, ends).map_err(|error| error.to_string());
    let at_instructions = points(Ends::AtInstructions);
    let (points, at_instructions) = match (ends, at_instructions) {
        (Some(ends), _) => (points(ends)?, None),
        // One probe sees both, and what it does cannot be changed when it is there.
        (None, Ok(points)) if points.ends_at_entry() => (points, None),
        (None, at_instructions) => (points(Ends::ByReturnAddress)?, Some(at_instructions)),
    };
    Ok(Candidate { id, probed: ProbedFunction { points, is_child, places }, at_instructions })
}
