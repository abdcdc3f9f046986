//! Text of `perf script --itrace=be --ns -F tid,time,flags,ip,addr` against the truth.
//!
//! perf prints taken branches inside one function, too; the truth does not have them, so that a jump which
//! does not match is passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead};
use std::iter::Peekable;

use model::{Avma, Tid};

use super::histogram::Histogram;
use crate::truth::{Event, Events, File, Kind};

/// What perf was asked to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branches {
    /// All (`--itrace=b`).
    All,
    /// Calls and returns (`--itrace=cr`).
    CallsAndReturns,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Lines with a branch.
    pub lines: u64,
    /// Lines with a trace error: one or more for each loss.
    pub error_lines: u64,
    /// Lines that were not understood.
    pub unknown_lines: u64,
    /// Lines that perf's clock puts after the context switch, so to the next thread on the CPU.
    pub late: u64,
    /// Events that are the same on both sides.
    pub matched: u64,
    /// By kind.
    pub matched_by_kind: BTreeMap<Kind, u64>,
    /// Events of the truth that perf does not have.
    pub left_over: u64,
    /// The first difference of each thread that has one.
    pub mismatches: Vec<String>,
    /// Lines with a time before the last one of their thread.
    pub backward: u64,
    /// Distance between perf's time and the truth.
    pub time_error: Histogram,
}

impl Agreement {
    /// Nothing differs.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.mismatches.is_empty() && self.left_over == 0 && self.unknown_lines == 0
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mismatch in &self.mismatches {
            writeln!(f, "{mismatch}")?;
        }
        let (lines, errors, unknown) = (self.lines, self.error_lines, self.unknown_lines);
        writeln!(f, "lines {lines}, of errors {errors}, not understood {unknown}")?;
        let (left_over, backward, late) = (self.left_over, self.backward, self.late);
        writeln!(
            f,
            "matched {}, left over {left_over}, backward times {backward}, late {late}",
            self.matched
        )?;
        let kinds = self.matched_by_kind.iter().map(|(kind, n)| format!("{} {n}", kind.name()));
        writeln!(f, "matched by kind: {}", kinds.collect::<Vec<_>>().join(", "))?;
        writeln!(f, "|perf - truth| ns: {}", self.time_error)
    }
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ScriptLine<'a> {
    tid: Tid,
    ns: u64,
    flags: Shape,
    text: &'a str,
    from: Avma,
    to: Avma,
}

/// perf's word for a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Call,
    Return,
    Jump,
    Start,
    End,
    /// Into the kernel or out of it.
    Far,
}

impl Shape {
    fn parse(words: &[&str]) -> Option<Self> {
        match words {
            ["call"] => Some(Self::Call),
            ["return"] => Some(Self::Return),
            ["jmp" | "jcc"] => Some(Self::Jump),
            ["tr", "strt", ..] => Some(Self::Start),
            ["tr", "end", ..] => Some(Self::End),
            ["syscall" | "sysret" | "int" | "iret"] | ["hw", "int"] => Some(Self::Far),
            _ => None,
        }
    }

    fn fits(self, event: &Event) -> bool {
        let left = event.left_filter();
        match self {
            Self::Call => event.kind.is_call() && !left,
            Self::Return => event.kind == Kind::Return && !left,
            Self::Jump => event.kind.is_jump() && !left,
            Self::Start => matches!(event.kind, Kind::Enter | Kind::Resume | Kind::FilterIn),
            Self::End => matches!(event.kind, Kind::Syscall | Kind::Async) && event.to == Avma(0) || left,
            Self::Far => matches!(event.kind, Kind::Syscall | Kind::Async | Kind::Enter) && !left,
        }
    }
}

