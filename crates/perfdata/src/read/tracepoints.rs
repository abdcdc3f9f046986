//! Samples of scheduler tracepoints: where their fields stand is said by the kernel's own description, which
//! perf copies into the recording (the feature TRACING_DATA; tools/perf/util/trace-event-read.c).
//!
//! ```text
//! 17 08 44 "tracing" version\0 endian long_size page_size:u32
//! "header_page\0"  size:u64 bytes   "header_event\0" size:u64 bytes
//! count:u32 (size:u64 format)*                      ftrace's own
//! count:u32 (system\0 count:u32 (size:u64 format)*)*
//! size:u32 symbols                                  as /proc/kallsyms; perf leaves them out
//! ```

use model::{Avma, Sideband, Tid, Waiting, WakerSeen, Waking};

use super::bytes::{Cursor, text};
use super::sample_id::SampleFields;

/// The state of a task that could run on: none of the bits of `TASK_REPORT` is set. The bit above them says
/// that it was preempted (`R+`).
const TASK_REPORT: u64 = 0xff;
/// In the text about events, before a number of ns: the samples' clock was joined to perf's to within these.
pub(crate) const APART_NS: &str = "# clock joined to within ns: ";
/// `common_flags`: in an interrupt, or in work put off until after one (`TRACE_FLAG_HARDIRQ`,
/// `TRACE_FLAG_SOFTIRQ`).
const IN_INTERRUPT: u64 = 0x08 | 0x10;
/// The last of `PERF_CONTEXT_*`: a value from here on in a call chain is no address, but says which code
/// (kernel, user, ..) the next addresses are of.
const CONTEXTS: u64 = 4095_u64.wrapping_neg();
const CONTEXT_KERNEL: u64 = 128_u64.wrapping_neg();
const CONTEXT_USER: u64 = 512_u64.wrapping_neg();

/// What is known of the tracepoints of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracepoints {
    formats: Formats,
    /// Symbols of the kernel.
    symbols: String,
    /// In our own recordings.
    apart_ns: Option<u64>,
}

/// Where the fields of the tracepoints stand that we use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Formats {
    switch: Option<SwitchFormat>,
    waking: Option<WakingFormat>,
    /// Comes a little later than the other one, and says the same.
    wakeup: Option<WakingFormat>,
}

/// A sample, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracepointSample<'a> {
    /// The tracepoint's number.
    pub(super) id: u64,
    /// The fields of its trailer.
    pub(super) said: SampleFields,
    /// Its fields.
    pub(super) raw: &'a [u8],
    /// Its call chain, addresses of 8 bytes; empty if it has none.
    pub(super) chain: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

/// `sched:sched_switch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SwitchFormat {
    id: u64,
    prev_pid: Field,
    prev_state: Field,
    next_pid: Field,
    /// In our own recordings.
    syscall: Option<Field>,
}

/// `sched:sched_waking` or `sched:sched_wakeup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WakingFormat {
    id: u64,
    flags: Field,
    pid: Field,
    /// In our own recordings.
    waker_comm: Option<Field>,
}

impl Tracepoints {
    /// Takes the recording's tracing data: the first description that can be read, and the first symbols.
    /// Without a description samples say nothing.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let Some((formats, header_event, symbols)) = tracing_data(bytes) else { return };
        if self.formats == Formats::default() {
            self.formats = formats;
        }
        if self.symbols.is_empty() {
            self.symbols = text(symbols);
        }
        self.apart_ns = self.apart_ns.or(apart_ns(&text(header_event)));
    }

    /// How far off the samples' times may be, in ns, if they were taken by another clock.
    pub(super) fn apart_ns(&self) -> Option<u64> {
        self.apart_ns
    }

    /// The kernel's symbols, as text.
    pub(super) fn take_symbols(&mut self) -> String {
        std::mem::take(&mut self.symbols)
    }

    /// What a sample says, if it is of one of our tracepoints.
    pub(super) fn sideband(&self, sample: &TracepointSample<'_>) -> Option<Sideband> {
        let Formats { switch, waking, wakeup } = self.formats;
        if let Some(format) = switch.filter(|format| format.id == sample.id) {
            return format.sideband(sample);
        }
        waking.or(wakeup).filter(|format| format.id == sample.id)?.sideband(sample)
    }
}

