//! What one call executed, by the analyzer and by the oracle.

use analyzer::Counted;
use tracegen::truth::calls::Ran;

/// Which of both numbers differ: counts at all, cycles by more than their error. The truth has no
/// instructions of the kernel, and a recording without CYC packets no cycles.
pub(crate) fn counted_difference(ours: &Counted, truth: Ran) -> Option<&'static str> {
    let (mine, theirs) = (&ours.executed, &truth.executed);
    if mine.instructions != theirs.instructions {
        Some("instructions")
    } else if mine.conditional_branches != theirs.conditional_branches {
        Some("conditional branches")
    } else if mine.indirect_branches != theirs.indirect_branches {
        Some("indirect branches")
    } else if mine.calls != theirs.calls {
        Some("calls")
    } else if ours.cycles.is_some_and(|cycles| cycles.count.abs_diff(truth.cycles) > cycles.error) {
        Some("cycles")
    } else {
        None
    }
}
