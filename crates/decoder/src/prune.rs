//! Calls that nobody asked about are left out before they cost anything.
//!
//! A call that returned to where it was made, in the same stretch, says nothing of any function but its own
//! and those it called: if nobody asks about one of these, all of it goes. What a function in question called
//! stays, without what that called: it is one of its children.
//!
//! ```text
//!   main --> parse --> lex      left out
//!        `-> f --> g --> h      f is asked about: main, f and g stay, h is left out
//! ```
//!
//! Most of that is decided for all branches of an effect at once ([`Record::quiet`]).
//!
//! Everything else stays: what is open where the stretch ends or tracing does, what does not return where it
//! was called from (exceptions, switches of the stack, returns that are jumps), what is open where control
//! goes into the middle of another function, and what is around.

use model::Avma;

use crate::block::BlockId;
use crate::effects::{Behind, Edge, EdgeId, Effects, Reached, Role};
use crate::record::{Record, What};

/// A call that is open, and stays.
#[derive(Clone, Copy, Debug)]
struct Open {
    returns_to: Avma,
    /// It runs code of a function in question, or runs in place of one.
    is_asked: bool,
    /// ... or something that it called does.
    has_asked: bool,
}

/// One thread's branches, without those that nobody asked about.
#[derive(Default)]
pub(crate) struct Pruned {
    /// Of all stretches, each of one branch at most.
    pub(crate) kept: Vec<Record>,
    /// How many of this stretch are not there.
    left_out: u64,
    open: Vec<Open>,
    /// Behind the last one of these: the calls that are no children, and the jumps in them. It all goes with
    /// the first of the calls when that returns. [`Record::call`] is the call itself, which is the first
    /// branch, or none: these are jumps.
    doubtful: Vec<Record>,
}

impl Pruned {
    /// The stretch ends: how many of its branches are not there.
    pub(crate) fn end(&mut self, effects: &Effects) -> u64 {
        self.stay(effects);
        self.open.clear();
        std::mem::take(&mut self.left_out)
    }

    /// The next records; `ends` with the last one of the stretch, which says how long that was.
    pub(crate) fn add(&mut self, records: &[Record], ends: bool, effects: &Effects) {
        let (records, last) = match records.split_last() {
            Some((last, records)) if ends => (records, Some(last)),
            _ => (records, None),
        };
        for record in records {
            if !self.takes_quiet(record, effects) {
                self.add_one(record, false, effects);
            }
        }
        if let Some(last) = last {
            self.add_last(last, effects);
        }
    }

    /// Takes what all goes, or all is doubtful, without looking at every branch; false if this does not.
    #[inline(always)]
    fn takes_quiet(&mut self, record: &Record, effects: &Effects) -> bool {
        if record.quiet == 0 {
            return false;
        }
        if record.call != BlockId::NONE {
            return self.goes(record.quiet, |call| call.call == record.call);
        }
        let call = effects.edges(record.edge).first().filter(|first| first.role == Role::Call);
        let is_doubtful = !self.doubtful.is_empty() || call.is_some() && !self.calls_child();
        if is_doubtful {
            self.doubtful.push(Record { call: call.map_or(BlockId::NONE, |call| call.from), ..*record });
        }
        is_doubtful
    }

    /// What the last of the calls that stay calls is a child. Whose code runs where nothing is known to be
    /// open nobody knows.
    #[inline(always)]
    fn calls_child(&self) -> bool {
        self.open.last().is_none_or(|caller| caller.is_asked)
    }

    #[cold]
    #[inline(never)]
    fn add_last(&mut self, record: &Record, effects: &Effects) {
        self.add_one(record, true, effects);
    }

    /// Each branch of a record; `ends`: with the last of them the stretch does.
    #[inline(always)]
    fn add_one(&mut self, record: &Record, ends: bool, effects: &Effects) {
        if record.what == What::Other {
            return self.border(*record, effects);
        }
        let EdgeId(mut id) = record.edge;
        while let Some(edge) = effects.edges(EdgeId(id)).first() {
            let behind = || effects.behind(record.call).map(Behind::reached);
            let branch = || Record { edge: EdgeId(id), ..*record };
            self.branch(edge, behind, ends && edge.is_last, branch, effects);
            if edge.is_last {
                break;
            }
            id += 1;
        }
    }

    /// Something that is no branch, or one that is not of the kind that calls and returns have: all that is
    /// open stays. Behind what [`Self::add`] was given.
    #[inline]
    pub(crate) fn border(&mut self, record: Record, effects: &Effects) {
        self.stay(effects);
        self.open.clear();
        self.kept.push(record);
    }