impl SwitchFormat {
    fn sideband(&self, sample: &TracepointSample<'_>) -> Option<Sideband> {
        let raw = sample.raw;
        let preempted = self.prev_state.of(raw)? & TASK_REPORT == 0;
        // -1 where it is in none.
        let number = |field: Field| field.of(raw).and_then(|value| u32::try_from(value as u32 as i32).ok());
        let syscall = self.syscall.filter(|_| !preempted).and_then(number);
        Some(Sideband::SchedSwitch {
            prev: self.prev_pid.tid(raw)?,
            preempted,
            next: self.next_pid.tid(raw)?,
            waiting: (!preempted)
                .then(|| Box::new(Waiting { syscall, stack: part_of(sample.chain, CONTEXT_KERNEL) })),
        })
    }
}

impl WakingFormat {
    fn sideband(&self, sample: &TracepointSample<'_>) -> Option<Sideband> {
        let (pid, tid) = sample.said.pid.zip(sample.said.tid)?;
        let name = self.waker_comm.and_then(|field| field.bytes(sample.raw)).map(text).unwrap_or_default();
        let is_perhaps_interrupted = self.flags.of(sample.raw)? & IN_INTERRUPT != 0 || tid.0 == 0;
        let stack = part_of(sample.chain, CONTEXT_KERNEL);
        let user_stack = part_of(sample.chain, CONTEXT_USER);
        let waker = WakerSeen { pid, tid, name, stack, user_stack, is_perhaps_interrupted };
        Some(Sideband::SchedWaking(Box::new(Waking { tid: self.pid.tid(sample.raw)?, waker })))
    }
}

/// The part of a call chain that is after such a mark, innermost first.
fn part_of(chain: &[u8], context: u64) -> Vec<Avma> {
    let addresses = chain.chunks_exact(8).map(|word| Field { offset: 0, size: 8 }.of(word).unwrap_or(0));
    let after = addresses.skip_while(|address| *address != context).skip(1);
    after.take_while(|address| *address < CONTEXTS).map(Avma).collect()
}

impl Field {
    fn bytes(self, raw: &[u8]) -> Option<&[u8]> {
        raw.get(self.offset..)?.get(..self.size)
    }

    /// The value, of which it has 8 bytes at most.
    fn of(self, raw: &[u8]) -> Option<u64> {
        let bytes = self.bytes(raw)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn tid(self, raw: &[u8]) -> Option<Tid> {
        Some(Tid(i32::try_from(self.of(raw)? & 0x7fff_ffff).ok()?))
    }
}

/// What our own recorder writes where perf uses nothing.
fn apart_ns(header_event: &str) -> Option<u64> {
    header_event.lines().find_map(|line| line.strip_prefix(APART_NS))?.trim().parse().ok()
}

/// The formats that we use, the text about events in front of them, and the symbols after them all.
fn tracing_data(bytes: &[u8]) -> Option<(Formats, &[u8], &[u8])> {
    let mut c = Cursor::new(bytes);
    c.take(10).filter(|magic| *magic == b"\x17\x08\x44tracing")?;
    c.terminated()?;
    let _endian_and_long_size = c.take(2)?;
    let _page_size = c.u32()?;
    c.terminated()?;
    let _header_page = sized(&mut c)?;
    c.terminated()?;
    let header_event = sized(&mut c)?;
    for _ in 0..c.u32()? {
        sized(&mut c)?;
    }
    let mut formats = Formats::default();
    for _ in 0..c.u32()? {
        let is_sched = c.terminated()? == b"sched";
        for _ in 0..c.u32()? {
            let format = std::str::from_utf8(sized(&mut c)?).unwrap_or_default();
            if is_sched {
                formats.add(format);
            }
        }
    }
    let symbols = c.u32().and_then(|len| c.take(usize::try_from(len).ok()?)).unwrap_or_default();
    Some((formats, header_event, symbols))
}

/// Takes a length of 64 bits, and that number of bytes.
fn sized<'a>(c: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(c.u64()?).ok()?;
    c.take(len)
}

