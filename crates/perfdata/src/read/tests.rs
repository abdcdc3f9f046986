//! Whole files, built here, through the whole reader.

use std::path::Path;

use model::{
    AuxOwner, AuxRecord, Avma, Cpu, CpuCoverage, CpuModel, Ns, Pid, Recording, Sideband, SidebandRecord, Tid,
    TscClock,
};
use proptest::prelude::*;

use super::fixture::{self, Fixture, halves, padded, trailer, words};
use super::{File, OpenError, Parts, ReadError, collect, parse};
use crate::{feature_bits, record_types};

fn read(bytes: &[u8]) -> Result<Recording<'_>, ReadError> {
    parse(bytes, Path::new("t.data"))
}

fn message(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

/// Index, owner, pieces as (offset, length, first byte), AUX records as (offset, size, flags).
type Buffer = (u32, AuxOwner, Vec<(u64, usize, u8)>, Vec<(u64, u64, u64)>);

fn buffers(recording: &Recording<'_>) -> Vec<Buffer> {
    let one = |b: &model::AuxBuffer<'_>| {
        let pieces = b.pieces.iter().map(|p| (p.offset.0, p.bytes.len(), p.bytes[0])).collect();
        let records = b.records.iter().map(|r| (r.offset.0, r.size, r.flags)).collect();
        (b.index, b.owner, pieces, records)
    };
    recording.buffers.iter().map(one).collect()
}

fn cpu(n: u32) -> AuxOwner {
    AuxOwner::Cpu(Cpu(n))
}

fn thread(n: i32) -> AuxOwner {
    AuxOwner::Thread(Tid(n))
}

fn times(recording: &Recording<'_>) -> Vec<Option<u64>> {
    recording.sideband.iter().map(|r| r.time.map(|ns| ns.0)).collect()
}

#[test]
fn the_same_in_both_layouts_and_with_every_size_of_attr() {
    for attr_size in [64, 72, 96, 112, 120, 128, 136, 200] {
        for bytes in Fixture::per_cpu(attr_size).layouts() {
            let r = read(&bytes).unwrap();
            assert_eq!(r.damage, None);
            assert_eq!(
                buffers(&r),
                [
                    (0, cpu(0), vec![(0, 16, 0xa0), (16, 8, 0xa2)], vec![(0, 16, 0), (16, 8, 0)]),
                    (1, cpu(1), vec![(0, 8, 0xa1)], vec![(0, 8, AuxRecord::TRUNCATED)]),
                ]
            );
            assert_eq!(r.buffers[1].records[0].time, Some(Ns(1900)));
            // AUX records are the buffers'.
            let expect = [1000, 1100, 1500, 1900, 2000].map(Some);
            assert_eq!(times(&r), [&[None, None][..], &expect].concat());
            assert_eq!(r.time_span, Some((Ns(1000), Ns(2100))));
            assert_eq!(r.clock, Some(TscClock { shift: 31, mult: 1_000_000, zero: 77 }));
            assert_eq!(r.cpu_model, Some(CpuModel { family: 6, model: 85, stepping: 7 }));
            assert_eq!(r.command_line, ["perf", "record", "-p", "41"]);
            assert_eq!(r.first_pid, Some(Pid(41)));
            assert_eq!((r.pt.mtc_period, r.pt.tsc_ctc_ratio), (Some(3), (250, 2)));
        }
    }
}

#[test]
fn who_and_when() {
    let bytes = Fixture::per_cpu(128).file();
    let r = read(&bytes).unwrap();
    let SidebandRecord { time, cpu, pid, tid, file_offset, body } = r.sideband[0].clone();
    assert_eq!((time, cpu, pid, tid), (None, None, None, None), "synthesised records say nothing");
    assert_eq!(bytes[file_offset as usize], 10);
    let Sideband::Mmap(mmap) = body else { panic!("{body:?}") };
    assert_eq!((mmap.pid, mmap.start, mmap.path.as_str()), (Pid(41), Avma(0x40_0000), "/bin/x"));
    let fork = &r.sideband[3];
    assert_eq!((fork.cpu, fork.pid, fork.tid), (Some(Cpu(0)), Some(Pid(41)), Some(Tid(41))));
    let born = Sideband::Fork { pid: Pid(41), tid: Tid(42), parent_pid: Pid(41), parent_tid: Tid(41) };
    assert_eq!(fork.body, born);
    assert_eq!(r.sideband[4].body, Sideband::Switch { out: false, preempted: false });
}

