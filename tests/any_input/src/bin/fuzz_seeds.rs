//! `fuzz_seeds CORPUS`: the seeds that are made of other seeds and of the program; `cargo xtask fuzz
//! --seeds` runs it last.
#![allow(clippy::unwrap_used, reason = "a chore fails by panicking")]

use std::fs;
use std::io::Cursor;
use std::path::Path;

use model::{Cpu, Ns, Pid, SchedBody, SchedEvent, SchedTask, Tid};
use perfdata::write::{
    AboutSamples, Attr, Event, Features, Writer, encode_sched_event, sched_descriptions, sched_events,
    tracing_data,
};

const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
const COMPRESSED: u32 = 81;
/// Offset in AUXTRACE_INFO of the word that says that snapshots were recorded.
const SNAPSHOT_WORD: usize = 16 + 8 * 8;
/// `struct perf_pipe_file_header`.
const PIPE_HEADER: usize = 16;

fn main() {
    let corpus = std::env::args().nth(1).unwrap();
    let corpus = Path::new(&corpus);
    let read = |target: &str, name: &str| fs::read(corpus.join(target).join(name)).unwrap();
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("seed-{name}")), bytes).unwrap();
    };
    let (pipe, plain, program) =
        (read("perfdata", "seed-pipe"), read("perfdata", "seed-plain"), read("elf", "seed-program"));
    write("perfdata", "snapshot", &snapshot(&pipe));
    write("perfdata", "compressed", &compressed(&pipe));
    write("perfdata", "tracepoints", &tracepoints());
    for (number, name) in [".debug_line", ".debug_info", ".debug_abbrev"].iter().enumerate() {
        let content = section(&program, name);
        write("lines", &name[1..].replace('_', "-"), &[&[number as u8][..], &content].concat());
    }
    write("files", "map", b"\0\0\x09/tmp/a/..100010 20 one\n100100 8 two three\n100010 4 one again\n");
    write("files", "jitdump", &[b"\x01\x02\x04/x/y", &jitdump()[..]].concat());
    write("files", "object", &[b"\x02\x01\x0f/usr/lib/object", &program[..]].concat());
    write("files", "moved-object", &[b"\x03\0\x06//anon", &program[..]].concat());
    for name in ["seed-plain", "seed-cpu", "seed-filter", "seed-ovf"] {
        write("parts", name.trim_start_matches("seed-"), &any_input::parts_of_stream(&read("flow", name)));
    }
    write("wires", "records", &records());
    write("wires", "text", MAPS_AND_MOUNTS);
    for number in 0..24u8 {
        write("command", &format!("{number:02}"), &command(number, &plain));
    }
}

const MAPS_AND_MOUNTS: &[u8] = b"\
55d0-55d8 r-xp 00002000 fe:01 1234                       /usr/bin/a b (deleted)
36 35 0:32 / /merged rw,relatime - overlay overlay rw,lowerdir=/a\\:b:/c,upperdir=/u,workdir=/w
0-3,8
";

/// A report's command line on `round_of`, rows of it, and a recording; see `any_input::command`.
fn command(number: u8, recording: &[u8]) -> Vec<u8> {
    // A dump is of no function, nor is a bundle.
    let values: &[u8] = if [21, 22, 23].contains(&number) { b"\0" } else { b"\x01\0\x08round_of" };
    let header = "id,tid,cpu,start_ns,latency_ns,error_ns,off_cpu_ns,status,caller,site,function,aux_buffer,aux_offset";
    let rows = match number {
        20 => {
            r#"{"id":"1-0","function":"round_of","start_ns":1,"latency_ns":2,"off_cpu_ns":0,"status":"complete","aux_buffer":0,"aux_offset":"0x10"}"#.to_owned()
        }
        _ => format!("{header}\n1-0,1,0,1,2,1,0,complete,start,,round_of,0,0x10\n"),
    };
    let len = (rows.len() as u16).to_le_bytes();
    [&[number][..], values, &len, rows.as_bytes(), recording].concat()
}

/// Two functions, of which one moves.
fn jitdump() -> Vec<u8> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let record = |id: u32, time: u64, body: &[u8]| {
        [&id.to_le_bytes()[..], &(16 + body.len() as u32).to_le_bytes(), &time.to_le_bytes(), body].concat()
    };
    let load = |address: u64, index, name: &[u8], code: &[u8]| {
        [&words(&[1 | 1 << 32, address, address, code.len() as u64, index])[..], name, b"\0", code].concat()
    };
    let head: Vec<u8> =
        [0x4a69_5444_u32, 1, 40, 62, 0, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    [
        head,
        words(&[5, 1]),
        record(0, 10, &load(0x10_0000, 1, b"one", &[0x90, 0xc3])),
        record(0, 20, &load(0x10_0100, 2, b"two", &[0xc3])),
        record(1, 30, &words(&[1 | 1 << 32, 0x10_0200, 0x10_0000, 0x10_0200, 2, 1])),
    ]
    .concat()
}