impl Formats {
    fn add(&mut self, format: &str) {
        match format.lines().find_map(|line| line.strip_prefix("name: ")) {
            Some("sched_switch") => self.switch = SwitchFormat::parse(format),
            Some("sched_waking") => self.waking = WakingFormat::parse(format),
            Some("sched_wakeup") => self.wakeup = WakingFormat::parse(format),
            _ => (),
        }
    }
}

impl SwitchFormat {
    fn parse(format: &str) -> Option<Self> {
        Some(Self {
            id: id(format)?,
            prev_pid: number(format, "prev_pid")?,
            prev_state: number(format, "prev_state")?,
            next_pid: number(format, "next_pid")?,
            syscall: number(format, "prev_syscall"),
        })
    }
}

impl WakingFormat {
    fn parse(format: &str) -> Option<Self> {
        Some(Self {
            id: id(format)?,
            flags: number(format, "common_flags")?,
            pid: number(format, "pid")?,
            waker_comm: field(format, "waker_comm"),
        })
    }
}

fn id(format: &str) -> Option<u64> {
    format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()
}

/// A field of a number.
fn number(format: &str, name: &str) -> Option<Field> {
    field(format, name).filter(|field| field.size <= 8)
}

/// `field:pid_t prev_pid; offset:24; size:4; signed:1;`, with tabs between; an array's name is followed by
/// `[16]`
fn field(format: &str, name: &str) -> Option<Field> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let declared = parts.next()?.rsplit(' ').next()?;
        (declared.split('[').next() == Some(name)).then_some(())?;
        let mut number = |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.parse().ok() };
        Some(Field { offset: number("offset:")?, size: number("size:")? })
    })
}

#[cfg(test)]
mod tests {
    use model::Pid;

    use super::*;

    const FORMAT: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
        \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\nprint fmt: \"prev_comm=%s\"\n";

    const WAKING: &str = "name: sched_waking\nID: 319\nformat:\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n";

    const SYMBOLS: &str = "ffffffff81000000 t schedule\n";

    fn whole() -> Vec<u8> {
        let sized =
            |text: &str| [(text.len() as u64).to_le_bytes().to_vec(), text.as_bytes().to_vec()].concat();
        let count = |n: u32| n.to_le_bytes().to_vec();
        let system = |name: &str, formats: &[&str]| {
            let number = count(formats.len() as u32);
            let formats = formats.iter().map(|format| sized(format)).collect::<Vec<_>>().concat();
            [name.as_bytes().to_vec(), vec![0], number, formats].concat()
        };
        let head = [b"\x17\x08\x44tracing0.6\0\0\x08".to_vec(), count(4096)].concat();
        let pages = [b"header_page\0".to_vec(), sized("x"), b"header_event\0".to_vec(), sized("")].concat();
        let ftrace = [count(1), sized("name: function\nID: 1\n")].concat();
        let irq = system("irq", &["name: irq\nID: 9\n"]);
        let systems = [count(2), irq, system("sched", &[FORMAT, WAKING])].concat();
        let symbols = [count(SYMBOLS.len() as u32), SYMBOLS.as_bytes().to_vec()].concat();
        [head, pages, ftrace, systems, symbols].concat()
    }

