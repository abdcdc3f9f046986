//! The ground truth file.
//!
//! ```text
//! "PTGT0002", u32 time_shift, u32 time_mult, u64 time_zero, u32 threads, u32 0
//! per thread: u32 tid, u32 0, u64 first tsc, u64 bytes, u64 events
//! the threads' event bytes, in that order
//!
//! event: u8 kind | flags, varint (tsc - previous tsc),
//!        zigzag varint (from - previous to), zigzag varint (to - from),
//!        varint each of what was executed in user code since the previous event:
//!        instructions, conditional branches, indirect branches, calls, cycles
//! ```
//!
//! The previous `to` of a thread's first event is 0.  All numbers are little endian.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::ops::{BitOr, Range};
use std::path::{Path, PathBuf};

use model::{Avma, Executed, Ns, Tid, Tsc, TscClock};

const MAGIC: &[u8; 8] = b"PTGT0002";
const HEADER_BYTES: usize = 32;
const THREAD_BYTES: usize = 32;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Direct call.
    Call = 1,
    /// Indirect call.
    IndirectCall = 2,
    /// Return.
    Return = 3,
    /// Direct jump into another function.
    Jump = 4,
    /// Indirect jump into another function.
    IndirectJump = 5,
    /// Taken conditional jump into another function.
    ConditionalJump = 6,
    /// System call; `to` is 0 unless the kernel is traced, too.
    Syscall = 7,
    /// User code was (re)entered from the kernel; `from` is 0 unless that is traced, too. Or tracing was
    /// switched on in kernel code; `from` is 0.
    Enter = 8,
    /// Interrupt or signal; `from` is the next instruction, `to` is 0 unless the kernel is traced, too. Or
    /// tracing was switched off in kernel code; `to` is 0.
    Async = 9,
    /// Packets were lost from here on (internal overflow); `from` is the last visible branch, `to` is 0.
    Overflow = 10,
    /// The overflow is over; `to` is the next instruction, or 0 if that is not in traced code.
    Resume = 11,
    /// A branch from outside the IP filter into it.
    FilterIn = 12,
    /// The scheduler took the thread off its CPU; both addresses are 0.
    SwitchOut = 13,
    /// The AUX buffer was full: tracing stopped until the event was enabled again, which the next event
    /// without [`Flags::LOST`] shows.  `from` is the next instruction, `to` is 0.
    Truncated = 14,
    /// The scheduler put the thread on a CPU; both addresses are 0. With [`Flags::LOST`] packets of that CPU
    /// were being lost.
    SwitchIn = 15,
    /// Bytes of the trace were overwritten: until the next PSB packets tell of nothing. `from` is the next
    /// instruction, `to` is 0.
    Damaged = 16,
}

impl Kind {
    const MASK: u8 = 0x1f;

    const ALL: [Self; 16] = [
        Self::Call,
        Self::IndirectCall,
        Self::Return,
        Self::Jump,
        Self::IndirectJump,
        Self::ConditionalJump,
        Self::Syscall,
        Self::Enter,
        Self::Async,
        Self::Overflow,
        Self::Resume,
        Self::FilterIn,
        Self::SwitchOut,
        Self::Truncated,
        Self::SwitchIn,
        Self::Damaged,
    ];

    /// The kind that the low five bits of `byte` are the number of.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte & Self::MASK).checked_sub(1)?).copied()
    }

    /// Short name for listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::IndirectCall => "calli",
            Self::Return => "ret",
            Self::Jump => "jmp",
            Self::IndirectJump => "jmpi",
            Self::ConditionalJump => "jcc",
            Self::Syscall => "syscall",
            Self::Enter => "enter",
            Self::Async => "async",
            Self::Overflow => "ovf",
            Self::Resume => "resume",
            Self::FilterIn => "filtin",
            Self::SwitchOut => "swout",
            Self::Truncated => "trunc",
            Self::SwitchIn => "swin",
            Self::Damaged => "damage",
        }
    }

    /// A direct, indirect or conditional jump.
    #[must_use]
    pub const fn is_jump(self) -> bool {
        matches!(self, Self::Jump | Self::IndirectJump | Self::ConditionalJump)
    }

    /// A direct or indirect call.
    #[must_use]
    pub const fn is_call(self) -> bool {
        matches!(self, Self::Call | Self::IndirectCall)
    }
}