#[test]
fn trace_bytes_are_slices_of_the_file() {
    let bytes = Fixture::per_cpu(128).file();
    let r = read(&bytes).unwrap();
    for piece in r.buffers.iter().flat_map(|b| &b.pieces) {
        assert_eq!(piece.bytes.as_ptr(), bytes[piece.file_offset as usize..].as_ptr());
    }
}

#[test]
fn buffers_of_threads_whatever_cpu_their_records_came_from() {
    let mut f = Fixture::new(128);
    f.info("filter 0x10/0x20@/bin/x");
    f.id_index(&[(fixture::PT_ID, 0, None, Some(41)), (fixture::PT_ID + 1, 1, None, Some(42))]);
    f.kernel(record_types::AUX, 0, &words(&[0, 8, 0]), &trailer(0, 0, 20, 1, fixture::PT_ID + 1));
    f.auxtrace(0, 0, 41, None, &[1; 8]);
    // Out of order.
    f.auxtrace(1, 8, 42, None, &[3; 8]);
    f.auxtrace(1, 0, 42, None, &[2; 8]);
    for bytes in f.layouts() {
        let r = read(&bytes).unwrap();
        assert_eq!(
            buffers(&r),
            [
                (0, thread(41), vec![(0, 8, 1)], vec![]),
                (1, thread(42), vec![(0, 8, 2), (8, 8, 3)], vec![(0, 8, 0)]),
            ]
        );
        assert_eq!((r.ip_filter.as_str(), r.pt.has_ip_filter), ("filter 0x10/0x20@/bin/x", true));
        assert_eq!(r.damage, None);
    }
}

/// func_latency opens newborn threads so; perf never does.
#[test]
fn a_thread_whose_events_come_after_a_time_was_attached_late() {
    let mut f = Fixture::new(128);
    f.info("");
    f.id_index(&[(fixture::PT_ID, 0, None, Some(41))]);
    f.kernel(record_types::AUX, 0, &words(&[0, 8, 0]), &trailer(41, 41, 20, 1, fixture::PT_ID));
    f.id_index(&[(fixture::PT_ID + 1, 1, None, Some(42)), (fixture::PT_ID + 2, 1, None, Some(42))]);
    f.auxtrace(0, 0, 41, None, &[1; 8]);
    for bytes in f.layouts() {
        let r = read(&bytes).unwrap();
        let late = |record: &&SidebandRecord| matches!(record.body, Sideband::AttachedLate { .. });
        let late: Vec<_> = r.sideband.iter().filter(late).map(|record| record.tid).collect();
        assert_eq!(late, [Some(Tid(42))]);
    }
}

/// `-C 0` of two CPUs, with switch records of both, of one, and with buffers of threads.
#[test]
fn the_cpus_of_trace_and_switches_are_those_that_their_events_were_opened_on() {
    const CONTEXT_SWITCH: u64 = 1 << 26;
    let coverage = |ids: &[(u64, u64, Option<u64>, Option<u64>)]| {
        let mut f = Fixture::new(128);
        let flags = f.events[1].0[40..48].try_into().map(u64::from_le_bytes).unwrap() | CONTEXT_SWITCH;
        f.events[1].0[40..48].copy_from_slice(&flags.to_le_bytes());
        f.features.insert(0, (feature_bits::NRCPUS, halves(&[4, 2])));
        f.info("");
        f.id_index(ids);
        f.layouts().map(|bytes| read(&bytes).unwrap().coverage)
    };
    let cpus = |cpus: &[u32]| cpus.iter().copied().map(Cpu).collect();
    let trace = (fixture::PT_ID, 0, Some(0), None);
    let switches = [(fixture::DUMMY_ID, 0, Some(0), None), (fixture::DUMMY_ID + 1, 1, Some(1), None)];
    for both in coverage(&[trace, switches[0], switches[1]]) {
        assert_eq!(
            both,
            CpuCoverage { is_whole: true, traced: cpus(&[0]), watched: cpus(&[0, 1]), running: Some(2) }
        );
        assert!(both.is_untraced(Cpu(1)) && !both.is_partial());
    }
    for one in coverage(&[trace, switches[0]]) {
        assert!(one.is_partial());
    }
    for none in coverage(&[(fixture::PT_ID, 0, None, Some(41))]) {
        assert!(!none.is_untraced(Cpu(1)) && !none.is_partial());
    }
}

