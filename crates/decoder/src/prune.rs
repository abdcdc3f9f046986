//! Drops calls to functions that the sink did not ask about, before an event or a time is computed for them.
//!
//! A call that returned to its call site within a stretch says nothing of any function but its own and its
//! callees: if none of these is asked about, all of its branches are dropped. A direct callee of a function
//! in question is kept without its own callees: it is one of the children.
//!
//! ```text
//!   main --> parse --> lex      dropped
//!        `-> f --> g --> h      f is asked about: main, f and g are kept, h is dropped
//! ```
//!
//! Most effects are decided as a whole ([`Prunable`]), without a look at each branch.
//!
//! Everything else is kept: calls that are open where the stretch or tracing ends, calls that return to
//! another place (exceptions, stack switches, returns that are jumps), calls that are open where control
//! lands in the middle of another function, and the callers of all of these. So is the last branch of a
//! stretch: the stretch ends at its time.

use std::num::NonZeroU8;

use model::Avma;

use crate::block::BlockId;
use crate::effects::{Edge, EdgeId, Effects, Prunable, Reached, ReturnSite, Role};
use crate::record::Record;
use crate::work::{InstructionCount, Work};

/// A call that is open and kept.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    returns_to: Avma,
    /// The call runs code of a function in question, or runs in place of one.
    is_asked: bool,
    /// The call or one of its callees does.
    has_asked: bool,
}

/// One branch that waits.
const ONE: Prunable = Some(NonZeroU8::MIN);

fn number(branches: Prunable) -> u64 {
    branches.map_or(0, |branches| branches.get().into())
}

/// Decides what of a thread's stretch is kept.
pub(crate) struct Pruner<W = InstructionCount> {
    /// Branches of the present stretch that were dropped, or are pending.
    dropped: u64,
    open: Vec<OpenCall>,
    /// The calls after the last one of `open`, which are no children, and the jumps in them: dropped with the
    /// first of the calls when that returns. [`Record::call`] is the call itself, which is the first branch,
    /// or none: these are jumps.
    pending: Vec<Record<W>>,
}

impl<W: Work> Pruner<W> {
    /// Nothing was met yet.
    pub(crate) const fn new() -> Self {
        Self { dropped: 0, open: vec![], pending: vec![] }
    }

    /// Ends the stretch with `last`, which is kept: how many of its branches were dropped.
    pub(crate) fn end_stretch(
        &mut self,
        last: Option<Record<W>>,
        kept: &mut Vec<Record<W>>,
        effects: &Effects<W>,
    ) -> u64 {
        if let Some(last) = last {
            self.branches(&last, true, kept, effects);
        }
        self.keep_pending(kept, effects);
        self.open.clear();
        std::mem::take(&mut self.dropped)
    }

    /// Adds records, after which others follow in the same stretch.
    pub(crate) fn add(&mut self, records: &[Record<W>], kept: &mut Vec<Record<W>>, effects: &Effects<W>) {
        for record in records {
            if !record.prunable.is_some_and(|branches| self.prune_effect(record, branches, effects)) {
                self.branches(record, false, kept, effects);
            }
        }
    }

    /// Decides all branches of an effect at once where they are dropped, or wait for a return; false if each
    /// has to be looked at.
    #[inline(always)]
    fn prune_effect(&mut self, record: &Record<W>, branches: NonZeroU8, effects: &Effects<W>) -> bool {
        if record.call != BlockId::NONE {
            return self.drop_call(branches.get(), |pending| pending.call == record.call);
        }
        let call = effects.edges(record.edge).first().filter(|first| first.role == Role::Call);
        let waits = !self.pending.is_empty() || call.is_some() && !self.calls_child();
        if waits {
            self.wait(Record { call: call.map_or(BlockId::NONE, |call| call.from), ..*record });
        }
        waits
    }

    /// Adds a record that is no branch, or none of the kind that calls and returns have: all that is open is
    /// kept.
    #[inline(always)]
    pub(crate) fn border(&mut self, record: Record<W>, kept: &mut Vec<Record<W>>, effects: &Effects<W>) {
        self.keep_pending(kept, effects);
        self.open.clear();
        kept.push(record);
    }