/// Circumstances of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// The branch left the IP filter.
    pub const FILTER_OUT: Self = Self(0x20);
    /// It happened while packets were being lost: the trace does not show it.
    pub const LOST: Self = Self(0x40);
    /// `Enter`: a signal handler was entered.  `Syscall`: it was rt_sigreturn.
    pub const SIGNAL: Self = Self(0x80);

    /// Those in the upper three bits of `byte`.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte & !Kind::MASK)
    }

    /// All of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One thing that happened in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// Circumstances.
    pub flags: Flags,
    /// When; never decreases within a thread.
    pub tsc: Tsc,
    /// The branch instruction (0: none).
    pub from: Avma,
    /// Where control went (0: unknown).
    pub to: Avma,
    /// What the thread has executed of traced user code up to here.
    pub executed: Executed,
    /// Core cycles that passed in that code, by the trace unit's counter.
    pub cycles: u64,
}

impl Event {
    /// It happened while packets were being lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.flags.has(Flags::LOST)
    }

    /// The branch left the IP filter.
    #[must_use]
    pub const fn left_filter(&self) -> bool {
        self.flags.has(Flags::FILTER_OUT)
    }

    /// It happened in kernel code alone: it is no way in from user code, and no way back.
    #[must_use]
    pub const fn is_in_kernel(&self) -> bool {
        match self.kind {
            Kind::Enter | Kind::FilterIn | Kind::Resume => self.to.is_kernel(),
            _ => self.from.is_kernel(),
        }
    }

    /// A signal handler was entered, or left by rt_sigreturn.
    #[must_use]
    pub const fn is_signal(&self) -> bool {
        self.flags.has(Flags::SIGNAL)
    }
}

/// Collects the events of one thread.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    events: u64,
    first: Tsc,
    last: Tsc,
    last_to: Avma,
    paused: bool,
    /// What the thread has executed of traced user code.
    executed: Executed,
    cycles: u64,
    /// What the last event had of both.
    written: (Executed, u64),
}

impl Writer {
    /// An empty one that records.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// While paused nothing is written: the thread is outside the recorded window.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Nothing is written now.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Sets what was executed up to the next event, and in how many cycles.
    pub fn set_executed(&mut self, executed: Executed, cycles: u64) {
        (self.executed, self.cycles) = (executed, cycles);
    }

    /// The cycles that the last event had.
    #[must_use]
    pub const fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Adds an event.  `tsc` must not be before the last event's; if it is, the last event's is taken.
    #[inline]
    pub fn event(&mut self, kind: Kind, flags: Flags, tsc: Tsc, from: Avma, to: Avma) {
        if self.paused {
            return;
        }
        if self.events == 0 {
            self.first = tsc;
            self.last = tsc;
        }
        self.events += 1;
        self.bytes.push(kind as u8 | flags.0);
        put_varint(&mut self.bytes, tsc.0.saturating_sub(self.last.0));
        put_varint(&mut self.bytes, zigzag(from.minus(self.last_to)));
        put_varint(&mut self.bytes, zigzag(to.minus(from)));
        let (executed, cycles) = self.written;
        let more = self.executed - executed;
        for count in [more.instructions, more.conditional_branches, more.indirect_branches, more.calls] {
            put_varint(&mut self.bytes, count);
        }
        put_varint(&mut self.bytes, self.cycles.saturating_sub(cycles));
        self.written = (executed + more, cycles.max(self.cycles));
        self.last = self.last.max(tsc);
        self.last_to = to;
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Small for small distances in either direction.
fn zigzag(distance: u64) -> u64 {
    let distance = distance as i64;
    ((distance << 1) ^ (distance >> 63)) as u64
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Writes a ground truth file.
///
/// # Errors
/// Whatever the file system says.
pub fn save(path: &Path, clock: TscClock, threads: &[(Tid, &Writer)]) -> io::Result<()> {
    let mut header = MAGIC.to_vec();
    header.extend(u32::from(clock.shift).to_le_bytes());
    header.extend(clock.mult.to_le_bytes());
    header.extend(clock.zero.to_le_bytes());
    header.extend((threads.len() as u32).to_le_bytes());
    header.extend(0u32.to_le_bytes());
    for (tid, writer) in threads {
        header.extend(tid.0.to_le_bytes());
        header.extend(0u32.to_le_bytes());
        header.extend(writer.first.0.to_le_bytes());
        header.extend((writer.bytes.len() as u64).to_le_bytes());
        header.extend(writer.events.to_le_bytes());
    }
    let mut file = BufWriter::new(fs::File::create(path)?);
    file.write_all(&header)?;
    for (_, writer) in threads {
        file.write_all(&writer.bytes)?;
    }
    file.flush()
}

/// Why a ground truth file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not begin as a ground truth file does.
    #[error("not a ground truth file")]
    Magic,
    /// It ends too early.
    #[error("the file ends inside its header or inside a thread's events")]
    Short,
    /// A thread's bytes are not the events that its header promises.
    #[error("thread {}: damaged event {event}", tid.0)]
    Damaged {
        /// The thread.
        tid: Tid,
        /// Number of the first bad event.
        event: u64,
    },
}

/// One thread of a [`File`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// How many events it has.
    pub events: u64,
    /// Time of its first event.
    pub first: Tsc,
    /// Time of its last event.
    pub last: Tsc,
    bytes: Range<usize>,
}

/// A ground truth file in memory.
#[derive(Clone, Debug)]
pub struct File {
    data: Vec<u8>,
    clock: TscClock,
    threads: Vec<Thread>,
}

impl File {
    /// Reads a file and checks all of it.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn load(path: &Path) -> Result<Self, Error> {
        let data = fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::from_bytes(data)
    }

