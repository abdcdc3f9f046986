//! Children of a function with and without an IP filter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use analyzer::{ChildKind, ChildRow, Place};
use decoder::DecodeOptions;
use model::{EndKind, EventSink, FunctionKind, FunctionLookup as _, Pid, SpaceId, Tid, TraceEvent, Transfer};

use super::{Agreement, FilteredCode, Seen, Side};
use crate::Opened;

/// What is held against each other, by kind and site: a hidden callee may have another name (`g@plt`).
type Key = (&'static str, Option<Place>);

/// Interrupts and the handlers of signals.
const OF_KERNEL: Key = ("kernel", None);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    sum_ns: u64,
    error_ns: u64,
    /// Of the lazy binder, which runs at the same site.
    binder_ns: u64,
    /// The callee is in the filter, and may have left it by a jump: then its time ends there.
    is_visible: bool,
}

/// Compares the number of children, and if all calls are alike their time.
///
/// The filter shows calls from inside it, with the time until they return, and every stay in the kernel. It
/// does not show
/// * what was called from the function's own part outside, and the kernel's stays there;
/// * for how many of its calls a callee stands that has such a part ([`Seen::CameBack`]);
/// * that the kernel ran a handler, if that is outside: then its time is the interrupt's;
/// * an interrupt of a stub of the PLT, which is a child of who called that: its time is the hidden callee's;
/// * a tail call out of it: its callee is a child of the caller that is returned to, if the filter has that.
///
/// Nothing is compared if the two did not count the same calls.
pub(super) fn compare(
    symbol: &str,
    whole: Side<'_>,
    filtered: Side<'_>,
    code: &FilteredCode,
    agreement: &mut Agreement,
) {
    let counted = |side: Side<'_>| (side.function.calls.complete, side.function.calls.unwound);
    if counted(whole) != counted(filtered) || agreement.rows.contains_key(&Seen::CameBack) {
        return;
    }
    let is_alike = agreement.rows.keys().all(|seen| *seen == Seen::Alike);
    let [mut of_whole, of_filtered] = [whole, filtered].map(|side| sums(side, code));
    let in_stubs_ns = match of_whole.get_mut(&OF_KERNEL) {
        Some(kernel) => take_stubs(kernel, of_filtered.get(&OF_KERNEL), whole.opened),
        None => 0,
    };
    // The stub of the PLT is in the time of a hidden callee alone, but takes less than this.
    let stub_ns = whole.function.figures.error.max_ns + filtered.function.figures.error.max_ns;
    let keys: BTreeSet<&Key> = of_whole.keys().chain(of_filtered.keys()).collect();
    for key in keys {
        let [one, other] = [&of_whole, &of_filtered].map(|sums| sums.get(key).copied().unwrap_or_default());
        let may_differ_ns = one.error_ns + other.error_ns + one.count * stub_ns + one.binder_ns;
        let is_longer = other.sum_ns > one.sum_ns + may_differ_ns + in_stubs_ns;
        let is_shorter = one.sum_ns > other.sum_ns + may_differ_ns && !one.is_visible;
        if one.count != other.count || is_alike && (is_longer || is_shorter) {
            let site = key.1.map_or("-".to_owned(), |at| whole.opened.image.site_name_at(at.object, at.svma));
            let (kind, error) = (key.0, may_differ_ns);
            let _ = writeln!(agreement.wrong, "{symbol}: {kind} at {site}: {one:?}, {other:?} +-{error}");
        }
        agreement.children += one.count;
    }
}

fn sums(side: Side<'_>, code: &FilteredCode) -> BTreeMap<Key, Sum> {
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    for child in &side.function.figures.children {
        let Some(key) = key(child, side, code) else { continue };
        let sum = sums.entry(key).or_default();
        if side.opened.image.kind(child.function) == FunctionKind::Loader {
            sum.binder_ns += child.total.sum_ns;
        } else {
            sum.count += child.total.count;
            sum.sum_ns += child.total.sum_ns;
            sum.error_ns += child.error_ns;
            sum.is_visible |= code.has_entry(side.opened, child.function);
        }
    }
    sums
}

/// `None`: the other report may not have it.
fn key(child: &ChildRow, side: Side<'_>, code: &FilteredCode) -> Option<Key> {
    let is_visible = code.has_entry(side.opened, child.function);
    match child.kind {
        ChildKind::Own => None,
        ChildKind::Signal | ChildKind::Interrupt => {
            code.has_all(side.opened, side.function.id).then_some(OF_KERNEL)
        }
        ChildKind::Tail if !is_visible => None,
        _ if is_visible && !code.has_all(side.opened, child.function) => None,
        _ => child.site.is_none_or(|site| code.has(site)).then_some((child.kind.name(), child.site)),
    }
}

/// Takes from the kernel's stays those in stubs of the PLT that are missing in sight; how long they were.
fn take_stubs(kernel: &mut Sum, in_sight: Option<&Sum>, opened: &Opened<'_>) -> u64 {
    let in_sight = in_sight.copied().unwrap_or_default();
    let missing = kernel.count.saturating_sub(in_sight.count);
    if missing == 0 || interrupted_stubs(opened) < missing {
        return 0;
    }
    let ns = kernel.sum_ns.saturating_sub(in_sight.sum_ns);
    kernel.count -= missing;
    kernel.sum_ns -= ns;
    ns
}

/// How often a thread was interrupted in a stub of the PLT.
fn interrupted_stubs(opened: &Opened<'_>) -> u64 {
    struct Count<'a>(&'a Opened<'a>, u64);

    impl EventSink for Count<'_> {
        fn events(&mut self, _: Pid, _: Tid, _: SpaceId, events: &[TraceEvent]) {
            for event in events {
                if let TraceEvent::Branch(branch) = event
                    && let Transfer::End { kind: EndKind::Async(_), from, .. } = branch.transfer
                    && self.0.image.kind(from.function) == FunctionKind::Plt
                {
                    self.1 += 1;
                }
            }
        }
    }

    let mut count = Count(opened, 0);
    opened.decode(&DecodeOptions::default(), &mut count);
    count.1
}
