//! What ids are called: functions, objects, call sites.

use std::collections::BTreeMap;

use analyzer::{Caller, ChildKind, ChildRow, Place, Reason, SliceKind, Waker};
use model::{FunctionId, ObjectId, Tid};
use syscalls::Sysno;

/// Where a probed call began, for people.
pub(crate) const fn slice_name(kind: SliceKind) -> &'static str {
    match kind {
        SliceKind::Alone => "alone",
        SliceKind::WithChildren => "with children",
        SliceKind::Between => "between",
    }
}

/// Names of what a report speaks of.
pub trait Names {
    /// Demangled name; `[unknown]` for [`FunctionId::UNKNOWN`].
    fn function(&self, id: FunctionId) -> String;

    /// Path of the object that a function belongs to, if any does.
    fn object_of(&self, id: FunctionId) -> Option<String>;

    /// Build id of the object that a function belongs to, in hexadecimal digits; `None`: it has none, or
    /// there is no such object.
    fn build_id_of(&self, _: FunctionId) -> Option<String> {
        None
    }

    /// Which of the functions of its name in its object each function is, from 0; functions without a known
    /// one are left out.
    fn nth_of(&self, _: &[FunctionId]) -> BTreeMap<FunctionId, u32> {
        BTreeMap::new()
    }

    /// Path of an object.
    fn object(&self, id: ObjectId) -> String;

    /// A place as `object+0xoffset`, with the object's file name.
    fn site(&self, place: Place) -> String;

    /// `file:line` of a place, with ` inlined at file:line` for each function around it that it was inlined
    /// into; if debug information says and lines were asked for.
    fn line(&self, place: Place) -> Option<String>;

    /// Name of a thread, the last that it had.
    fn thread(&self, _: Tid) -> Option<String> {
        None
    }
}

/// Name of a call's caller.
#[must_use]
pub fn caller_name(names: &dyn Names, caller: Caller) -> String {
    match caller {
        Caller::Function { function, .. } => names.function(function),
        Caller::Signal => "[signal]".to_owned(),
        Caller::Interrupt => "[interrupt]".to_owned(),
        Caller::Unknown => "[unknown]".to_owned(),
    }
}

/// Name of what took time inside a call.
#[must_use]
pub fn child_name(names: &dyn Names, child: &ChildRow) -> String {
    callee_name(names, child.kind, child.function)
}

/// Name of what ran, in a child's row or a node of a tree.
#[must_use]
pub fn callee_name(names: &dyn Names, kind: ChildKind, function: FunctionId) -> String {
    match kind {
        ChildKind::Syscall => "[syscall]".to_owned(),
        ChildKind::Interrupt => "[interrupt]".to_owned(),
        ChildKind::Own => "*self".to_owned(),
        ChildKind::Signal if function == FunctionId::UNKNOWN => "[signal]".to_owned(),
        _ => names.function(function),
    }
}

/// What a thread waited for.
#[must_use]
pub fn reason_name(reason: &Reason) -> String {
    match reason {
        Reason::Syscall(number) => {
            let known = Sysno::new(*number as usize);
            known.map_or_else(|| format!("system call {number}"), |syscall| syscall.name().to_owned())
        }
        Reason::Kernel(function) => format!("[kernel] {function}"),
        Reason::Preempted => "[preempted]".to_owned(),
        Reason::Unknown => "[unknown]".to_owned(),
    }
}

/// What kind of reason a thread waited for.
#[must_use]
pub const fn reason_kind(reason: &Reason) -> &'static str {
    match reason {
        Reason::Syscall(_) => "syscall",
        Reason::Kernel(_) => "kernel",
        Reason::Preempted => "preempted",
        Reason::Unknown => "unknown",
    }
}

/// Name of what woke a thread.
#[must_use]
pub fn waker_name(waker: &Waker) -> String {
    match waker {
        Waker::Interrupt => "[interrupt]".to_owned(),
        Waker::Thread { tid, name, .. } => format!("{name} ({})", tid.0),
    }
}

/// The last part of a path.
#[must_use]
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}
