//! Events of the scheduler as samples of its tracepoints, which perf prints, too.
//!
//! The samples are ours, so are their descriptions (the feature TRACING_DATA, read by `read::tracepoints`):
//! the kernel's own fields at the kernel's own places, and one more each. Nothing of the recording machine's
//! tracefs is needed, which only root may read.
//!
//! ```text
//! SAMPLE  id  ip  pid tid  time  cpu  n  PERF_CONTEXT_KERNEL addresses  PERF_CONTEXT_USER addresses
//!         size  fields
//! ```

use model::{Ns, SchedBody, SchedEvent, SchedTask};

use super::event::{Attr, Event, EventId, PERF_TYPE_TRACEPOINT};
use super::le::Append;
use crate::read::APART_NS;

use super::record::{patch_size, user_record};
use crate::record_types::{HEADER_EVENT_TYPE, MISC_KERNEL, SAMPLE};

const CONTEXT_KERNEL: u64 = 128_u64.wrapping_neg();
const CONTEXT_USER: u64 = 512_u64.wrapping_neg();
/// `common_flags`: in an interrupt.
const TRACE_FLAG_HARDIRQ: u8 = 0x08;
const NO_SYSCALL: i32 = -1;

/// A tracepoint in our files.
struct Tracepoint {
    /// Its number, in the file only.
    number: u16,
    /// The id of its only event: the kernel counts its own from 1 on.
    id: u64,
    name: &'static str,
    fields: &'static [&'static str],
    print: &'static str,
}

/// A page of ftrace's ring: perf reads this, and uses nothing of it.
const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

const COMMON: [&str; 4] = [
    "unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;",
    "unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;",
    "unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;",
    "int common_pid;\toffset:4;\tsize:4;\tsigned:1;",
];

const SWITCH: Tracepoint = Tracepoint {
    number: 1,
    id: u64::MAX - 1,
    name: "sched_switch",
    fields: &[
        "char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;",
        "pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;",
        "int prev_prio;\toffset:28;\tsize:4;\tsigned:1;",
        "long prev_state;\toffset:32;\tsize:8;\tsigned:1;",
        "char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;",
        "pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;",
        "int next_prio;\toffset:60;\tsize:4;\tsigned:1;",
        "int prev_syscall;\toffset:64;\tsize:4;\tsigned:1;",
    ],
    print: "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%lx prev_syscall=%d ==> next_comm=%s next_pid=%d next_prio=%d\", \
            REC->prev_comm, REC->prev_pid, REC->prev_prio, REC->prev_state, REC->prev_syscall, REC->next_comm, \
            REC->next_pid, REC->next_prio",
};

const WAKING: Tracepoint = Tracepoint {
    number: 2,
    id: u64::MAX - 2,
    name: "sched_waking",
    fields: &[
        "char comm[16];\toffset:8;\tsize:16;\tsigned:0;",
        "pid_t pid;\toffset:24;\tsize:4;\tsigned:1;",
        "int prio;\toffset:28;\tsize:4;\tsigned:1;",
        "int target_cpu;\toffset:32;\tsize:4;\tsigned:1;",
        "char waker_comm[16];\toffset:36;\tsize:16;\tsigned:0;",
    ],
    print: "\"comm=%s pid=%d prio=%d target_cpu=%03d waker_comm=%s\", \
            REC->comm, REC->pid, REC->prio, REC->target_cpu, REC->waker_comm",
};

/// The events that the samples are of; they are in no ring.
#[must_use]
pub fn sched_events() -> [Event; 2] {
    [SWITCH, WAKING].map(|tracepoint| Event {
        name: format!("sched:{}", tracepoint.name),
        attr: Attr {
            event_type: PERF_TYPE_TRACEPOINT,
            config: u64::from(tracepoint.number),
            flags: Attr::DISABLED,
            aux_watermark: 0,
        },
        ids: vec![EventId { id: tracepoint.id, index: 0, cpu: -1, tid: -1 }],
    })
}

/// Appends the sample of an event, at its time by perf's clock.
pub fn encode_sched_event(event: &SchedEvent, time: Ns, out: &mut Vec<u8>) {
    let (tracepoint, fields) = match &event.body {
        SchedBody::Switch { prev, state, syscall, next } => {
            (SWITCH, switch_fields(prev, *state, *syscall, next))
        }
        SchedBody::Waking { woken, target, waker_name, .. } => {
            let mut fields = task_fields(woken);
            fields.u32(target.0);
            fields.extend_from_slice(waker_name);
            (WAKING, fields)
        }
    };
    let is_interrupt = matches!(event.body, SchedBody::Waking { is_interrupt: true, .. });
    let mut raw = vec![];
    raw.u16(tracepoint.number);
    raw.extend_from_slice(&[if is_interrupt { TRACE_FLAG_HARDIRQ } else { 0 }, 0]);
    raw.u32(event.tid.0 as u32);
    raw.extend_from_slice(&fields);

    let start = out.len();
    out.u32(SAMPLE);
    out.u16(MISC_KERNEL);
    out.u16(0); // size, below
    out.u64(tracepoint.id);
    out.u64(event.stack.first().map_or(0, |address| address.0));
    out.u32(event.pid.0 as u32);
    out.u32(event.tid.0 as u32);
    out.u64(time.0);
    out.u32(event.cpu.0);
    out.u32(0);
    put_chain(event, out);
    // With its size it is a multiple of 8, as the kernel's.
    raw.resize((raw.len() + 4).next_multiple_of(8) - 4, 0);
    out.u32(raw.len() as u32);
    out.extend_from_slice(&raw);
    patch_size(out, start);
}

