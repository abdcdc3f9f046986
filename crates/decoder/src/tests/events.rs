//! What a case expects: one line per event, as `dump --branches` has them, with labels for addresses.
//!
//! ```text
//! start f · resume f · call f -> g · return g -> f+0x5 · end syscall f+0x7 · gap overflow, 0 bytes
//! call f -> g @ 2000 [1998 2003]      with times: the estimate, and the bounds
//! 8: start f                          on a CPU's buffer: the thread
//! call g -> g (64 times)
//! ```

use model::{
    AsyncCause, AuxOwner, EndKind, EventSink, EventTime, GapCause, Pid, SpaceId, Tid, TraceEvent, Transfer,
};

use super::code::Code;

pub(super) struct Text<'a> {
    code: &'a Code,
    threads: bool,
    times: bool,
    overflows: u64,
    lines: Vec<String>,
}

impl<'a> Text<'a> {
    pub(super) fn new(code: &'a Code, threads: bool, times: bool) -> Self {
        Self { code, threads, times, overflows: 0, lines: vec![] }
    }

    /// One line per event; equal ones in a row are one. Then how many overflows there were, if not all are
    /// gaps of their own.
    pub(super) fn into_lines(mut self) -> Vec<String> {
        let gaps = self.lines.iter().filter(|line| line.contains("gap overflow")).count() as u64;
        if self.overflows != gaps {
            self.lines.push(format!("overflows: {}", self.overflows));
        }
        let runs = self.lines.chunk_by(|a, b| a == b);
        runs.map(|run| match run.len() {
            1 => run[0].clone(),
            times => format!("{} ({times} times)", run[0]),
        })
        .collect()
    }

    fn event(&self, event: &TraceEvent) -> String {
        let (what, time) = match event {
            TraceEvent::Branch(branch) => (self.transfer(&branch.transfer), self.time(branch.time)),
            TraceEvent::Gap(gap) => {
                let at = match gap.cause {
                    GapCause::Desync { ip }
                    | GapCause::UnmappedCode { ip }
                    | GapCause::NarrowCode { ip }
                    | GapCause::UnknownInstruction { ip } => {
                        format!(" at {}", self.code.name(ip))
                    }
                    _ => String::new(),
                };
                let what = format!("gap {}{at}, {} bytes", gap.cause.name(), gap.bytes);
                let until = if self.times { format!(" to{}", self.time(gap.to)) } else { String::new() };
                (what, self.time(gap.from) + &until)
            }
        };
        what + &time
    }

    fn transfer(&self, transfer: &Transfer) -> String {
        let name = |ip| self.code.name(ip);
        match *transfer {
            Transfer::Branch { kind, from, to } => {
                format!("{} {} -> {}", kind.name(), name(from.ip), name(to.ip))
            }
            Transfer::Start { to, after_gap: false } => format!("start {}", name(to.ip)),
            Transfer::Start { to, after_gap: true } => format!("resume {}", name(to.ip)),
            Transfer::End { kind, from, to } => {
                let to = to.map_or(String::new(), |to| format!(" -> {}", name(to)));
                let kind = match kind {
                    EndKind::Syscall => "syscall",
                    EndKind::Async(AsyncCause::Unknown) => "async",
                    EndKind::Async(AsyncCause::Interrupt(vector)) => {
                        return format!("end interrupt {vector} {}{to}", name(from.ip));
                    }
                    EndKind::Async(AsyncCause::Fault(vector)) => {
                        return format!("end fault {vector} {}{to}", name(from.ip));
                    }
                    EndKind::Async(AsyncCause::Other) => "event",
                    EndKind::Branch(kind) => kind.name(),
                    EndKind::FallThrough => "fall-through",
                    EndKind::Skipped => "skipped",
                };
                format!("end {kind} {}{to}", name(from.ip))
            }
        }
    }

    fn time(&self, time: EventTime) -> String {
        if !self.times {
            return String::new();
        }
        format!(" @ {} [{} {}]", time.point.0, time.lo.0, time.hi.0)
    }
}

impl EventSink for Text<'_> {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        assert!(self.threads || matches!(tid, Tid(7 | -1)), "only thread 7 is traced");
        for event in events {
            let thread = match tid {
                Tid(tid) if self.threads => format!("{tid}: "),
                Tid(-1) => "nobody: ".to_owned(),
                _ => String::new(),
            };
            let line = thread + &self.event(event);
            self.lines.push(line);
        }
    }

    fn overflows(&mut self, _: AuxOwner, count: u64) {
        self.overflows += count;
    }
}
