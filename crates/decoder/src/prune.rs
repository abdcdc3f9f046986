//! Calls that nobody asked about are left out before they cost anything.
//!
//! A call that returned to where it was made, in the same stretch, says nothing of any function but its own and those
//! it called: if nobody asks about one of these, all of it goes.  What a function in question called stays, without what
//! that called: it is one of its children.
//!
//! ```text
//!   main --> parse --> lex      left out
//!        `-> f --> g --> h      f is asked about: main, f and g stay, h is left out
//! ```
//!
//! Everything else stays: what is open where the stretch ends or tracing does, what does not return where it was called
//! from (exceptions, switches of the stack, returns that are jumps), what is open where control goes into the middle of
//! another function, and what is around.

use model::Avma;

use crate::effects::{Edge, Reached, Role};

/// A call that is open, and stays.
#[derive(Clone, Copy, Debug)]
struct Open {
    returns_to: Avma,
    /// It runs code of a function in question, or runs in place of one.
    is_asked: bool,
    /// ... or something that it called does.
    has_asked: bool,
}

/// What goes with the first of the calls that nobody asked about, when that returns.
#[derive(Clone, Copy, Debug)]
struct Doubtful<T> {
    item: T,
    /// If it is a call.
    returns_to: Option<Avma>,
}

/// One thread's branches, without those that nobody asked about.
pub(crate) struct Pruned<T> {
    /// Everything is asked about: only [`Self::kept`] is used.
    pub(crate) keeps_all: bool,
    /// Of all stretches.
    pub(crate) kept: Vec<T>,
    /// How many of this stretch are not there.
    left_out: u64,
    open: Vec<Open>,
    /// The calls in the last one of these that are no children, and the jumps in them.
    doubtful: Vec<Doubtful<T>>,
}

impl<T> Pruned<T> {
    pub(crate) fn new(keeps_all: bool) -> Self {
        Self { keeps_all, kept: vec![], left_out: 0, open: vec![], doubtful: vec![] }
    }

    /// The stretch ends: how many of its branches are not there.
    pub(crate) fn end(&mut self) -> u64 {
        self.stay();
        self.open.clear();
        std::mem::take(&mut self.left_out)
    }

    /// Something that is no branch, or one that is not of the kind that calls and returns have: all that is open stays.
    pub(crate) fn other(&mut self, item: T) {
        self.stay();
        self.open.clear();
        self.kept.push(item);
    }

    /// The next branch; `is_last` of its stretch, which says how long that was.  `behind`: what it leads to if only the stack knows;
    /// none if nobody does.
    #[inline(always)]
    pub(crate) fn branch(
        &mut self,
        edge: &Edge,
        behind: impl FnOnce() -> Option<Reached>,
        is_last: bool,
        item: impl FnOnce() -> T,
    ) {
        if edge.from_asked {
            self.asks();
        }
        let mut to = edge.to();
        match edge.role {
            Role::Call => {
                // Whose code runs where nothing is known to be open nobody knows.
                let is_child = || self.open.last().is_none_or(|caller| caller.is_asked);
                if !to.is_asked && (!self.doubtful.is_empty() || !is_child()) {
                    return self.doubtful.push(Doubtful { item: item(), returns_to: Some(to.address) });
                }
                self.stay();
                let Reached { address: returns_to, is_asked } = to;
                self.open.push(Open { returns_to, is_asked, has_asked: is_asked });
                return self.kept.push(item());
            }
            Role::Return | Role::ReturnToStack => {
                if edge.role == Role::ReturnToStack {
                    let Some(behind) = behind() else { return };
                    to = behind;
                }
                if !is_last && self.goes(to.address) {
                    return;
                }
                self.stay();
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
                return self.doubtful.push(Doubtful { item: item(), returns_to: None });
            }
            Role::Jump => (),
            Role::Landing => {
                self.stay();
                self.open.clear();
            }
        }
        if to.is_asked {
            self.asks();
        }
        self.kept.push(item());
    }

    /// The last of the doubtful calls, if there are any, and if it returns there: it goes, and its return with it.
    #[inline]
    fn goes(&mut self, to: Avma) -> bool {
        let mut gone = 1;
        for one in self.doubtful.iter().rev() {
            gone += 1;
            match one.returns_to {
                Some(returns_to) if returns_to == to => {
                    self.left_out += gone;
                    self.doubtful.truncate(self.doubtful.len() + 1 - gone as usize);
                    return true;
                }
                Some(_) => return false,
                None => (),
            }
        }
        false
    }

    /// What was doubtful stays: it cannot be said any more that it is not asked about.
    #[inline]
    fn stay(&mut self) {
        if !self.doubtful.is_empty() {
            self.all_stay();
        }
    }

    #[cold]
    #[inline(never)]
    fn all_stay(&mut self) {
        for Doubtful { item, returns_to } in self.doubtful.drain(..) {
            let call = |returns_to| Open { returns_to, is_asked: false, has_asked: false };
            self.open.extend(returns_to.map(call));
            self.kept.push(item);
        }
    }

    /// What runs now is asked about.
    fn asks(&mut self) {
        self.stay();
        if let Some(top) = self.open.last_mut() {
            (top.is_asked, top.has_asked) = (true, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+f`: a call of f; `-`: the return from it; `>f`: a jump; `~f`: one into its middle; `!`: a return to another place.
    /// Capitals are asked about.
    fn kept(script: &str) -> String {
        let mut pruned = Pruned::new(false);
        let mut running = vec!['m'];
        let words: Vec<&str> = script.split(' ').collect();
        for (word, number) in words.iter().zip(1..) {
            let to = word.chars().nth(1);
            let from = running.last().copied().unwrap_or('m');
            let (role, address) = match word.as_bytes()[0] {
                b'|' => {
                    pruned.other(*word);
                    continue;
                }
                b'+' => {
                    running.extend(to);
                    (Role::Call, running.len() as u64)
                }
                b'>' => {
                    *running.last_mut().unwrap() = to.unwrap();
                    (Role::Jump, 0)
                }
                b'~' => {
                    *running.last_mut().unwrap() = to.unwrap();
                    (Role::Landing, 0)
                }
                b'!' => (Role::Return, 99),
                _ => {
                    running.pop();
                    (Role::Return, running.len() as u64 + 1)
                }
            };
            let asked = |name: char| name.is_uppercase();
            let to_asked = running.last().is_some_and(|name| asked(*name));
            let edge = Edge {
                work: 0,
                role,
                to: Avma(address),
                from_asked: asked(from),
                to_asked,
                is_behind_first: false,
                is_last: true,
            };
            pruned.branch(&edge, || None, number == words.len(), || *word);
        }
        assert_eq!(pruned.kept.len() as u64 + pruned.left_out, words.len() as u64);
        pruned.kept.join(" ")
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
}
