//! What the programs write, byte by byte: `bpf/probes.h`.
//!
//! A test holds the sizes and places against the types that the compiled object has.

use model::{
    Avma, Cpu, LostCalls, Ns, OffCpuInterval, OffCpuSplit, Pid, ProbedCall, ProbedEnd, ProbedThread, Tid,
    WakerSeen,
};

/// Bytes of a `struct call`.
const CALL_BYTES: usize = 120;
/// Bytes of a `struct frame`.
const FRAME_BYTES: usize = 88;
/// Where the frames of a `struct thread` begin.
const FRAMES_AT: usize = 664;
/// Where its number is.
const TID_AT: usize = 656;
/// `MAX_DEPTH`.
pub(crate) const MAX_DEPTH: usize = 128;
/// Bytes of a `struct thread`.
pub(crate) const THREAD_BYTES: usize = FRAMES_AT + MAX_DEPTH * FRAME_BYTES;

/// What a probe does; several at one place do one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A call begins.
    Entry = 1,
    /// It returns.
    Return = 2,
    /// It jumps out of its function.
    Jump = 4,
    /// It jumps to its own first instruction.
    Loop = 8,
    /// The call is of a region, which is known by the frame that it is in.
    Region = 16,
    /// That frame is known by `rbp`, else by `rsp`.
    ByRbp = 32,
}

/// What a hit of a probe does: `enum mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is counted.
    Count = 0,
    /// Calls of the functions that were asked for are timed.
    Asked = 1,
    /// Those of their children, too.
    All = 2,
    /// Nothing is recorded.
    Off = 3,
}

/// A `struct function`.
pub(crate) fn function(first_part_len: u64, is_rewritten: bool, is_timed: bool) -> Vec<u8> {
    let flags = [is_rewritten, is_timed].map(|flag| u32::from(flag).to_ne_bytes());
    [&first_part_len.to_ne_bytes()[..], flags.as_flattened()].concat()
}

/// "There is no condition", "there is no register".
pub(crate) const NONE: u8 = 0xff;

/// Bytes of a `struct interval`.
const INTERVAL_BYTES: usize = 584;
/// `STACK_LEN`.
const STACK_LEN: usize = 16;
/// `WAKER_STACK_LEN`.
const WAKER_STACK_LEN: usize = 32;
/// `WAKER_USER_STACK_LEN`.
const WAKER_USER_STACK_LEN: usize = 16;
const WAKER_STACK_AT: usize = 192;
const WAKER_USER_STACK_AT: usize = 448;
const IS_PREEMPTED_AT: usize = 576;
const IS_INTERRUPT_AT: usize = 577;

/// What is told in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A thread with open calls was off the CPU.
    OffCpu(OffCpuInterval),
    /// A call has ended.
    Call(ProbedCall),
    /// A thread has ended.
    Thread(ProbedThread),
}

/// A record of the ring: the calls of its thread that were lost before it, and what it tells. `None`: it is
/// none of ours.
pub(crate) fn record(bytes: &[u8]) -> Option<(Option<LostCalls>, Told)> {
    // The two kinds are known by their lengths.
    if bytes.len() >= INTERVAL_BYTES {
        return Some((None, Told::OffCpu(interval(bytes))));
    }
    let bytes = bytes.get(..CALL_BYTES)?;
    let (how, is_child) = (*bytes.get(118)?, *bytes.get(119)? != 0);
    let u64_at = |at| long(bytes, at);
    let u32_at = |at| word(bytes, at);
    let tid = Tid(u32_at(104) as i32);
    let (start, end) = (Ns(u64_at(0)), Ns(u64_at(8)));
    let lost = lost_calls(tid, u64_at(88), u64_at(72), u64_at(80));
    if how == THREAD_ENDED {
        return Some((lost, Told::Thread(ProbedThread { tid, born: start, died: Some(end) })));
    }
    let call = ProbedCall {
        function: u32_at(96) as usize,
        pid: Pid(u32_at(100) as i32),
        tid,
        cpu: Cpu(u32_at(108)),
        start,
        end,
        off_cpu: off_cpu(bytes, 16),
        return_address: address(u64_at(40)),
        entry: Avma(u64_at(48)),
        number: u64_at(56),
        parent: is_child.then(|| u64_at(64)),
        probes: u64::from(u32_at(112)),
        depth: u32_at(116) & 0xffff,
        end_kind: end_kind(how)?,
    };
    Some((lost, Told::Call(call)))
}

fn interval(bytes: &[u8]) -> OffCpuInterval {
    let is_preempted = bytes.get(IS_PREEMPTED_AT).is_some_and(|byte| *byte != 0);
    let woken = Some(Ns(long(bytes, 8))).filter(|woken| woken.0 != 0 && !is_preempted);
    let syscall = u32::try_from(word(bytes, 36) as i32).ok();
    let has_stack = syscall.is_none() && !is_preempted;
    OffCpuInterval {
        tid: Tid(word(bytes, 32) as i32),
        out: Ns(long(bytes, 0)),
        woken,
        back: Ns(long(bytes, 16)),
        is_preempted,
        outermost: long(bytes, 24),
        syscall,
        stack: stack(bytes, 64, if has_stack { STACK_LEN } else { 0 }),
        waker: woken.map(|_| waker(bytes)),
    }
}