    /// Takes a file's bytes and checks all of them.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn from_bytes(data: Vec<u8>) -> Result<Self, Error> {
        if !data.starts_with(MAGIC) {
            return Err(Error::Magic);
        }
        let clock = TscClock {
            shift: u16::try_from(u32_at(&data, 8)?).unwrap_or(u16::MAX),
            mult: u32_at(&data, 12)?,
            zero: u64_at(&data, 16)?,
        };
        let count = u32_at(&data, 24)? as usize;
        let mut start = count.checked_mul(THREAD_BYTES).ok_or(Error::Short)?.saturating_add(HEADER_BYTES);
        let mut file = Self { data, clock, threads: vec![] };
        for i in 0..count {
            let at = HEADER_BYTES + i * THREAD_BYTES;
            let first = Tsc(u64_at(&file.data, at + 8)?);
            let len = usize::try_from(u64_at(&file.data, at + 16)?).map_err(|_| Error::Short)?;
            let end = start.checked_add(len).filter(|&end| end <= file.data.len()).ok_or(Error::Short)?;
            let tid = Tid(u32_at(&file.data, at)? as i32);
            let events = u64_at(&file.data, at + 24)?;
            let thread = Thread { tid, events, first, last: first, bytes: start..end };
            let last = file.check(&thread)?;
            file.threads.push(Thread { last, ..thread });
            start = end;
        }
        Ok(file)
    }

    /// Time of the last event, if all bytes of the thread are the events it promises.
    fn check(&self, thread: &Thread) -> Result<Tsc, Error> {
        let mut events = self.events(thread);
        let mut found = 0;
        let mut last = thread.first;
        for event in events.by_ref() {
            found += 1;
            last = event.tsc;
        }
        if found != thread.events || !events.bytes.is_empty() {
            return Err(Error::Damaged { tid: thread.tid, event: found });
        }
        Ok(last)
    }

    /// The clock of the simulated recording.
    #[must_use]
    pub fn clock(&self) -> TscClock {
        self.clock
    }

    /// perf's time of a TSC value.
    #[must_use]
    pub fn ns(&self, tsc: Tsc) -> Ns {
        self.clock.to_ns(tsc)
    }

    /// The threads, in the file's order.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The thread with this id.
    #[must_use]
    pub fn thread(&self, tid: Tid) -> Option<&Thread> {
        self.threads.iter().find(|t| t.tid == tid)
    }

    /// The events of one of this file's threads, in order.
    #[must_use]
    pub fn events(&self, thread: &Thread) -> Events<'_> {
        let bytes = self.data.get(thread.bytes.clone()).unwrap_or(&[]);
        let executed = Executed::default();
        Events { bytes, last: thread.first, last_to: Avma(0), executed, cycles: 0, user_only: false }
    }
}

fn u32_at(data: &[u8], at: usize) -> Result<u32, Error> {
    let bytes = data.get(at..).and_then(|d| d.first_chunk()).ok_or(Error::Short)?;
    Ok(u32::from_le_bytes(*bytes))
}

fn u64_at(data: &[u8], at: usize) -> Result<u64, Error> {
    let bytes = data.get(at..).and_then(|d| d.first_chunk()).ok_or(Error::Short)?;
    Ok(u64::from_le_bytes(*bytes))
}

