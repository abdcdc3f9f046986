//! Compares a run recorded whole with that run recorded with an IP filter: what both reports see of a
//! function in the filter must be the same.
//!
//! ```text
//! whole      main k f h f k main      every entry of f is in the filter's sight,
//! filtered        . f . f .           so each row has its partner, in the order of entries
//! ```
//! Both are simulated with the same dice, so their true times are the same. Entry, end, off-CPU time, depth,
//! caller and children agree, unless a rule of what a filter hides says otherwise: [`Seen`] has these rules,
//! and each row is counted under one of them.

mod children;
mod filtered_code;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::AddAssign;

use analyzer::{CallRow, Caller, FunctionReport, Status};
use model::Tid;

pub use filtered_code::FilteredCode;

use crate::Opened;
use crate::rows::off_cpu_error;

/// One of the two reports on a function.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The recording.
    pub opened: &'a Opened<'a>,
    /// The function.
    pub function: &'a FunctionReport,
}

/// How a call that the filtered report has compares with the same call of the whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// It is the same.
    Alike,
    /// It left the filter by a jump, and ends there: a tail call, or its own part outside.
    LeftByJump,
    /// It was unwound out of sight: it ends when control is next seen in an outer frame, or never.
    UnwoundOutOfSight,
    /// It has a part outside the filter, from which a throw or a return is invisible: it may seem open, and
    /// control that lands in the function may as well have come back from its own part.
    PartOutOfSight,
    /// It had not ended, and the last that was seen of its thread is earlier.
    OpenOutOfSight,
    /// Only with the filter: control came back to a call that had left by a jump to its own part outside, not
    /// to where that part would return: at its entry, or from code that entered the filter from there.
    CameBack,
    /// Tracing began at its first instruction: with the filter that looks as if it was entered there.
    BeganAtEntry,
}

impl Seen {
    const fn name(self) -> &'static str {
        match self {
            Self::Alike => "alike",
            Self::LeftByJump => "left by a jump",
            Self::UnwoundOutOfSight => "unwound out of sight",
            Self::PartOutOfSight => "ended by way of a part out of sight",
            Self::OpenOutOfSight => "open",
            Self::CameBack => "came back",
            Self::BeganAtEntry => "began at its entry",
        }
    }
}

/// What was compared, and what is wrong.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Every row, by what the filter shows of it.
    pub rows: BTreeMap<Seen, u64>,
    /// Children whose number agrees.
    pub children: u64,
    /// Differences that no rule explains, described.
    pub wrong: String,
}

impl Agreement {
    /// The rows that are alike.
    #[must_use]
    pub fn alike(&self) -> u64 {
        self.rows.get(&Seen::Alike).copied().unwrap_or(0)
    }

    fn count(&mut self, seen: Seen) {
        *self.rows.entry(seen).or_default() += 1;
    }
}

impl AddAssign for Agreement {
    fn add_assign(&mut self, other: Self) {
        for (seen, count) in other.rows {
            *self.rows.entry(seen).or_default() += count;
        }
        self.children += other.children;
        self.wrong += &other.wrong;
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<String> =
            self.rows.iter().map(|(seen, count)| format!("{count} {}", seen.name())).collect();
        write!(f, "{}; {} children", rows.join(", "), self.children)
    }
}

/// Compares two reports on the function `symbol`, whose entry is in the filter.
#[must_use]
pub fn compare(symbol: &str, whole: Side<'_>, filtered: Side<'_>, code: &FilteredCode) -> Agreement {
    let mut agreement = Agreement::default();
    let mut threads: BTreeMap<Tid, (Vec<&CallRow>, Vec<&CallRow>)> = BTreeMap::new();
    for row in &whole.function.rows {
        threads.entry(row.id.tid).or_default().0.push(row);
    }
    for row in &filtered.function.rows {
        threads.entry(row.id.tid).or_default().1.push(row);
    }
    for (whole_rows, filtered_rows) in threads.values_mut() {
        // By entry: starts are estimates, and may be equal.
        whole_rows.sort_by_key(|row| row.id.number);
        filtered_rows.sort_by_key(|row| row.id.number);
        let mut pairs = Pairs { code, sides: [whole, filtered], pairs: Vec::new() };
        if let Err(what) = pairs.thread(whole_rows, filtered_rows, &mut agreement) {
            let _ = writeln!(agreement.wrong, "{symbol}: {what}");
        }
    }
    if agreement.wrong.is_empty() {
        children::compare(symbol, whole, filtered, code, &mut agreement);
    }
    agreement
}

