//! What to do where probes have seen nothing of use: calls that all leave by a jump, a function that is
//! running all the time, one that the compiler has inlined.

use std::fs::File;
use std::os::unix::fs::FileExt;

use analyzer::FunctionReport;
use image::Image;
use model::{Avma, CodeSource, FunctionId, FunctionLookup, Ns, Pid, SpaceId, Svma, Tid};
use recorder::Proc;

use super::functions::Candidate;
use crate::live_code::LiveCode;
use crate::messages;
use crate::render::units::{counted, duration};

/// Bytes of a stack that are looked through.
const STACK_MAX_BYTES: usize = 1 << 20;
/// Functions that are named to take instead.
const NAMED: usize = 3;

/// If all calls of a function ended by a jump out of it: what they jump to has their time.
pub(super) fn after_jumps(report: &FunctionReport, candidate: &Candidate, image: &Image) -> Option<String> {
    let calls = report.calls.complete;
    if calls == 0 || report.calls.ended_by_jump < calls {
        return None;
    }
    let name = image.function_name(candidate.id);
    let to = names(image, candidate.id, &candidate.probed.points.jumps_to);
    let to = match to.is_empty() {
        true => "what that is, is known only when it is called".to_owned(),
        false => format!("measure {}, to which it jumps", to.join(" or ")),
    };
    Some(format!(
        "all calls of {name} end where they jump to another function, whose time is not in them: {to}, or take --uretprobe"
    ))
}

/// Why no call of a function was seen in so long, as far as that can be told.
pub(super) fn without_calls(
    name: &str,
    candidate: &Candidate,
    code: &LiveCode,
    inlined: Option<u64>,
    span_ns: u64,
    proc: &Proc,
) -> String {
    let seen = format!("no call of {name} was seen in {}", duration(span_ns));
    let pids = candidate.probed.places.iter().map(|place| place.pid);
    if let Some((tid, thread)) = pids.into_iter().find_map(|pid| standing_on(code, pid, candidate.id, proc)) {
        let children = names(&code.image, candidate.id, &candidate.probed.points.callees);
        let instead = match children.is_empty() {
            true => String::new(),
            false => format!(": take one that it calls ({})", messages::list(&children)),
        };
        return format!(
            "{seen}, in which it was running all the time, as it seems: it stands on the stack of thread {} ({thread}){instead}",
            tid.0
        );
    }
    match inlined {
        Some(places @ 1..) => format!(
            "{seen}; the compiler has inlined it in {}, and inlined code is not called: take a function around them",
            counted(places, "place")
        ),
        _ => seen,
    }
}

/// The first functions at these addresses in the object of another.
fn names(image: &Image, of: FunctionId, at: &[Svma]) -> Vec<String> {
    let Some(object) = image.object(of) else { return Vec::new() };
    let name = |at: &Svma| image.function_name(image.function_at_place(object, *at).id);
    let mut names: Vec<String> =
        at.iter().map(name).map(|name| name.trim_end_matches("@plt").to_owned()).collect();
    names.dedup();
    names.truncate(NAMED);
    names
}

/// A thread that sleeps with a call of the function on its stack, and its name.
fn standing_on(code: &LiveCode, pid: Pid, function: FunctionId, proc: &Proc) -> Option<(Tid, String)> {
    let memory = File::open(proc.directory(pid).join("mem")).ok()?;
    let space = code.image.space(pid, Ns(0));
    let is_it = |tid: &Tid| {
        let Some(sp) = stack_pointer(proc, pid, *tid) else { return false };
        let mut stack = vec![0; STACK_MAX_BYTES];
        // Its end is that of the mapping.
        let read = memory.read_at(&mut stack, sp).unwrap_or(0);
        let words = stack.get(..read).unwrap_or_default().chunks_exact(8);
        let mut words = words.filter_map(|word| word.try_into().ok()).map(u64::from_ne_bytes);
        words.any(|word| returns_into(&code.image, space, Avma(word), function))
    };
    let tid = proc.tasks(pid).ok()?.into_iter().find(is_it)?;
    Some((tid, proc.name(pid, tid).unwrap_or_default()))
}

/// Where the stack of a thread that sleeps ends (`/proc/PID/task/TID/syscall`).
fn stack_pointer(proc: &Proc, pid: Pid, tid: Tid) -> Option<u64> {
    let text = proc.text(&format!("{}/task/{}/syscall", pid.0, tid.0))?;
    let sp = text.split_whitespace().rev().nth(1)?;
    u64::from_str_radix(sp.strip_prefix("0x")?, 16).ok()
}

/// An address behind a call in the function: not every word of a stack that looks like one of its code is one
/// to return to.
fn returns_into(image: &Image, space: SpaceId, at: Avma, function: FunctionId) -> bool {
    /// `call rel32`, and the lengths of the others, `ff /2`.
    const DIRECT: (u64, u8) = (5, 0xe8);
    const BY_REGISTER_OR_MEMORY: [u64; 5] = [2, 3, 4, 6, 7];
    let Some(before) = at.0.checked_sub(1) else { return false };
    if image.function_at(space, Avma(before)).id != function {
        return false;
    }
    let bytes = |back: u64| image.code(space, Avma(at.0.wrapping_sub(back))).unwrap_or_default();
    let is_indirect = |back: u64| matches!(bytes(back), [0xff, modrm, ..] if modrm >> 3 & 7 == 2);
    bytes(DIRECT.0).first() == Some(&DIRECT.1) || BY_REGISTER_OR_MEMORY.into_iter().any(is_indirect)
}