fn waker(bytes: &[u8]) -> WakerSeen {
    let name = bytes.get(48..64).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    WakerSeen {
        pid: Pid(word(bytes, 40) as i32),
        tid: Tid(word(bytes, 44) as i32),
        name: String::from_utf8_lossy(name).into_owned(),
        stack: stack(bytes, WAKER_STACK_AT, WAKER_STACK_LEN),
        user_stack: stack(bytes, WAKER_USER_STACK_AT, WAKER_USER_STACK_LEN),
        is_perhaps_interrupted: bytes.get(IS_INTERRUPT_AT).is_some_and(|byte| *byte != 0),
    }
}

/// Addresses up to a zero, or up to `len`.
pub(crate) fn stack(bytes: &[u8], at: usize, len: usize) -> Vec<Avma> {
    (0..len).map_while(|index| address(long(bytes, at + 8 * index))).collect()
}

/// `enum record_kind`, of calls that have ended.
const fn end_kind(how: u8) -> Option<ProbedEnd> {
    Some(match how {
        0 => ProbedEnd::Return,
        1 => ProbedEnd::Jump,
        2 => ProbedEnd::Unseen,
        3 => ProbedEnd::ThreadEnd,
        4 => ProbedEnd::NoEntry,
        5 => ProbedEnd::Unwound,
        6 => ProbedEnd::Anew,
        _ => return None,
    })
}
/// A thread has ended.
const THREAD_ENDED: u8 = 7;

fn off_cpu(bytes: &[u8], at: usize) -> OffCpuSplit {
    let [blocked_ns, runnable_ns, preempted_ns] = [at, at + 8, at + 16].map(|at| long(bytes, at));
    OffCpuSplit { blocked_ns, runnable_ns, preempted_ns }
}

fn address(value: u64) -> Option<Avma> {
    (value != 0).then_some(Avma(value))
}

fn lost_calls(tid: Tid, count: u64, from: u64, to: u64) -> Option<LostCalls> {
    (count > 0).then_some(LostCalls { tid, count, from: Ns(from), to: Ns(to) })
}

/// A `struct thread` as it was when the probes had been removed.
pub(crate) struct ThreadState {
    /// Its life.
    pub(crate) life: ProbedThread,
    /// Calls that were lost since its last record.
    pub(crate) lost: Option<LostCalls>,
    /// Calls that were open, outermost first; up to when the probes were removed, at `now`.
    pub(crate) open: Vec<ProbedCall>,
}

/// The state of a thread; `None`: it is none of ours.
pub(crate) fn thread(bytes: &[u8], now: Ns) -> Option<ThreadState> {
    let bytes = bytes.get(..THREAD_BYTES)?;
    let tid = Tid(word(bytes, TID_AT) as i32);
    let u64_at = |at| long(bytes, at);
    let whole = Thread {
        tid,
        pid: Pid(word(bytes, 104) as i32),
        now,
        probes: u64_at(48),
        off_cpu: so_far(bytes, now),
    };
    let depth = word(bytes, 108) as usize;
    let mut open: Vec<ProbedCall> = Vec::new();
    for frame in bytes.get(FRAMES_AT..)?.chunks_exact(FRAME_BYTES).take(depth) {
        open.push(whole.open_call(frame, open.last().map(|parent| parent.number)));
    }
    let died = Some(Ns(u64_at(72))).filter(|died| died.0 != 0);
    let life = ProbedThread { tid, born: Ns(u64_at(64)), died };
    Some(ThreadState { life, lost: lost_calls(tid, u64_at(80), u64_at(88), u64_at(96)), open })
}

/// What frames of a thread share.
struct Thread {
    tid: Tid,
    pid: Pid,
    now: Ns,
    probes: u64,
    off_cpu: OffCpuSplit,
}

impl Thread {
    fn open_call(&self, frame: &[u8], parent: Option<u64>) -> ProbedCall {
        let is_child = frame.get(82).is_some_and(|byte| *byte != 0);
        let at_entry = off_cpu(frame, 16);
        ProbedCall {
            function: word(frame, 72) as usize,
            pid: self.pid,
            tid: self.tid,
            cpu: Cpu(word(frame, 76)),
            start: Ns(long(frame, 8)),
            end: self.now,
            off_cpu: OffCpuSplit {
                blocked_ns: self.off_cpu.blocked_ns.saturating_sub(at_entry.blocked_ns),
                runnable_ns: self.off_cpu.runnable_ns.saturating_sub(at_entry.runnable_ns),
                preempted_ns: self.off_cpu.preempted_ns.saturating_sub(at_entry.preempted_ns),
            },
            return_address: address(long(frame, 40)),
            entry: Avma(long(frame, 64)),
            number: long(frame, 48),
            parent: parent.filter(|_| is_child),
            probes: self.probes.saturating_sub(long(frame, 56)),
            depth: word(frame, 80) & 0xffff,
            end_kind: ProbedEnd::Open,
        }
    }
}