    /// The last of the calls that are kept calls a child. If none is known to be open, any function may run.
    #[inline(always)]
    fn calls_child(&self) -> bool {
        self.open.last().is_none_or(|caller| caller.is_asked)
    }

    /// Looks at each branch of a record; `ends`: the last of them is the last one of the stretch.
    #[inline(always)]
    fn branches(&mut self, record: &Record<W>, ends: bool, kept: &mut Vec<Record<W>>, effects: &Effects<W>) {
        let EdgeId(mut id) = record.edge;
        while let Some(edge) = effects.edges(EdgeId(id)).first() {
            let branch = || Record { edge: EdgeId(id), ..*record };
            self.branch(edge, record.call, branch, ends && edge.is_last, kept, effects);
            if edge.is_last {
                break;
            }
            id += 1;
        }
    }

    /// Adds one branch; `branch` makes its record where that is needed; `is_last` of its stretch.
    #[inline(always)]
    fn branch(
        &mut self,
        edge: &Edge<W>,
        call: BlockId,
        branch: impl FnOnce() -> Record<W>,
        is_last: bool,
        kept: &mut Vec<Record<W>>,
        effects: &Effects<W>,
    ) {
        if edge.from_asked {
            self.asks(kept, effects);
        }
        let mut to = edge.to();
        match edge.role {
            Role::Call => {
                if !to.is_asked && (!self.pending.is_empty() || !self.calls_child()) {
                    return self.wait(Record { prunable: ONE, call: edge.from, ..branch() });
                }
                self.keep_pending(kept, effects);
                let Reached { address: returns_to, is_asked } = to;
                self.open.push(OpenCall { returns_to, is_asked, has_asked: is_asked });
                return kept.push(branch());
            }
            Role::Return | Role::ReturnToStack => {
                if edge.role == Role::ReturnToStack {
                    let Some(site) = effects.return_site(call).map(ReturnSite::reached) else { return };
                    to = site;
                }
                let returns_here = |call: &Record<W>| {
                    effects.edges(call.edge).first().is_some_and(|call| call.to == to.address)
                };
                if !is_last && self.drop_call(1, returns_here) {
                    return;
                }
                self.keep_pending(kept, effects);
                match self.open.pop() {
                    Some(call) if call.returns_to != to.address => self.open.clear(),
                    Some(call) if call.has_asked => {
                        if let Some(caller) = self.open.last_mut() {
                            caller.has_asked = true;
                        }
                    }
                    _ => (),
                }
            }
            Role::Jump if !to.is_asked && !self.pending.is_empty() => {
                return self.wait(Record { prunable: ONE, call: BlockId::NONE, ..branch() });
            }
            Role::Jump => (),
            Role::Landing => {
                self.keep_pending(kept, effects);
                self.open.clear();
            }
        }
        if to.is_asked {
            self.asks(kept, effects);
        }
        kept.push(branch());
    }

    /// Adds branches that are dropped unless the call that they wait for does not return.
    #[inline(always)]
    fn wait(&mut self, record: Record<W>) {
        self.dropped += number(record.prunable);
        self.pending.push(record);
    }

    /// Drops the last pending call, if it is what returns, all after it, and `branches` with the return.
    #[inline(always)]
    fn drop_call(&mut self, branches: u8, returns: impl FnOnce(&Record<W>) -> bool) -> bool {
        let last = self.pending.iter().rposition(|one| one.call != BlockId::NONE);
        let Some(number) = last.filter(|&last| self.pending.get(last).is_some_and(returns)) else {
            return false;
        };
        self.dropped += u64::from(branches);
        self.pending.truncate(number);
        true
    }