fn switch_fields(prev: &SchedTask, state: u64, syscall: Option<u32>, next: &SchedTask) -> Vec<u8> {
    let mut fields = task_fields(prev);
    fields.u64(state);
    fields.extend_from_slice(&task_fields(next));
    fields.u32(syscall.unwrap_or(NO_SYSCALL as u32));
    fields
}

fn task_fields(task: &SchedTask) -> Vec<u8> {
    let mut fields = task.name.to_vec();
    fields.u32(task.tid.0 as u32);
    fields.u32(task.priority as u32);
    fields
}

fn put_chain(event: &SchedEvent, out: &mut Vec<u8>) {
    let parts = [(CONTEXT_KERNEL, &event.stack), (CONTEXT_USER, &event.user_stack)];
    let parts = parts.into_iter().filter(|(_, stack)| !stack.is_empty());
    out.u64(parts.clone().map(|(_, stack)| stack.len() as u64 + 1).sum());
    for (context, stack) in parts {
        out.u64(context);
        stack.iter().for_each(|address| out.u64(address.0));
    }
}

/// The descriptions as a record in front of the samples, for a file that never gets its features.
///
/// perf has no record for them in a file: it takes HEADER_TRACING_DATA, which is for pipes, for a second
/// reading of the feature, and fails. This one it passes by, in any version; none of them writes it any more.
#[must_use]
pub fn sched_descriptions() -> Vec<u8> {
    user_record(HEADER_EVENT_TYPE, &tracing_data(&AboutSamples::default()))
}

/// Facts about the samples of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AboutSamples {
    /// Symbols of the kernel (lines of `/proc/kallsyms`) that name their stacks.
    pub symbols: String,
    /// How far off their times may be, if they were taken by another clock, in ns.
    pub apart_ns: Option<u64>,
}