impl<'a> ScriptLine<'a> {
    /// `TID SECONDS.NANOSECONDS: FLAGS.. FROM => TO`
    fn parse(text: &'a str) -> Option<Self> {
        let (left, right) = text.split_once("=>")?;
        let words: Vec<&str> = left.split_ascii_whitespace().collect();
        let [tid, time, flags @ .., from] = words.as_slice() else { return None };
        let (seconds, nanoseconds) = time.strip_suffix(':')?.split_once('.')?;
        let address = |hex| u64::from_str_radix(hex, 16).ok().map(Avma);
        Some(Self {
            tid: Tid(tid.parse().ok()?),
            ns: seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)? + nanoseconds.parse::<u64>().ok()?,
            flags: Shape::parse(flags)?,
            text: text.trim(),
            from: address(from)?,
            to: address(right.split_ascii_whitespace().next()?)?,
        })
    }

    fn is(&self, event: &Event) -> bool {
        // perf gives a conditional jump out of the filter its target as `from`, too.
        let odd_from = event.kind == Kind::ConditionalJump && event.left_filter() && self.from == event.to;
        let same_from = self.from == event.from || event.kind == Kind::FilterIn || odd_from;
        self.flags.fits(event) && same_from && self.to == event.to
    }
}

struct ScriptThread<'a> {
    expected: Peekable<Box<dyn Iterator<Item = Event> + 'a>>,
    differs: bool,
    matched: u64,
    last_ns: u64,
}

/// Whether perf prints it.
fn is_printed(event: &Event, which: Branches) -> bool {
    let only_in_truth = match event.kind {
        Kind::Overflow | Kind::Truncated | Kind::Damaged | Kind::SwitchOut | Kind::SwitchIn => true,
        Kind::Resume => event.to == Avma(0),
        kind => which == Branches::CallsAndReturns && kind.is_jump() && !event.left_filter(),
    };
    !event.is_lost() && !only_in_truth
}

fn thread(events: Events<'_>, which: Branches) -> ScriptThread<'_> {
    let printed: Box<dyn Iterator<Item = Event>> = Box::new(events.filter(move |e| is_printed(e, which)));
    ScriptThread { expected: printed.peekable(), differs: false, matched: 0, last_ns: 0 }
}

/// Reads perf's text and compares.
///
/// # Errors
/// Whatever `script` says.
pub fn compare(truth: &File, mut script: impl BufRead, which: Branches) -> io::Result<Agreement> {
    let mut threads: BTreeMap<Tid, ScriptThread<'_>> =
        truth.threads().iter().map(|t| (t.tid, thread(truth.events(t), which))).collect();
    let mut result = Agreement::default();
    let mut text = String::new();
    loop {
        text.clear();
        if script.read_line(&mut text)? == 0 {
            break;
        }
        if text.contains("instruction trace error") {
            result.error_lines += 1;
        } else if let Some(line) = ScriptLine::parse(&text) {
            result.lines += 1;
            let owner = owner(truth, &mut threads, &line);
            result.late += u64::from(owner != line.tid);
            match threads.get_mut(&owner) {
                Some(thread) => check(truth, thread, &line, &mut result),
                None => result.unknown_lines += u64::from(line.flags != Shape::Jump),
            }
        } else if !text.trim().is_empty() {
            result.unknown_lines += 1;
        }
    }
    for (tid, thread) in threads {
        let left_over = thread.expected.count() as u64;
        if left_over > 0 && !thread.differs {
            result.mismatches.push(format!("thread {}: perf lacks {left_over} events", tid.0));
        }
        result.left_over += left_over;
    }
    Ok(result)
}

/// The thread of a line. perf tells threads apart by time: where its estimate for the last branches of a
/// thread is later than the switch-in record, it prints them with the number of the thread that follows,
/// mostly 0. So a line of a thread that is not in the truth, and an end of tracing that its thread does not
/// have, is of the thread that has it as its next event.
fn owner(truth: &File, threads: &mut BTreeMap<Tid, ScriptThread<'_>>, line: &ScriptLine<'_>) -> Tid {
    let is_next = |thread: &mut ScriptThread<'_>| {
        thread.expected.peek().filter(|e| line.is(e)).map(|e| truth.ns(e.tsc).0)
    };
    if threads.get_mut(&line.tid).is_some_and(|thread| line.flags != Shape::End || is_next(thread).is_some())
    {
        return line.tid;
    }
    let late = threads.iter_mut().filter_map(|(tid, thread)| Some((*tid, is_next(thread)?)));
    late.min_by_key(|(_, ns)| ns.abs_diff(line.ns)).map_or(line.tid, |(tid, _)| tid)
}