/// Off the CPU up to `now`, where the thread may be off it: as `comes_back` of the programs.
fn so_far(thread: &[u8], now: Ns) -> OffCpuSplit {
    let mut off_cpu = off_cpu(thread, 0);
    let (out, woken) = (long(thread, 24), long(thread, 32));
    if out == 0 {
        return off_cpu;
    }
    let woken = if woken < out { now.0 } else { woken };
    let add = |sum: &mut u64, from: u64, to: u64| *sum = sum.saturating_add(to.saturating_sub(from));
    if thread.get(112).is_some_and(|is_preempted| *is_preempted != 0) {
        add(&mut off_cpu.preempted_ns, out, now.0);
    } else {
        add(&mut off_cpu.blocked_ns, out, woken);
        add(&mut off_cpu.runnable_ns, woken, now.0);
    }
    off_cpu
}

pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::Struct;
    use libbpf_rs::btf::{Btf, HasSize};

    use super::*;

    /// It overflowed.
    #[test]
    fn more_time_off_the_cpu_than_fits_is_as_much_as_fits() {
        let mut thread = [0; THREAD_BYTES];
        thread[..8].copy_from_slice(&(u64::MAX - 5).to_ne_bytes());
        thread[24..32].copy_from_slice(&100_u64.to_ne_bytes());
        thread[32..40].copy_from_slice(&120_u64.to_ne_bytes());
        let split = OffCpuSplit { blocked_ns: u64::MAX, runnable_ns: 30, preempted_ns: 0 };
        assert_eq!(so_far(&thread, Ns(150)), split);
    }

    /// Sizes and places are those of the C structures that were compiled.
    #[test]
    fn the_object_has_these_structures() {
        let btf = Btf::from_raw("probes", crate::programs::OBJECT).unwrap().unwrap();
        let check = |name: &str, bytes: usize, fields: &[(&str, usize)]| {
            let of: Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("struct {name}"));
            assert_eq!(of.size(), bytes, "{name}");
            for (field, at) in fields {
                let member = of.iter().find(|m| m.name.is_some_and(|n| n == *field)).unwrap();
                let libbpf_rs::btf::types::MemberAttr::Normal { offset } = member.attr else {
                    panic!("{field}")
                };
                assert_eq!(offset as usize / 8, *at, "{name}.{field}");
            }
        };
        let call = [
            ("start", 0),
            ("end", 8),
            ("blocked", 16),
            ("caller", 40),
            ("entry", 48),
            ("number", 56),
            ("parent", 64),
            ("lost_from", 72),
            ("lost_to", 80),
            ("lost", 88),
            ("function", 96),
            ("pid", 100),
            ("tid", 104),
            ("cpu", 108),
            ("probes", 112),
            ("depth", 116),
            ("how", 118),
            ("is_child", 119),
        ];
        check("call", CALL_BYTES, &call);
        check(
            "function",
            function(0, false, false).len(),
            &[("length", 0), ("is_rewritten", 8), ("is_timed", 12)],
        );
        check("hits", 16, &[("entries", 0), ("others", 8)]);
        check("cpu", 16, &[("inside", 0), ("child_hit", 8)]);
        let frame = [
            ("start", 8),
            ("blocked", 16),
            ("caller", 40),
            ("number", 48),
            ("probes", 56),
            ("entry", 64),
            ("function", 72),
            ("cpu", 76),
            ("depth", 80),
            ("is_child", 82),
        ];
        check("frame", FRAME_BYTES, &frame);
        let interval = [
            ("out", 0),
            ("woken", 8),
            ("in", 16),
            ("outermost", 24),
            ("tid", 32),
            ("syscall", 36),
            ("waker_pid", 40),
            ("waker_tid", 44),
            ("waker_comm", 48),
            ("stack", 64),
            ("waker_stack", WAKER_STACK_AT),
            ("waker_user_stack", WAKER_USER_STACK_AT),
            ("is_preempted", IS_PREEMPTED_AT),
            ("is_interrupt", IS_INTERRUPT_AT),
        ];
        check("interval", INTERVAL_BYTES, &interval);
        let thread = [
            ("blocked", 0),
            ("out", 24),
            ("woken", 32),
            ("probes", 48),
            ("born", 64),
            ("died", 72),
            ("lost", 80),
            ("lost_from", 88),
            ("lost_to", 96),
            ("pid", 104),
            ("depth", 108),
            ("is_preempted", 112),
            ("tid", TID_AT),
            ("frames", FRAMES_AT),
        ];
        check("thread", THREAD_BYTES, &thread);
    }
}