/// Encodes the samples' formats, and the facts about them, as perf's feature TRACING_DATA.
#[must_use]
pub fn tracing_data(about: &AboutSamples) -> Vec<u8> {
    let AboutSamples { symbols, apart_ns } = about;
    let events = apart_ns.map_or_else(|| "# not used\n".to_owned(), |ns| format!("{APART_NS}{ns}\n"));
    const PAGE_BYTES: u32 = 4096;
    let mut out = b"\x17\x08\x44tracing0.5\0".to_vec();
    out.extend_from_slice(&[0, 8]); // little-endian, a long has 8 bytes
    out.u32(PAGE_BYTES);
    for (name, text) in [("header_page", PAGE), ("header_event", &events)] {
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.u64(text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
    out.u32(0); // formats of ftrace's own
    out.u32(1); // systems
    out.extend_from_slice(b"sched\0");
    let tracepoints = [SWITCH, WAKING];
    out.u32(tracepoints.len() as u32);
    for format in tracepoints.map(|tracepoint| tracepoint.format()) {
        out.u64(format.len() as u64);
        out.extend_from_slice(format.as_bytes());
    }
    out.u32(symbols.len() as u32);
    out.extend_from_slice(symbols.as_bytes());
    out.u32(0); // formats of printk
    out
}

impl Tracepoint {
    /// The tracepoint's description, as in `events/sched/NAME/format` of tracefs.
    fn format(&self) -> String {
        let fields = |fields: &[&str]| fields.iter().map(|field| format!("\tfield:{field}\n")).collect();
        let [common, own]: [String; 2] = [fields(&COMMON), fields(self.fields)];
        let Self { number, name, print, .. } = self;
        format!("name: {name}\nID: {number}\nformat:\n{common}\n{own}\nprint fmt: {print}\n")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use model::{Avma, Cpu, Pid, Sideband, Tid, Waiting, WakerSeen, Waking};

    use super::*;
    use crate::write::{Features, Writer};

    fn task(tid: i32, name: &str) -> SchedTask {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        SchedTask { tid: Tid(tid), name: bytes, priority: 120 }
    }

    fn event(body: SchedBody) -> SchedEvent {
        let stack = vec![Avma(0xffff_ffff_8100_0010), Avma(0xffff_ffff_8100_0020)];
        let user_stack =
            if matches!(body, SchedBody::Waking { .. }) { vec![Avma(0x40_0010)] } else { vec![] };
        SchedEvent { monotonic_ns: 1, cpu: Cpu(3), pid: Pid(6), tid: Tid(7), stack, user_stack, body }
    }

    /// A recording of these events, before its end.
    fn unfinished(events: &[SchedEvent]) -> Writer<Cursor<Vec<u8>>> {
        // perf has no trace without switch records.
        let attr = Attr { event_type: 8, flags: Attr::CONTEXT_SWITCH, ..Attr::default() };
        let pt = Event { name: "intel_pt//u".into(), attr, ids: vec![] };
        let all = std::iter::once(pt).chain(sched_events()).collect();
        let mut writer = Writer::new(Cursor::new(vec![]), all).unwrap();
        writer.record(&super::super::tests::info().auxtrace_info()).unwrap();
        writer.record(&sched_descriptions()).unwrap();
        for (number, event) in events.iter().enumerate() {
            let mut record = vec![];
            encode_sched_event(event, Ns(100 + number as u64), &mut record);
            writer.record(&record).unwrap();
        }
        writer
    }

    fn recording(events: &[SchedEvent]) -> Vec<u8> {
        let about = AboutSamples { symbols: "ffffffff81000000 t f\n".to_owned(), apart_ns: Some(321) };
        let features = Features { tracing_data: Some(tracing_data(&about)), ..Features::default() };
        unfinished(events).finish(&features).unwrap().into_inner()
    }

    #[test]
    fn the_reader_reads_what_was_written() {
        let switch = |state, syscall| {
            event(SchedBody::Switch { prev: task(7, "prog"), state, syscall, next: task(0, "swapper/3") })
        };
        let waking = event(SchedBody::Waking {
            woken: task(9, "sleeper"),
            target: Cpu(1),
            is_interrupt: true,
            waker_name: task(0, "prog").name,
        });
        let file =
            recording(&[switch(1, Some(202)), switch(0x100, Some(1)), switch(2, None), waking.clone()]);
        let recording = crate::read::parse(&file, Path::new("small")).unwrap();
        assert_eq!(recording.damage, None);
        assert_eq!(recording.kernel_symbols, "ffffffff81000000 t f\n");
        assert_eq!(recording.sched_apart_ns, Some(321));
        assert_eq!(recording.time_span, Some((Ns(100), Ns(103))));
        let stack = waking.stack;
        let left = |syscall: Option<u32>, preempted: bool| Sideband::SchedSwitch {
            prev: Tid(7),
            preempted,
            next: Tid(0),
            waiting: (!preempted).then(|| Box::new(Waiting { syscall, stack: stack.clone() })),
        };
        let waker = WakerSeen {
            pid: Pid(6),
            tid: Tid(7),
            name: "prog".to_owned(),
            stack: stack.clone(),
            user_stack: waking.user_stack,
            is_perhaps_interrupted: true,
        };
        let expect = [
            left(Some(202), false),
            left(Some(1), true),
            left(None, false),
            Sideband::SchedWaking(Box::new(Waking { tid: Tid(9), waker })),
        ];
        let bodies: Vec<&Sideband> = recording.sideband.iter().map(|record| &record.body).collect();
        assert_eq!(bodies, expect.iter().collect::<Vec<_>>());
        assert!(recording.sideband.iter().all(|record| record.cpu == Some(Cpu(3))));
    }

    #[test]
    fn samples_of_a_killed_recorder_say_what_they_say() {
        let body =
            SchedBody::Switch { prev: task(7, "prog"), state: 1, syscall: Some(202), next: task(0, "idle") };
        let events = [event(body.clone()), event(body)];
        let whole = recording(&events);
        let killed = unfinished(&events).out.into_inner();
        let [killed, whole] =
            [&killed, &whole].map(|file| crate::read::parse(file, Path::new("killed")).unwrap());
        assert!(killed.damage.is_some());
        assert_eq!((killed.sideband.len(), killed.sideband), (2, whole.sideband));
    }

    /// perf takes the descriptions for the kernel's own.
    #[test]
    fn perf_prints_them() {
        let switch = SchedBody::Switch {
            prev: task(7, "prog"),
            state: 1,
            syscall: Some(202),
            next: task(0, "swapper/3"),
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        std::fs::write(&path, recording(&[event(switch)])).unwrap();
        let mut perf = std::process::Command::new("perf");
        perf.args(["script", "--itrace=Z", "-F", "tid,event,ip,trace", "-i"]).arg(&path);
        let Ok(output) = perf.output() else { return println!("skipped: no perf here") };
        let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}");
        assert!(
            text.contains("sched:sched_switch") && text.contains("prev_syscall=202 ==>"),
            "{text}\n{said}"
        );
        assert!(text.contains("ffffffff81000020"), "{text}\n{said}");
    }
}