/// The rows of one thread.
struct Pairs<'a> {
    code: &'a FilteredCode,
    sides: [Side<'a>; 2],
    /// Those that end differently, or may.
    pairs: Vec<[&'a CallRow; 2]>,
}

impl<'a> Pairs<'a> {
    /// Stops at the first row that is wrong: what follows may be shifted.
    fn thread(
        &mut self,
        whole: &[&'a CallRow],
        filtered: &[&'a CallRow],
        agreement: &mut Agreement,
    ) -> Result<(), String> {
        // Every call of the whole report has its partner.
        let mut more = filtered.len().saturating_sub(whole.len());
        let mut whole = whole.iter().peekable();
        for &other in filtered {
            let pair = match whole.peek() {
                Some(one) if starts_agree(one, other) => {
                    let wrong = |what| format!("{what} differs\n  whole    {one:x?}\n  filtered {other:x?}");
                    self.pair(one, other).map_err(wrong)
                }
                one => Err(format!("only in one: {one:x?}\n  filtered {other:x?}")),
            };
            let only_filtered = || self.only_filtered(other).filter(|_| more > 0);
            let seen = match pair {
                Ok(seen) => {
                    whole.next();
                    seen
                }
                Err(what) => {
                    let seen = only_filtered().ok_or(what)?;
                    more -= 1;
                    seen
                }
            };
            agreement.count(seen);
        }
        whole.next().map_or(Ok(()), |one| Err(format!("only without the filter: {one:x?}")))
    }

    /// How far a call is the same in both, or what differs.
    fn pair(&mut self, whole: &'a CallRow, filtered: &'a CallRow) -> Result<Seen, &'static str> {
        let has_part_outside = !self.code.has_all(self.sides[0].opened, whole.function);
        let seen = ends(whole, filtered, has_part_outside).ok_or("status or end")?;
        if seen != Seen::BeganAtEntry && !self.callers_agree(whole, filtered) {
            return Err("caller");
        }
        if !self.depths_agree(whole, filtered) {
            return Err("depth");
        }
        if seen == Seen::Alike {
            let error = |side: Side<'_>, row| off_cpu_error(side.opened, row);
            let error = error(self.sides[0], whole) + error(self.sides[1], filtered);
            let off_cpu = whole.off_cpu_ns.zip(filtered.off_cpu_ns);
            if off_cpu.is_some_and(|(whole, filtered)| whole.abs_diff(filtered) > error) {
                return Err("off-CPU time");
            }
        }
        // What was found running may have left by a jump, of which its row does not say.
        if seen != Seen::Alike || whole.end.status == Status::OpenStart {
            self.pairs.push([whole, filtered]);
        }
        Ok(seen)
    }

    /// The caller, as far as the filter shows it.
    fn callers_agree(&self, whole: &CallRow, filtered: &CallRow) -> bool {
        // A function that was entered from outside is called by the function that it returns to in sight.
        let returned = filtered.end.status == Status::Complete && !filtered.end.by_jump;
        match (whole.from.caller, filtered.from.caller) {
            (Caller::Function { tail, .. }, Caller::Function { tail: filtered_tail, .. })
                if tail == filtered_tail =>
            {
                whole.from.site == filtered.from.site
            }
            // The jump is out of sight: it is the jumper's caller that is returned to.
            (Caller::Function { tail: true, .. }, _) => {
                !whole.from.site.is_some_and(|site| self.code.has(site))
            }
            // A handler returns to code that no function calls.
            (Caller::Signal, Caller::Signal | Caller::Unknown) | (Caller::Unknown, Caller::Unknown) => true,
            (Caller::Interrupt, Caller::Interrupt) => true,
            (Caller::Function { .. }, Caller::Unknown) => {
                !returned && !whole.from.site.is_some_and(|site| self.code.has(site))
            }
            _ => false,
        }
    }

    /// Calls of the function that are open around this one: in both the same, but for those that end
    /// differently.
    fn depths_agree(&self, whole: &CallRow, filtered: &CallRow) -> bool {
        let start_ns = whole.start_ns.0;
        let error_ns = whole.error_ns + filtered.error_ns;
        // Whether one may be open now, and the other not.
        let may_be_only = |open: &CallRow, ended: &CallRow| {
            end(open) + open.error_ns + error_ns >= start_ns
                && end(ended) <= start_ns + ended.error_ns + error_ns
        };
        let only_whole = self.pairs.iter().filter(|[whole, filtered]| may_be_only(whole, filtered)).count();
        let only_filtered =
            self.pairs.iter().filter(|[whole, filtered]| may_be_only(filtered, whole)).count();
        let [only_whole, only_filtered] = [only_whole, only_filtered].map(|count| count as u32);
        filtered.depth <= whole.depth + only_filtered && whole.depth <= filtered.depth + only_whole
    }

    /// Why a call is in the filtered report alone; `None`: no rule explains it.
    fn only_filtered(&self, row: &CallRow) -> Option<Seen> {
        let left = |[whole, filtered]: &&[&CallRow; 2]| {
            filtered.end.by_jump && row.start_ns.0 <= end(whole) + whole.error_ns + row.error_ns
        };
        let has_part_outside = !self.code.has_all(self.sides[0].opened, row.function);
        (has_part_outside && self.pairs.iter().rev().any(|pair| left(&pair))).then_some(Seen::CameBack)
    }
}

fn end(row: &CallRow) -> u64 {
    row.start_ns.0 + row.latency_ns
}

fn starts_agree(whole: &CallRow, filtered: &CallRow) -> bool {
    whole.start_ns.0.abs_diff(filtered.start_ns.0) <= whole.error_ns + filtered.error_ns
}

/// How the end of a call compares; `None`: not as any rule says.
fn ends(whole: &CallRow, filtered: &CallRow, has_part_outside: bool) -> Option<Seen> {
    let error = whole.error_ns + filtered.error_ns;
    let is_no_later = filtered.latency_ns <= whole.latency_ns + error;
    let is_no_earlier = whole.latency_ns <= filtered.latency_ns + error;
    let is_open = |row: &CallRow| matches!(row.end.status, Status::OpenStart | Status::OpenEnd);
    let is_first = whole.id.number == 0 && filtered.id.number == 0;
    if filtered.end.by_jump {
        // What is ended by it would have ended later, or not at all.
        return (is_no_later || !whole.end.status.counted()).then_some(Seen::LeftByJump);
    }
    match (whole.end.status, filtered.end.status) {
        (one, other) if one == other && is_no_later && is_no_earlier => Some(Seen::Alike),
        (one, other) if one == other && is_open(whole) && is_no_later => Some(Seen::OpenOutOfSight),
        (Status::OpenStart, Status::OpenEnd) if is_first && is_no_later => Some(Seen::BeganAtEntry),
        (Status::OpenStart, Status::Complete | Status::Unwound)
            if is_first && is_no_later && is_no_earlier =>
        {
            Some(Seen::BeganAtEntry)
        }
        (Status::Unwound, Status::Unwound) if is_no_earlier => Some(Seen::UnwoundOutOfSight),
        (Status::Unwound, Status::Unwound) if has_part_outside => Some(Seen::PartOutOfSight),
        (Status::Unwound, Status::OpenEnd) => Some(Seen::UnwoundOutOfSight),
        (Status::Complete, Status::OpenEnd) if has_part_outside && is_no_later => Some(Seen::PartOutOfSight),
        _ => None,
    }
}