    /// Keeps the pending records: a function in question may be involved.
    #[inline]
    fn keep_pending(&mut self, kept: &mut Vec<Record<W>>, effects: &Effects<W>) {
        if !self.pending.is_empty() {
            self.keep_all(kept, effects);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_all(&mut self, kept: &mut Vec<Record<W>>, effects: &Effects<W>) {
        for record in self.pending.drain(..) {
            self.dropped -= number(record.prunable);
            let EdgeId(first) = record.edge;
            for (edge, id) in
                effects.edges(record.edge).iter().zip(first..).take(number(record.prunable) as usize)
            {
                if edge.role == Role::Call {
                    self.open.push(OpenCall { returns_to: edge.to, is_asked: false, has_asked: false });
                }
                kept.push(Record { edge: EdgeId(id), ..record });
            }
        }
    }

    /// The function that runs now is asked about.
    fn asks(&mut self, kept: &mut Vec<Record<W>>, effects: &Effects<W>) {
        self.keep_pending(kept, effects);
        if let Some(top) = self.open.last_mut() {
            (top.is_asked, top.has_asked) = (true, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::AuxOffset;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::clock::Slot;
    use crate::effects::prunable;
    use crate::record::What;

    /// `+f`: a call of f; `-`: the return from it, which the stack knows; `.`: one by a TIP; `>f`: a jump;
    /// `~f`: one into its middle; `!`: a return to another place; `?`: one that the stack knows; `|`:
    /// something else. Capitals are asked about. Words beside each other without a space are one effect.
    fn kept(script: &str) -> String {
        let effects: Vec<Vec<&str>> = script.split(' ').map(words).collect();
        let kept = kept_of(&effects);
        let each: Vec<Vec<&str>> = effects.concat().into_iter().map(|word| vec![word]).collect();
        assert_eq!(kept_of(&each), kept, "an effect for each word of `{script}`");
        kept
    }

    fn words(effect: &str) -> Vec<&str> {
        let starts = effect.char_indices().filter(|(_, c)| !c.is_alphabetic()).map(|(start, _)| start);
        let ends = starts.clone().skip(1).chain([effect.len()]);
        starts.zip(ends).map(|(start, end)| &effect[start..end]).collect()
    }

    /// A call's number, and the address that it returns to, say how deep it is and which function called:
    /// whether that is asked about is the same for all that return there.
    fn parsed(effects: &[Vec<&str>]) -> (Vec<Edge>, Vec<Record>, Vec<Reached>) {
        let is_asked = |running: &[char]| running.last().is_some_and(|name| name.is_uppercase());
        let frame = |running: &[char]| match running.last() {
            Some(&name) => running.len() as u32 * 128 + u32::from(name),
            None => 0,
        };
        let (mut edges, mut records): (Vec<Edge>, Vec<Record>) = (vec![], vec![]);
        let mut running = vec!['m'];
        let mut returned_into = vec![Reached { address: Avma(0), is_asked: false }; 20 * 128];
        for effect in effects {
            let first = edges.len();
            let mut call = BlockId::NONE;
            let mut inner = 0; // calls of this effect that have not returned
            for word in effect {
                let to = word.chars().nth(1);
                let (from_asked, from) = (is_asked(&running), frame(&running));
                let (role, address) = match &word[..1] {
                    "+" => {
                        running.extend(to);
                        inner += 1;
                        (Role::Call, from.into())
                    }
                    "-" | "." => {
                        running.pop();
                        let is_known = inner > 0 || word == &".";
                        inner -= 1;
                        let caller = frame(&running);
                        let to = Reached { address: Avma(caller.into()), is_asked: is_asked(&running) };
                        if !is_known {
                            call = BlockId(caller);
                            returned_into[caller as usize] = to;
                        }
                        (if is_known { Role::Return } else { Role::ReturnToStack }, to.address.0)
                    }
                    ">" | "~" => {
                        *running.last_mut().unwrap() = to.unwrap();
                        (if word.starts_with('>') { Role::Jump } else { Role::Landing }, 0)
                    }
                    "?" => {
                        call = BlockId(0);
                        (Role::ReturnToStack, 0)
                    }
                    _ => (Role::Return, 1),
                };
                let to_asked = role != Role::ReturnToStack && is_asked(&running);
                edges.push(Edge {
                    work: InstructionCount(0),
                    role,
                    to: Avma(address),
                    from: BlockId(from),
                    from_asked,
                    to_asked,
                    is_after_first: false,
                    is_last: false,
                });
            }
            edges.last_mut().unwrap().is_last = true;
            let is_other = effect == &["|"];
            records.push(Record {
                at: AuxOffset(0),
                what: if is_other { What::Other } else { What::Effect },
                prunable: if is_other { None } else { prunable(&edges[first..]) },
                edge: EdgeId(first as u32),
                call,
                lo: Slot(0),
                slot: Slot(0),
                work: InstructionCount(0),
            });
        }
        (edges, records, returned_into)
    }

    /// The words of what the pruner keeps.
    fn kept_of(effects: &[Vec<&str>]) -> String {
        let (edges, records, returned_into) = parsed(effects);
        let effects_known = Effects::of(edges, &returned_into);
        let (mut pruner, mut kept) = (Pruner::new(), vec![]);
        for record in records.split_last().map_or(&records[..], |(_, all)| all) {
            match record.what {
                What::Other => pruner.border(*record, &mut kept, &effects_known),
                _ => pruner.add(&[*record], &mut kept, &effects_known),
            }
        }
        let dropped = pruner.end_stretch(records.last().copied(), &mut kept, &effects_known);
        let words = effects.concat();
        assert_eq!(kept.len() as u64 + dropped, words.len() as u64);
        let kept: Vec<&str> = kept.iter().map(|record| words[record.edge.0 as usize]).collect();
        kept.join(" ")
    }

    #[test]
    fn what_nobody_asks_about_goes() {
        assert_eq!(kept("+a +b +c - - +d - +F +g +h - - - - |"), "+a +F +g - - - |");
        assert_eq!(kept("+a +b +c - +d - - - |"), "+a - |");
    }

    #[test]
    fn what_is_open_at_a_border_stays() {
        assert_eq!(kept("+a +b | - - |"), "+a +b | - - |");
        assert_eq!(kept("+a +b +c - +d |"), "+a +b +d |");
        assert_eq!(kept("+a +b +c ! +d - - - |"), "+a +b +c ! +d - - - |");
        assert_eq!(kept("+a +b +c ? +d - - - |"), "+a +b +c ? +d - - - |");
        assert_eq!(kept("+a +b +c ~a +d - - - |"), "+a +b +c ~a +d - - - |");
    }

    #[test]
    fn what_runs_in_place_of_a_function_in_question_calls_its_children() {
        assert_eq!(kept("+a +F >b +c +d - - - - |"), "+a +F >b +c - - - |");
        assert_eq!(kept("+a +b - >F +c - - |"), "+a >F +c - - |");
    }

    #[test]
    fn the_stub_in_front_of_a_child_stays() {
        assert_eq!(kept("+F +stub >c +d - - - |"), "+F +stub >c - - |");
    }

    #[test]
    fn the_last_branch_of_a_stretch_stays() {
        assert_eq!(kept("+a +b +c - +d - -"), "+a +b -");
        assert_eq!(kept("+a +b >c +d - -"), "+a +b >c -");
    }

    #[test]
    fn of_whose_code_runs_first_nobody_knows() {
        assert_eq!(kept("- +a +b - - |"), "- +a - |");
    }

    #[test]
    fn effects_go_as_their_branches_do() {
        assert_eq!(kept("+a +b +c>d >e+f. - +g>h>i+j..- - |"), "+a - |");
        assert_eq!(kept("+a +b +c>d | - - - |"), "+a +b +c >d | - - - |");
        assert_eq!(kept("+a +b >c+d>e+F - - - -"), "+a +b >c +d >e +F - - - -");
        assert_eq!(kept("+a +b +c>d - - -"), "+a -");
        assert_eq!(kept("+a +b +c>d -"), "+a +b +c >d -");
    }

    proptest! {
        #[test]
        fn effects_go_as_their_branches_do_in_any_order(
            steps in vec((select("+a +b +F - - - . > ~ ! ? |".split(' ').collect::<Vec<_>>()), any::<bool>()), 1..60),
        ) {
            let (mut script, mut depth) = (String::from("+a +b +c"), 4);
            let mut may_join = true;
            for (word, joins) in steps {
                let word = match word {
                    "-" | "." if depth < 3 => continue,
                    "-" | "." => { depth -= 1; word }
                    ">" => ">d",
                    "~" => "~d",
                    call if call.starts_with('+') && depth > 15 => continue,
                    call if call.starts_with('+') => { depth += 1; call }
                    other => other,
                };
                script += if joins && may_join && word != "|" { word } else { " " };
                if script.ends_with(' ') {
                    script += word;
                }
                // After a compressed return the stack says where the effect goes on; `|` is none.
                may_join = !matches!(word, "-" | "." | "!" | "?" | "|");
            }
            kept(&script);
        }
    }
}