/// A record of each kind that the recorder notices, and room for those of our programs.
fn records() -> Vec<u8> {
    let record = |kind: u32, words: &[u64]| {
        let size = 8 + 8 * words.len() as u32;
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        [&kind.to_le_bytes()[..], &(size << 16).to_le_bytes(), &body].concat()
    };
    let mut all =
        [record(11, &[0, 64, 1]), record(2, &[7, 3]), record(7, &[1 | 2 << 32, 3 | 4 << 32, 5])].concat();
    all.resize(1024, 0);
    all
}

/// What a section of the program has.
fn section(program: &[u8], name: &str) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes([program[at], program[at + 1]]));
    let (headers, size, count, names) = (word(40), half(58), half(60), half(62));
    let names = word(headers + names * size + 24);
    let wanted = format!("{name}\0").into_bytes();
    let is_it = |at: &usize| {
        let name_at = names + u32::from_le_bytes(program[*at..*at + 4].try_into().unwrap()) as usize;
        program[name_at..].starts_with(&wanted)
    };
    let header = (0..count).map(|index| headers + index * size).find(is_it).unwrap();
    program[word(header + 24)..word(header + 24) + word(header + 32)].to_vec()
}

/// Where each record of a recording in the pipe layout begins, its kind, and where it ends; its trace is
/// part of it.
fn of_pipe(pipe: &[u8]) -> Vec<(usize, u32, usize)> {
    let (mut at, mut found) = (PIPE_HEADER, vec![]);
    while let Some(head) = pipe.get(at..at + 8) {
        let kind = u32::from_le_bytes(head[..4].try_into().unwrap());
        let mut end = at + usize::from(u16::from_le_bytes([head[6], head[7]]));
        if kind == AUXTRACE {
            end += u64::from_le_bytes(pipe[at + 8..at + 16].try_into().unwrap()) as usize;
        }
        found.push((at, kind, end));
        at = end;
    }
    found
}

fn snapshot(pipe: &[u8]) -> Vec<u8> {
    let (info, ..) = of_pipe(pipe).into_iter().find(|(_, kind, _)| *kind == AUXTRACE_INFO).unwrap();
    let mut changed = pipe.to_vec();
    changed[info + SNAPSHOT_WORD] = 1;
    changed
}

/// The kernel's records in one COMPRESSED record, as one block that zstd stores.
fn compressed(pipe: &[u8]) -> Vec<u8> {
    let (of_perf, of_kernel): (Vec<_>, Vec<_>) =
        of_pipe(pipe).into_iter().partition(|(_, kind, _)| *kind >= 64);
    let (before, after): (Vec<_>, Vec<_>) = of_perf.into_iter().partition(|(_, kind, _)| *kind != AUXTRACE);
    let all = |records: Vec<(usize, u32, usize)>| {
        records.into_iter().flat_map(|(at, _, end)| pipe[at..end].to_vec()).collect::<Vec<u8>>()
    };
    let content = all(of_kernel);
    // RFC 8878: magic, no flags, a window of 64 KB; the last block, raw.
    let block = ((content.len() as u32) << 3 | 1).to_le_bytes();
    let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x30][..], &block[..3], &content].concat();
    let head = [COMPRESSED.to_le_bytes(), ((8 + frame.len() as u32) << 16).to_le_bytes()].concat();
    [&pipe[..PIPE_HEADER], &all(before), &head, &frame, &all(after)].concat()
}

/// Samples of the scheduler's tracepoints.
fn tracepoints() -> Vec<u8> {
    let attr = Attr { event_type: 8, flags: Attr::CONTEXT_SWITCH, ..Attr::default() };
    let pt = Event { name: "intel_pt//u".into(), attr, ids: vec![] };
    let all = std::iter::once(pt).chain(sched_events()).collect();
    let mut writer = Writer::new(Cursor::new(vec![]), all).unwrap();
    writer.record(&sched_descriptions()).unwrap();
    let task = |tid| SchedTask { tid: Tid(tid), name: *b"tiny\0\0\0\0\0\0\0\0\0\0\0\0", priority: 120 };
    let bodies = [
        SchedBody::Switch { prev: task(1), state: 1, syscall: Some(35), next: task(2) },
        SchedBody::Waking {
            woken: task(1),
            target: Cpu(0),
            is_interrupt: true,
            waker_name: *b"waker\0\0\0\0\0\0\0\0\0\0\0",
        },
    ];
    for (body, number) in bodies.into_iter().zip(0..) {
        let event = SchedEvent {
            monotonic_ns: number,
            cpu: Cpu(0),
            pid: Pid(1),
            tid: Tid(1),
            stack: vec![model::Avma(0xffff_ffff_8100_0010)],
            user_stack: vec![],
            body,
        };
        let mut record = vec![];
        encode_sched_event(&event, Ns(100 + number), &mut record);
        writer.record(&record).unwrap();
    }
    let about = AboutSamples { symbols: "ffffffff81000000 t f\n".to_owned(), apart_ns: Some(321) };
    let features = Features { tracing_data: Some(tracing_data(&about)), ..Features::default() };
    writer.finish(&features).unwrap().into_inner()
}