#[test]
fn without_an_id_index_the_cpu_or_the_thread_decides() {
    for owner in [Some(3), None] {
        let mut f = Fixture::new(128);
        f.info("");
        f.kernel(record_types::AUX, 0, &words(&[0, 8, 0]), &trailer(41, 42, 20, 3, fixture::PT_ID + 1));
        f.auxtrace(0, 0, 41, owner.map(|_| 0), &[1; 8]);
        f.auxtrace(1, 0, 42, owner, &[2; 8]);
        let bytes = f.file();
        let r = read(&bytes).unwrap();
        assert_eq!((r.buffers[0].records.len(), r.buffers[1].records.len()), (0, 1));
    }
}

#[test]
fn events_without_time_give_none() {
    let mut f = Fixture::new(128);
    f.events = vec![(fixture::attr(fixture::PMU_TYPE, 1 << 10, 128, 0), vec![])];
    f.info("");
    f.kernel(record_types::SWITCH, 0, &[], &[]);
    f.kernel(record_types::EXIT, 0, &[halves(&[5, 5, 6, 5]), words(&[900])].concat(), &[]);
    f.auxtrace(0, 0, 41, Some(0), &[1; 8]);
    f.kernel(record_types::AUX, 0, &words(&[0, 8, 0]), &[]);
    let bytes = f.file();
    let r = read(&bytes).unwrap();
    assert_eq!(times(&r), [None, Some(900)]);
    assert_eq!(r.buffers[0].records.len(), 1, "the only buffer");
    assert_eq!(r.damage, None);
}

/// Type and time of all records.
fn listed(bytes: &[u8]) -> Vec<(u32, Option<u64>)> {
    let mut list = vec![];
    let parts = Parts { main: bytes.into(), more: &[] };
    let damage = collect::list(parts, &mut |l| list.push((l.record_type, l.record.time.map(|ns| ns.0))));
    assert_eq!(damage.unwrap(), None);
    list
}

#[test]
fn all_records_are_listed_in_the_order_of_the_file() {
    let mut f = Fixture::new(128);
    f.kernel(22, 0, &words(&[1, 2]), &trailer(41, 41, 1950, 0, fixture::DUMMY_ID));
    f.user(99, &words(&[1]));
    f.round();
    f.auxtrace(0, 0, 41, Some(0), &[1; 8]);
    let records = [(22, Some(1950)), (99, None), (68, None), (71, None)];
    assert_eq!(listed(&f.file()), records, "without any trace, too");
    assert_eq!(listed(&f.pipe()), [&[(80, None), (80, None), (64, None), (64, None)][..], &records].concat());
}

#[test]
fn compressed_records_are_read_as_if_they_stood_there() {
    let plain = Fixture::per_cpu(128);
    let (at, until) = (plain.offset_of(record_types::COMM), plain.offset_of(record_types::AUXTRACE));
    for (kind, pieces) in
        [(record_types::COMPRESSED, 1), (record_types::COMPRESSED, 3), (record_types::COMPRESSED2, 2)]
    {
        let mut f = plain.clone().compressed();
        f.records.splice(at..until, fixture::compress(&plain.records[at..until], kind, pieces));
        for (bytes, expect) in f.layouts().iter().zip(plain.layouts()) {
            let (r, expect) = (read(bytes).unwrap(), read(&expect).unwrap());
            assert_eq!(r.damage, None);
            assert_eq!((buffers(&r), times(&r)), (buffers(&expect), times(&expect)));
            let inner = listed(bytes).into_iter().filter(|(number, _)| *number == 14).count();
            assert_eq!(inner, 2);
        }
        f.records.splice(at.., fixture::compress(&[14, 0, 0, 0, 0, 0, 8], record_types::COMPRESSED, 1));
        let bytes = f.pipe();
        let damage = read(&bytes).unwrap().damage.unwrap();
        assert_eq!(damage.what, "the compressed records end inside a record");
        assert_eq!(damage.file_offset, bytes.len() as u64);
    }
}