    fn raw(state: u64) -> Vec<u8> {
        let mut raw = vec![0; 68];
        raw[24..28].copy_from_slice(&7i32.to_le_bytes());
        raw[32..40].copy_from_slice(&state.to_le_bytes());
        raw[56..60].copy_from_slice(&8i32.to_le_bytes());
        raw
    }

    fn sample<'a>(id: u64, raw: &'a [u8], chain: &'a [u8]) -> TracepointSample<'a> {
        let said = SampleFields { pid: Some(Pid(4)), tid: Some(Tid(5)), ..SampleFields::default() };
        TracepointSample { id, said, raw, chain }
    }

    #[test]
    fn a_switch_by_the_kernels_own_description() {
        let mut tracepoints = Tracepoints::default();
        assert_eq!(tracepoints.sideband(&sample(316, &raw(1), &[])), None, "nothing is described");
        tracepoints.read(&whole());
        assert_eq!(tracepoints.take_symbols(), SYMBOLS);
        let switch = |preempted: bool| {
            let waiting = (!preempted).then(Box::<Waiting>::default);
            Some(Sideband::SchedSwitch { prev: Tid(7), preempted, next: Tid(8), waiting })
        };
        for (state, preempted) in [(0, true), (0x100, true), (1, false), (2, false), (0x80, false)] {
            let said = tracepoints.sideband(&sample(316, &raw(state), &[]));
            assert_eq!(said, switch(preempted), "{state:#x}");
        }
        assert_eq!(tracepoints.sideband(&sample(317, &raw(1), &[])), None, "another tracepoint");
        assert_eq!(tracepoints.sideband(&sample(316, &raw(1)[..59], &[])), None, "cut");
    }

    #[test]
    fn the_kernels_part_of_a_call_chain_is_what_it_waits_in() {
        let mut tracepoints = Tracepoints::default();
        tracepoints.read(&whole());
        let user = 512_u64.wrapping_neg();
        let chain: Vec<u8> =
            [CONTEXT_KERNEL, 0x10, 0x20, user, 0x30].iter().flat_map(|word| word.to_le_bytes()).collect();
        let said = tracepoints.sideband(&sample(316, &raw(1), &chain));
        let Some(Sideband::SchedSwitch { waiting: Some(waiting), .. }) = said else { panic!("{said:?}") };
        assert_eq!(*waiting, Waiting { syscall: None, stack: vec![Avma(0x10), Avma(0x20)] });
    }

    #[test]
    fn who_wakes_and_whether_it_was_interrupted() {
        let mut tracepoints = Tracepoints::default();
        tracepoints.read(&whole());
        for (flags, is_perhaps_interrupted) in [(0, false), (1, false), (8, true), (16, true)] {
            let mut raw = vec![0; 36];
            raw[2] = flags;
            raw[24] = 7;
            let waker = WakerSeen {
                pid: Pid(4),
                tid: Tid(5),
                name: String::new(),
                stack: vec![],
                user_stack: vec![],
                is_perhaps_interrupted,
            };
            let waking = Sideband::SchedWaking(Box::new(Waking { tid: Tid(7), waker }));
            assert_eq!(tracepoints.sideband(&sample(319, &raw, &[])), Some(waking));
        }
    }

    /// What stands after the formats may be missing: perf writes nothing there.
    #[test]
    fn damaged_descriptions_say_nothing() {
        let whole = whole();
        let symbols = 4 + SYMBOLS.len();
        for len in 0..whole.len() {
            let read = tracing_data(&whole[..len]);
            assert_eq!(read.is_some(), len >= whole.len() - symbols, "cut at {len}");
            assert!(read.is_none_or(|(_, _, symbols)| symbols.is_empty()));
        }
        assert_eq!(number("\tfield:pid_t prev_pid;\toffset:24;\tsize:9;", "prev_pid"), None);
        assert_eq!(field("\tfield:pid_t prev_pid;\toffset:x;\tsize:4;", "prev_pid"), None);
    }
}