/// Iterates over a thread's events.  Cheap to clone, to look ahead.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    bytes: &'a [u8],
    last: Tsc,
    last_to: Avma,
    executed: Executed,
    cycles: u64,
    user_only: bool,
}

impl Events<'_> {
    /// Without what happened in kernel code alone.
    #[must_use]
    pub fn user_only(self) -> Self {
        Self { user_only: true, ..self }
    }

    fn event(&mut self) -> Option<Event> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        let kind = Kind::from_byte(byte)?;
        let tsc = Tsc(self.last.0.checked_add(self.varint()?)?);
        let from = self.last_to.plus(unzigzag(self.varint()?));
        let to = from.plus(unzigzag(self.varint()?));
        let more = Executed {
            instructions: self.varint()?,
            conditional_branches: self.varint()?,
            indirect_branches: self.varint()?,
            calls: self.varint()?,
            ..Executed::default()
        };
        let executed = self.executed.checked_add(more)?;
        let cycles = self.cycles.checked_add(self.varint()?)?;
        (self.last, self.last_to) = (tsc, to);
        (self.executed, self.cycles) = (executed, cycles);
        Some(Event { kind, flags: Flags::from_byte(byte), tsc, from, to, executed, cycles })
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let whole = self.bytes;
            match self.event() {
                None => {
                    self.bytes = whole; // what is left over is damage
                    return None;
                }
                Some(event) if self.user_only && event.is_in_kernel() => (),
                event => return event,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: TscClock = TscClock { shift: 31, mult: 715_827_883, zero: 1_000 };

    fn event(kind: Kind, flags: Flags, tsc: u64, from: u64, to: u64) -> Event {
        let executed = Executed { instructions: tsc / 2, calls: tsc / 9, ..Executed::default() };
        Event { kind, flags, tsc: Tsc(tsc), from: Avma(from), to: Avma(to), executed, cycles: tsc }
    }

    fn saved(threads: &[(Tid, &Writer)]) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().unwrap();
        save(file.path(), CLOCK, threads).unwrap();
        fs::read(file.path()).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let events: Vec<Event> = Kind::ALL
            .iter()
            .enumerate()
            .map(|(i, &kind)| {
                let i = i as u64;
                let flags = [Flags::NONE, Flags::LOST, Flags::SIGNAL | Flags::FILTER_OUT][i as usize % 3];
                event(kind, flags, 7_000 + (i << (i * 3)), i.wrapping_sub(3), u64::MAX - (i << 40))
            })
            .collect();
        let mut writer = Writer::new();
        for e in &events {
            writer.set_executed(e.executed, e.cycles);
            writer.event(e.kind, e.flags, e.tsc, e.from, e.to);
            writer.set_paused(true);
            writer.event(Kind::Call, Flags::NONE, Tsc(0), Avma(1), Avma(2));
            writer.set_paused(false);
        }
        let file = File::from_bytes(saved(&[(Tid(5), &Writer::new()), (Tid(6), &writer)])).unwrap();
        assert_eq!(file.clock(), CLOCK);
        assert_eq!(file.threads()[0].events, 0);
        let thread = file.thread(Tid(6)).unwrap();
        assert_eq!((thread.first, thread.last), (Tsc(7_000), events.last().unwrap().tsc));
        assert_eq!(file.events(thread).collect::<Vec<_>>(), events);
    }

    #[test]
    fn damage_is_an_error() {
        let mut writer = Writer::new();
        writer.event(Kind::Call, Flags::NONE, Tsc(1), Avma(0x1000), Avma(0x2000));
        writer.event(Kind::Return, Flags::NONE, Tsc(9), Avma(0x2004), Avma(0x1005));
        let good = saved(&[(Tid(5), &writer)]);
        assert!(matches!(File::from_bytes(good[1..].to_vec()), Err(Error::Magic)));
        for len in 8..good.len() {
            assert!(matches!(File::from_bytes(good[..len].to_vec()), Err(Error::Short)), "{len}");
        }
        let mut bad = good.clone();
        bad[HEADER_BYTES + THREAD_BYTES] = 0x1f;
        assert!(matches!(File::from_bytes(bad), Err(Error::Damaged { event: 0, .. })));
        let mut bad = good;
        bad[HEADER_BYTES + 24] += 1;
        assert!(matches!(File::from_bytes(bad), Err(Error::Damaged { event: 2, .. })));
    }
}