#[test]
fn a_directory_of_files() {
    let whole = Fixture::per_cpu(128);
    let mut main = whole.clone();
    let at = whole.offset_of(record_types::SWITCH);
    let rest = main.records.split_off(at);
    main.features.push((24, words(&[1])));
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
    put("data", &main.file());
    put("data.10", &rest);
    put("data.2", &[]);
    put("data.old", b"no number");
    std::fs::create_dir(dir.path().join("kcore_dir")).unwrap();
    let file = File::open(dir.path()).unwrap();
    let (r, expect) = (file.recording().unwrap(), whole.file());
    let expect = read(&expect).unwrap();
    assert_eq!((buffers(&r), times(&r), r.damage.clone()), (buffers(&expect), times(&expect), None));
    let names: Vec<_> = file.files().map(|(name, _)| name.unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["data", "data.10"]);
    // perf makes no links, and one could lead to any file.
    std::fs::rename(dir.path().join("data"), dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", dir.path().join("data")).unwrap();
    assert!(matches!(File::open(dir.path()), Err(OpenError::NotAFile { .. })));
}

#[test]
fn several_events_of_the_trace() {
    let mut f = Fixture::per_cpu(128);
    let second = |config| (fixture::attr(fixture::PMU_TYPE, config, 128, fixture::SAMPLE_TYPE), vec![300]);
    f.events.push(second(fixture::PT_CONFIG | 1 << 11));
    assert!(read(&f.file()).unwrap().pt.return_compression, "one of them compresses");
    f.events.push(second(fixture::PT_CONFIG | 2));
    assert!(message(&f.file()).contains("has intel_pt events whose timing packets differ"));
}

#[test]
fn mappings_of_a_virtual_machine_are_not_ours() {
    let mut f = Fixture::per_cpu(128);
    let at = f.offset_of(record_types::MMAP2);
    f.records[at + 4] = 5;
    let bytes = f.file();
    assert!(!read(&bytes).unwrap().sideband.iter().any(|r| matches!(r.body, Sideband::Mmap(_))));
}

#[test]
fn build_ids_of_the_table_and_of_records() {
    let mut f = Fixture::per_cpu(128);
    let body = [halves(&[41]), vec![7; 20], vec![20, 0, 0, 0], padded("/bin/x")].concat();
    f.features.insert(0, (2, fixture::record(67, 1 << 15, &body)));
    let id_of = |bytes: &[u8]| match &read(bytes).unwrap().sideband[0].body {
        Sideband::Mmap(mmap) => mmap.build_id.as_ref().map(ToString::to_string),
        _ => None,
    };
    assert_eq!(id_of(&f.file()), Some("07".repeat(20)));
    // Another file of the same name: which of them was mapped the table does not tell.
    let other = [halves(&[41]), vec![8; 20], vec![20, 0, 0, 0], padded("/bin/x")].concat();
    let both = [fixture::record(67, 1 << 15, &body), fixture::record(67, 1 << 15, &other)].concat();
    f.features[0].1 = both;
    assert_eq!(id_of(&f.file()), None);
    f.features.remove(0);
    assert_eq!(id_of(&f.file()), None);
    f.user(record_types::HEADER_BUILD_ID, &body);
    assert_eq!(id_of(&f.pipe()), Some("07".repeat(20)));
}

#[test]
fn perf_was_killed() {
    let whole = Fixture::per_cpu(128);
    let mut bytes = whole.file();
    bytes[48..56].fill(0);
    // The features are not written yet.
    let features: usize = whole.features.iter().map(|(_, contents)| 16 + contents.len()).sum();
    bytes.truncate(bytes.len() - features);
    let r = read(&bytes).unwrap();
    assert_eq!(r.sideband.len(), 7);
    let damage = r.damage.unwrap();
    assert_eq!(damage.file_offset, bytes.len() as u64);
    assert_eq!(damage.what, "the recorder was stopped before it closed the file; read to its end");
}

#[test]
fn a_cut_inside_trace_keeps_the_bytes_before_it() {
    let f = Fixture::per_cpu(128);
    let at = f.pipe().windows(16).position(|w| w == [0xa0; 16]).unwrap();
    let bytes = &f.pipe()[..at + 5];
    let r = read(bytes).unwrap();
    assert_eq!(buffers(&r)[0].2, [(0, 5, 0xa0)]);
    let damage = r.damage.unwrap();
    assert_eq!(damage.file_offset, bytes.len() as u64);
    assert_eq!(damage.what, "the file is cut inside a payload: 5 of 16 bytes are there");
}

#[test]
fn cut_at_every_place() {
    let f = Fixture::per_cpu(112);
    let [file, pipe] = f.layouts();
    let counts = |r: &Recording<'_>| {
        let trace: u64 = r.buffers.iter().map(model::AuxBuffer::len).sum();
        (r.sideband.len(), trace)
    };
    for whole in [&file, &pipe] {
        let mut before = (0, 0);
        for len in 0..whole.len() {
            let Ok(r) = read(&whole[..len]) else { continue };
            let now = counts(&r);
            assert!(now.0 >= before.0 && now.1 >= before.1, "more bytes give more, at {len}");
            before = now;
            // The pipe layout does not say how long it is.
            if let Some(damage) = r.damage {
                assert!(damage.file_offset <= len as u64);
            } else {
                assert!(whole == &pipe, "a cut at {len} went unnoticed");
            }
        }
        assert_eq!(before, counts(&read(whole).unwrap()));
    }
}

