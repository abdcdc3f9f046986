//! Samples of scheduler tracepoints: where their fields stand is said by the kernel's own description, which perf
//! copies into the recording (the feature TRACING_DATA; tools/perf/util/trace-event-read.c).
//!
//! ```text
//! 17 08 44 "tracing" version\0 endian long_size page_size:u32
//! "header_page\0"  size:u64 bytes   "header_event\0" size:u64 bytes
//! count:u32 (size:u64 format)*                      ftrace's own
//! count:u32 (system\0 count:u32 (size:u64 format)*)*
//! ```

use model::{Sideband, Tid};

use super::bytes::Cursor;

/// The state of a task that could run on: none of the bits of `TASK_REPORT` is set.  The bit above them says that it
/// was preempted (`R+`).
const TASK_REPORT: u64 = 0xff;

/// What is known of the tracepoints of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracepoints {
    switch: Option<SwitchFormat>,
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
}

impl Tracepoints {
    /// Takes the recording's tracing data.  Without a description that can be read, samples say nothing.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.switch = self.switch.or_else(|| sched_switch_format(bytes));
    }

    /// What a sample of the tracepoint `id` says, if that is `sched_switch`.
    pub(super) fn sched_switch(&self, id: u64, raw: &[u8]) -> Option<Sideband> {
        let format = self.switch.filter(|format| format.id == id)?;
        let tid = |field: Field| Some(Tid(i32::try_from(field.of(raw)? & 0x7fff_ffff).ok()?));
        Some(Sideband::SchedSwitch {
            prev: tid(format.prev_pid)?,
            preempted: format.prev_state.of(raw)? & TASK_REPORT == 0,
            next: tid(format.next_pid)?,
        })
    }
}

impl Field {
    /// The value, which has at most 8 bytes.
    fn of(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(self.offset..)?.get(..self.size)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

fn sched_switch_format(bytes: &[u8]) -> Option<SwitchFormat> {
    let mut c = Cursor::new(bytes);
    c.take(10).filter(|magic| *magic == b"\x17\x08\x44tracing")?;
    c.terminated()?;
    let _endian_and_long_size = c.take(2)?;
    let _page_size = c.u32()?;
    for _ in ["header_page", "header_event"] {
        c.terminated()?;
        sized(&mut c)?;
    }
    for _ in 0..c.u32()? {
        sized(&mut c)?;
    }
    for _ in 0..c.u32()? {
        let is_sched = c.terminated()? == b"sched";
        for _ in 0..c.u32()? {
            let format = std::str::from_utf8(sized(&mut c)?).unwrap_or_default();
            if is_sched && format.lines().any(|line| line == "name: sched_switch") {
                return SwitchFormat::parse(format);
            }
        }
    }
    None
}

/// A length of 64 bits and as many bytes.
fn sized<'a>(c: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(c.u64()?).ok()?;
    c.take(len)
}

impl SwitchFormat {
    fn parse(format: &str) -> Option<Self> {
        let id = format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        Some(Self {
            id,
            prev_pid: field(format, "prev_pid")?,
            prev_state: field(format, "prev_state")?,
            next_pid: field(format, "next_pid")?,
        })
    }
}

/// `field:pid_t prev_pid; offset:24; size:4; signed:1;`, with tabs between
fn field(format: &str, name: &str) -> Option<Field> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        parts.next()?.rsplit(' ').next().filter(|last| *last == name)?;
        let mut number = |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.parse().ok() };
        let (offset, size) = (number("offset:")?, number("size:")?);
        (size <= 8).then_some(Field { offset, size })
    })
}

#[cfg(test)]
mod tests {
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

    fn tracing_data() -> Vec<u8> {
        let sized =
            |text: &str| [(text.len() as u64).to_le_bytes().to_vec(), text.as_bytes().to_vec()].concat();
        let count = |n: u32| n.to_le_bytes().to_vec();
        let system = |name: &str, formats: &[&str]| {
            let formats = formats.iter().map(|format| sized(format)).collect::<Vec<_>>().concat();
            [name.as_bytes().to_vec(), vec![0], count(1), formats].concat()
        };
        let head = [b"\x17\x08\x44tracing0.6\0\0\x08".to_vec(), count(4096)].concat();
        let pages = [b"header_page\0".to_vec(), sized("x"), b"header_event\0".to_vec(), sized("")].concat();
        let ftrace = [count(1), sized("name: function\nID: 1\n")].concat();
        let systems = [count(2), system("irq", &["name: irq\nID: 9\n"]), system("sched", &[FORMAT])].concat();
        [head, pages, ftrace, systems].concat()
    }

    fn raw(state: u64) -> Vec<u8> {
        let mut raw = vec![0; 68];
        raw[24..28].copy_from_slice(&7i32.to_le_bytes());
        raw[32..40].copy_from_slice(&state.to_le_bytes());
        raw[56..60].copy_from_slice(&8i32.to_le_bytes());
        raw
    }

    #[test]
    fn a_switch_by_the_kernels_own_description() {
        let mut tracepoints = Tracepoints::default();
        assert_eq!(tracepoints.sched_switch(316, &raw(1)), None, "nothing is described");
        tracepoints.read(&tracing_data());
        let switch = |preempted| Some(Sideband::SchedSwitch { prev: Tid(7), preempted, next: Tid(8) });
        for (state, preempted) in [(0, true), (0x100, true), (1, false), (2, false), (0x80, false)] {
            assert_eq!(tracepoints.sched_switch(316, &raw(state)), switch(preempted), "{state:#x}");
        }
        assert_eq!(tracepoints.sched_switch(317, &raw(1)), None, "another tracepoint");
        assert_eq!(tracepoints.sched_switch(316, &raw(1)[..59]), None, "cut");
    }

    #[test]
    fn damaged_descriptions_say_nothing() {
        let whole = tracing_data();
        assert!(sched_switch_format(&whole).is_some());
        for len in 0..whole.len() {
            assert_eq!(sched_switch_format(&whole[..len]), None, "cut at {len}");
        }
        assert_eq!(field("\tfield:pid_t prev_pid;\toffset:24;\tsize:9;", "prev_pid"), None);
        assert_eq!(field("\tfield:pid_t prev_pid;\toffset:x;\tsize:4;", "prev_pid"), None);
    }
}