fn check(truth: &File, thread: &mut ScriptThread<'_>, line: &ScriptLine<'_>, result: &mut Agreement) {
    if thread.differs {
        return;
    }
    result.backward += u64::from(line.ns < thread.last_ns);
    thread.last_ns = line.ns;
    let Some(event) = thread.expected.next_if(|e| line.is(e)) else {
        if line.flags != Shape::Jump {
            thread.differs = true;
            let expected = thread.expected.peek().map_or("nothing".to_owned(), |e| {
                format!("{} {} -> {} @{}", e.kind.name(), e.from, e.to, truth.ns(e.tsc).0)
            });
            let (tid, matched, text) = (line.tid.0, thread.matched, line.text);
            let differs = format!("thread {tid}: after {matched} events: truth {expected}; perf {text}");
            result.mismatches.push(differs);
        }
        return;
    };
    thread.matched += 1;
    result.matched += 1;
    *result.matched_by_kind.entry(event.kind).or_default() += 1;
    result.time_error.add(line.ns.abs_diff(truth.ns(event.tsc).0));
}

#[cfg(test)]
mod tests {
    use model::{Tsc, TscClock};

    use super::*;
    use crate::truth::{Flags, Writer, save};

    #[test]
    fn lines_of_perf_script() {
        let check = |text, expect: Option<(i32, u64, Shape, u64, u64)>| {
            let line = ScriptLine::parse(text).map(|l| (l.tid.0, l.ns, l.flags, l.from.0, l.to.0));
            assert_eq!(line, expect, "{text}");
        };
        check(
            "  9641   417.000966491:   tr strt                     0 =>     7f2a1b00 ",
            Some((9641, 417_000_966_491, Shape::Start, 0, 0x7f2a_1b00)),
        );
        check("1 0.000000002: call 10 => 20", Some((1, 2, Shape::Call, 0x10, 0x20)));
        check("1 0.000000002: tr end  call 10 => 0", Some((1, 2, Shape::End, 0x10, 0)));
        check("1 0.000000002: jcc 10 => 20", Some((1, 2, Shape::Jump, 0x10, 0x20)));
        check(" instruction trace error type 1 cpu 0", None);
        check("1 0.000000002: hw int 10 => 20", Some((1, 2, Shape::Far, 0x10, 0x20)));
        check("1 0.000000002: vmentry 10 => 20", None);
    }

    /// One tick is one ns.
    const CLOCK: TscClock = TscClock { shift: 0, mult: 1, zero: 0 };

    /// Two threads that leave the CPU at the same place, thread 7 at 100 ns and thread 8 at 200 ns.
    fn two_threads() -> File {
        let thread = |ns| {
            let mut writer = Writer::new();
            writer.event(Kind::Enter, Flags::NONE, Tsc(ns), Avma(0), Avma(0x10));
            writer.event(Kind::Async, Flags::NONE, Tsc(ns), Avma(0x18), Avma(0));
            writer
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        save(file.path(), CLOCK, &[(Tid(7), &thread(100)), (Tid(8), &thread(200))]).unwrap();
        File::load(file.path()).unwrap()
    }

    #[test]
    fn what_perf_puts_after_the_switch_is_of_the_thread_that_left() {
        let check = |text: &str, late, agrees| {
            let agreement = compare(&two_threads(), text.as_bytes(), Branches::All).unwrap();
            assert_eq!((agreement.late, agreement.agrees()), (late, agrees), "{text}\n{agreement}");
        };
        let strt = "7 0.000000100: tr strt 0 => 10\n8 0.000000200: tr strt 0 => 10\n";
        check(
            &format!("{strt}7 0.000000100: tr end async 18 => 0\n8 0.000000200: tr end async 18 => 0\n"),
            0,
            true,
        );
        check(
            &format!("{strt}0 0.000000300: tr end async 18 => 0\n7 0.000000100: tr end async 18 => 0\n"),
            1,
            true,
        );
        check(
            &format!("{strt}7 0.000000100: tr end async 18 => 0\n7 0.000000201: tr end async 18 => 0\n"),
            1,
            true,
        );
        check(
            &format!("{strt}7 0.000000100: tr end async 18 => 0\n0 0.000000201: tr end async 19 => 0\n"),
            0,
            false,
        );
        check(
            &format!("{strt}7 0.000000100: tr end async 18 => 0\n0 0.000000201: return 18 => 0\n"),
            0,
            false,
        );
    }
}