#[test]
fn trace_that_is_there_twice_is_damage_but_not_in_snapshots() {
    let mut f = Fixture::per_cpu(128);
    f.auxtrace(1, 4, 42, Some(1), &[9; 8]);
    let bytes = f.pipe();
    let r = read(&bytes).unwrap();
    assert_eq!(buffers(&r)[1].2, [(0, 8, 0xa1), (8, 4, 9)]);
    assert_eq!(r.damage.unwrap().what, "4 bytes of trace at AUX offset 0x4 are there twice");

    let info = f.records.windows(4).position(|w| w == [70, 0, 0, 0]).unwrap();
    f.records[info + 16 + 8 * 8] = 1;
    let bytes = f.pipe();
    let r = read(&bytes).unwrap();
    assert!(r.pt.snapshot);
    assert_eq!(buffers(&r)[1].2, [(0, 8, 0xa1), (72, 8, 9)], "with a hole between them");
    assert_eq!(r.damage, None);
}

/// Cutting such a stream into segments wrapped at 2^64, and went round for ever.
#[test]
fn an_offset_that_no_stream_reaches_is_damage() {
    let mut f = Fixture::per_cpu(128);
    f.auxtrace(1, (1 << 63) - 8, 42, Some(1), &[9; 8]);
    let bytes = f.pipe();
    let r = read(&bytes).unwrap();
    assert_eq!((r.damage, r.buffers[1].pieces.len()), (None, 2));
    f.auxtrace(1, (1 << 63) - 4, 42, Some(1), &[9; 8]);
    let bytes = f.pipe();
    let r = read(&bytes).unwrap();
    assert_eq!(r.damage.unwrap().what, "an AUX offset of 0x7ffffffffffffffc is impossible");
    assert_eq!(r.buffers[1].pieces.len(), 2);
}

#[test]
fn a_damaged_record_ends_the_reading_there() {
    let mut f = Fixture::per_cpu(128);
    let at = f.pipe().len() as u64;
    f.kernel(record_types::COMM, 0, &[], &trailer(1, 1, 5000, 0, fixture::DUMMY_ID));
    f.mmap(41, 0x80_0000, "/bin/late", 6000);
    let bytes = f.pipe();
    let r = read(&bytes).unwrap();
    assert_eq!(r.time_span, Some((Ns(1000), Ns(2100))));
    let damage = r.damage.unwrap();
    assert_eq!((damage.file_offset, damage.what.as_str()), (at, "the record of type 3 is too short"));
    let bytes = f.file();
    let r = read(&bytes).unwrap();
    assert!(r.damage.is_some());
    assert_eq!(r.command_line.len(), 4, "features do not depend on the records");
}

#[test]
fn files_without_intel_pt_say_what_they_have() {
    let mut f = Fixture::new(128);
    f.events.remove(0);
    f.round();
    assert_eq!(
        message(&f.file()),
        "no Intel PT in t.data: events are type 1 config 0x9; record with -e intel_pt//u"
    );
    f.name_events(&["cycles:u"]);
    for bytes in f.layouts() {
        assert_eq!(message(&bytes), "no Intel PT in t.data: events are cycles:u; record with -e intel_pt//u");
    }
    f.info("");
    assert!(matches!(read(&f.file()), Err(ReadError::NoIntelPt { .. })), "no event of that PMU");
    let mut f = Fixture::per_cpu(128);
    f.events.clear();
    assert_eq!(message(&f.file()), "t.data has no events; record again");
    let mut f = Fixture::per_cpu(128);
    let info = f.records.windows(4).position(|w| w == [70, 0, 0, 0]).unwrap();
    f.records[info + 8] = 3;
    assert!(message(&f.file()).contains("holds a trace of CoreSight ETM (AUXTRACE_INFO at offset 0x1"));
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let mut f = Fixture::per_cpu(128);
    f.events[1].0[112] = 1;
    assert!(message(&f.pipe()).contains("has its trace in samples (--aux-sample)"));
    let mut bytes = Fixture::per_cpu(128).file();
    bytes[..8].copy_from_slice(b"2ELIFREP");
    assert!(message(&bytes).contains("big-endian"));
}