    /// The next branch; `is_last` of its stretch. `behind`: what it leads to if only the stack knows; none if
    /// nobody does.
    #[inline(always)]
    fn branch(
        &mut self,
        edge: &Edge,
        behind: impl FnOnce() -> Option<Reached>,
        is_last: bool,
        branch: impl FnOnce() -> Record,
        effects: &Effects,
    ) {
        if edge.from_asked {
            self.asks(effects);
        }
        let mut to = edge.to();
        match edge.role {
            Role::Call => {
                if !to.is_asked && (!self.doubtful.is_empty() || !self.calls_child()) {
                    return self.doubtful.push(Record { quiet: 1, call: edge.from, ..branch() });
                }
                self.stay(effects);
                let Reached { address: returns_to, is_asked } = to;
                self.open.push(Open { returns_to, is_asked, has_asked: is_asked });
                return self.kept.push(branch());
            }
            Role::Return | Role::ReturnToStack => {
                if edge.role == Role::ReturnToStack {
                    let Some(behind) = behind() else { return };
                    to = behind;
                }
                let returns_here = |call: &Record| {
                    effects.edges(call.edge).first().is_some_and(|call| call.to == to.address)
                };
                if !is_last && self.goes(1, returns_here) {
                    return;
                }
                self.stay(effects);
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
            Role::Jump if !to.is_asked && !self.doubtful.is_empty() => {
                return self.doubtful.push(Record { quiet: 1, call: BlockId::NONE, ..branch() });
            }
            Role::Jump => (),
            Role::Landing => {
                self.stay(effects);
                self.open.clear();
            }
        }
        if to.is_asked {
            self.asks(effects);
        }
        self.kept.push(branch());
    }

    /// The last of the doubtful calls, if there are any, and if it is the one: it goes, and with it its
    /// return, which is so many branches.
    #[inline(always)]
    fn goes(&mut self, branches: u8, is_it: impl FnOnce(&Record) -> bool) -> bool {
        let mut gone = u64::from(branches);
        for (number, one) in self.doubtful.iter().enumerate().rev() {
            gone += u64::from(one.quiet);
            if one.call == BlockId::NONE {
                continue;
            }
            let goes = is_it(one);
            if goes {
                self.left_out += gone;
                self.doubtful.truncate(number);
            }
            return goes;
        }
        false
    }

    /// What was doubtful stays: it cannot be said any more that it is not asked about.
    #[inline]
    fn stay(&mut self, effects: &Effects) {
        if !self.doubtful.is_empty() {
            self.all_stay(effects);
        }
    }

    #[cold]
    #[inline(never)]
    fn all_stay(&mut self, effects: &Effects) {
        for record in self.doubtful.drain(..) {
            let EdgeId(first) = record.edge;
            for (edge, id) in effects.edges(record.edge).iter().zip(first..).take(record.quiet.into()) {
                if edge.role == Role::Call {
                    self.open.push(Open { returns_to: edge.to, is_asked: false, has_asked: false });
                }
                self.kept.push(Record { edge: EdgeId(id), ..record });
            }
        }
    }

    /// What runs now is asked about.
    fn asks(&mut self, effects: &Effects) {
        self.stay(effects);
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
    use crate::effects::quiet;

    /// `+f`: a call of f; `-`: the return from it, which the stack knows; `.`: one by a TIP; `>f`: a jump;
    /// `~f`: one into its middle; `!`: a return to another place; `?`: one that the stack knows; `|`:
    /// something else. Capitals are asked about. Words beside each other without a space are one effect.
    fn kept(script: &str) -> String {
        let effects: Vec<Vec<&str>> = script.split(' ').map(words).collect();
        let kept = kept_of(&effects, false);
        assert_eq!(kept_of(&effects, true), kept, "borders on their own in `{script}`");
        let each: Vec<Vec<&str>> = effects.concat().into_iter().map(|word| vec![word]).collect();
        assert_eq!(kept_of(&each, false), kept, "an effect for each word of `{script}`");
        kept
    }

    fn words(effect: &str) -> Vec<&str> {
        let starts = effect.char_indices().filter(|(_, c)| !c.is_alphabetic()).map(|(start, _)| start);
        let ends = starts.clone().skip(1).chain([effect.len()]);
        starts.zip(ends).map(|(start, end)| &effect[start..end]).collect()
    }

    /// A call's number, and the address that it returns to, say how deep it is and who calls: whether that
    /// one is asked about is the same for all that return there. `apart`: borders are added on their own.
    fn kept_of(effects: &[Vec<&str>], apart: bool) -> String {
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
                    work: 0,
                    role,
                    to: Avma(address),
                    from: BlockId(from),
                    from_asked,
                    to_asked,
                    is_behind_first: false,
                    is_last: false,
                });
            }
            edges.last_mut().unwrap().is_last = true;
            let is_other = effect == &["|"];
            records.push(Record {
                at: AuxOffset(0),
                what: if is_other { What::Other } else { What::Effect },
                quiet: if is_other { 0 } else { quiet(&edges[first..]) },
                edge: EdgeId(first as u32),
                call,
                lo: Slot(0),
                slot: Slot(0),
                work: 0,
            });
        }
        let effects_known = Effects::of(edges, &returned_into);
        let mut pruned = Pruned::default();
        let mut rest = &records[..];
        while let Some(border) = rest.iter().position(|record| record.what == What::Other).filter(|_| apart) {
            pruned.add(&rest[..border], false, &effects_known);
            pruned.border(rest[border], &effects_known);
            rest = &rest[border + 1..];
        }
        pruned.add(rest, true, &effects_known);
        let left_out = pruned.end(&effects_known);
        let words = effects.concat();
        assert_eq!(pruned.kept.len() as u64 + left_out, words.len() as u64);
        let kept: Vec<&str> = pruned.kept.iter().map(|record| words[record.edge.0 as usize]).collect();
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
                // Behind a compressed return the stack says where the effect goes on; `|` is none.
                may_join = !matches!(word, "-" | "." | "!" | "?" | "|");
            }
            kept(&script);
        }
    }
}