#[test]
fn opening() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(File::open(dir.path()), Err(OpenError::Directory { .. })));
    let path = dir.path().join("perf.data");
    assert!(matches!(File::open(&path), Err(OpenError::Io { .. })));
    std::fs::write(&path, "").unwrap();
    assert!(matches!(File::open(&path), Err(OpenError::Empty { .. })));
    std::fs::write(&path, "\x7fELF").unwrap();
    assert!(matches!(File::open(&path), Err(OpenError::NotPerfData { .. })));
    // A program that decodes traces may have the bytes of a PSB in it.
    std::fs::write(&path, [&b"\x7fELF"[..], &[0x02, 0x82].repeat(8)].concat()).unwrap();
    assert!(matches!(File::open(&path), Err(OpenError::NotPerfData { .. })));
    // Bytes of a ring begin anywhere.
    std::fs::write(&path, [&[0x19, 0x08][..], &[0x02, 0x82].repeat(8)].concat()).unwrap();
    assert!(matches!(File::open(&path), Err(OpenError::RawTrace { psb: 2, .. })));
    assert!(matches!(File::open("/dev/null"), Err(OpenError::NotAFile { .. })));
    std::fs::write(&path, Fixture::per_cpu(128).file()).unwrap();
    let file = File::open(&path).unwrap();
    let r = file.recording().unwrap();
    assert_eq!(r.buffers[1].pieces[0].bytes, [0xa1; 8]);
}

/// A watch keeps hundreds of pieces, and events take most of the descriptors that there are.
#[test]
fn what_is_our_own_takes_no_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    std::fs::write(&path, Fixture::per_cpu(128).file()).unwrap();
    let open = || -> usize {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| *link == path).count()
    };
    let own = File::open_own(&path).unwrap();
    assert_eq!(open(), 0);
    let others = File::open(&path).unwrap();
    assert_eq!(open(), 1, "a file that others may cut is watched");
    let pieces = |file: &File| {
        file.recording().unwrap().buffers.iter().map(|buffer| buffer.pieces.len()).sum::<usize>()
    };
    assert_eq!(pieces(&own), pieces(&others));
}

/// Reads what may be anything and looks at all of it.
fn survive(bytes: &[u8]) {
    match read(bytes) {
        Ok(r) => {
            let trace: u64 = r.buffers.iter().map(model::AuxBuffer::len).sum();
            assert!(trace <= bytes.len() as u64);
            for buffer in &r.buffers {
                let ends = buffer.pieces.iter().map(|p| p.offset.0.checked_add(p.bytes.len() as u64));
                let ends: Vec<u64> = ends.map(Option::unwrap).collect();
                let next = buffer.pieces.iter().skip(1);
                assert!(r.pt.snapshot || next.zip(&ends).all(|(p, end)| p.offset.0 >= *end));
                buffer.records.iter().for_each(|record| assert!(record.end() >= record.offset));
            }
            assert!(r.sideband.is_sorted_by_key(|record| record.time));
        }
        Err(error) => assert!(error.to_string().contains("t.data")),
    }
}

/// Every bit of a file, flipped.
#[test]
fn each_bit_flipped() {
    for whole in Fixture::per_cpu(128).layouts() {
        let mut bytes = whole.clone();
        for at in 0..bytes.len() * 8 {
            bytes[at / 8] ^= 1 << (at % 8);
            survive(&bytes);
            bytes[at / 8] = whole[at / 8];
        }
    }
}

proptest! {
    #[test]
    fn random_bytes(pipe: bool, bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        survive(&bytes);
        let size = if pipe { 16 } else { 104 };
        survive(&[b"PERFILE2".to_vec(), words(&[size]), bytes].concat());
    }

    #[test]
    fn random_records(list in prop::collection::vec((1u32..100, any::<u16>(), prop::collection::vec(any::<u64>(), 0..12)), 0..40)) {
        let mut f = Fixture::new(128);
        f.info("");
        for (kind, misc, body) in list {
            f.records.extend(fixture::record(kind, misc, &words(&body)));
        }
        f.layouts().iter().for_each(|bytes| survive(bytes));
    }

    #[test]
    fn damaged_anywhere(pipe: bool, cut: prop::sample::Index, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
        let [file, piped] = Fixture::per_cpu(128).layouts();
        let mut bytes = if pipe { piped } else { file };
        bytes.truncate(cut.index(bytes.len()) + 1);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        survive(&bytes);
    }
}
