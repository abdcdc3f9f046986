//! A real processor's recordings whose files are nowhere: each place without code is one that the packets
//! name, for us and for perf. `docs/testing/second-opinions.md` says why the two count differently.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use decoder::DecodeOptions;
use image::{Image, ImageOptions};
use model::{AuxBuffer, AuxOffset, Avma, EventSink, GapCause, Pid, SpaceId, Tid, TraceEvent};
use packet::{IpPayload, LastIp, Packet};
use truth_tests::{Opened, pipeline, skip};

const UNKNOWN: u64 = 0;

/// What a recording must give.
struct Expected {
    name: &'static str,
    is_pipe: bool,
    /// Times that user code is entered from the kernel.
    stretches: usize,
    /// PSB+ while user code runs.
    psbs: usize,
    /// perf's branches: 0 to user code, 0 to the kernel, user code to the kernel, kernel to 0.
    branches: [usize; 4],
    /// perf's errors: in user code, in the kernel.
    errors: [usize; 2],
}

const RECORDINGS: [Expected; 2] = [
    Expected {
        name: "intel_pt-4.14.data",
        is_pipe: false,
        stretches: 211,
        psbs: 5,
        branches: [345, 269, 4, 1],
        errors: [10, 104],
    },
    Expected {
        name: "intel_pt-4.14.piped.data",
        is_pipe: true,
        stretches: 205,
        psbs: 4,
        branches: [336, 261, 6, 0],
        errors: [10, 104],
    },
];

fn path_of(expected: &Expected) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings").join(expected.name)
}

/// A packet that says where execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Tnt,
    Tip,
    Pge,
    Pgd,
    Fup,
    PsbEnd,
}

/// One of them, with its address: that of the FUP at the end of a PSB+.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: AuxOffset,
    what: What,
    ip: Option<Avma>,
    /// The address is whole in the packet.
    whole: bool,
}

fn places(buffer: &AuxBuffer<'_>) -> Vec<Place> {
    let mut last_ip = LastIp::default();
    let mut in_psb: Option<Option<Avma>> = None;
    let mut places = vec![];
    for (at, packet) in decoder::packets(&buffer.pieces) {
        let (what, payload) = match packet.unwrap() {
            Packet::Psb => {
                last_ip.reset();
                in_psb = Some(None);
                continue;
            }
            Packet::PsbEnd => {
                let ip = in_psb.take().unwrap();
                places.push(Place { at, what: What::PsbEnd, ip, whole: true });
                continue;
            }
            Packet::Tnt(_) => (What::Tnt, IpPayload::NONE),
            Packet::Tip(ip) => (What::Tip, ip),
            Packet::TipPge(ip) => (What::Pge, ip),
            Packet::TipPgd(ip) => (What::Pgd, ip),
            Packet::Fup(ip) => (What::Fup, ip),
            _ => continue,
        };
        let ip = last_ip.expand(payload).map(Avma);
        match &mut in_psb {
            Some(psb_ip) => *psb_ip = ip,
            None => places.push(Place { at, what, ip, whole: matches!(payload.ip_bytes, 3 | 6) }),
        }
    }
    places
}

/// Where our gaps begin: where user code is entered, and at each PSB+ in it.  Both are counted.
fn expected_gaps(places: &[Place]) -> (Vec<AuxOffset>, usize, usize) {
    let (mut gaps, mut stretches, mut psbs) = (vec![], 0, 0);
    let mut in_user_code = false;
    for place in places {
        let to_user_code = place.ip.is_some_and(|ip| !ip.is_kernel());
        match place.what {
            What::Tip | What::Pge if to_user_code && !in_user_code => {
                stretches += 1;
                gaps.push(place.at);
            }
            What::PsbEnd if to_user_code => {
                psbs += 1;
                gaps.push(place.at);
            }
            What::Tip | What::Pge | What::Pgd | What::PsbEnd => (),
            What::Tnt | What::Fup => continue, // a FUP says where code was left
        }
        in_user_code = to_user_code;
    }
    (gaps, stretches, psbs)
}

/// What perf makes of it (`intel_pt_walk_trace`, `intel_pt_walk_to_ip`): at the next packet that needs the
/// code it fails, forgets the last IP, and goes on at the next address that is whole, which it prints as a
/// branch from 0.
fn perfs_branches(places: &[Place]) -> Vec<(u64, u64)> {
    let mut branches = vec![];
    let mut now: Option<Avma> = None;
    let mut knows_last_ip = false;
    let mut left: Option<Avma> = None; // by the FUP before
    for place in places {
        let Place { what, ip, whole, .. } = *place;
        if let Some(from) = left.take() {
            branches.push((from.0, ip.map_or(UNKNOWN, |ip| ip.0)));
            now = ip.or(now);
            continue;
        }
        match (now, what) {
            (None, What::PsbEnd) => {
                now = ip;
                knows_last_ip = true;
            }
            (Some(_), What::PsbEnd) => (),
            (None, _) => {
                now = ip.filter(|_| whole || knows_last_ip);
                branches.extend(now.map(|now| (UNKNOWN, now.0)));
            }
            (Some(_), What::Pge) => {
                now = ip;
                branches.extend(now.map(|now| (UNKNOWN, now.0)));
            }
            (Some(now), What::Fup) if ip == Some(now) => left = Some(now),
            (Some(_), _) => (now, knows_last_ip) = (None, false),
        }
    }
    branches
}

fn is_user(ip: u64) -> bool {
    ip != UNKNOWN && !Avma(ip).is_kernel()
}

fn kinds(branches: &[(u64, u64)]) -> [usize; 4] {
    let count =
        |fits: &dyn Fn(u64, u64) -> bool| branches.iter().filter(|(from, to)| fits(*from, *to)).count();
    let is_kernel = |ip| Avma(ip).is_kernel();
    let kinds = [
        count(&|from, to| from == UNKNOWN && is_user(to)),
        count(&|from, to| from == UNKNOWN && is_kernel(to)),
        count(&|from, to| is_user(from) && is_kernel(to)),
        count(&|from, to| is_kernel(from) && to == UNKNOWN),
    ];
    assert_eq!(kinds.iter().sum::<usize>(), branches.len(), "every branch is of one kind");
    kinds
}

/// Where the gaps begin; all else that comes out.
#[derive(Default)]
struct Gaps {
    at: Vec<AuxOffset>,
    others: Vec<TraceEvent>,
}

impl EventSink for Gaps {
    fn events(&mut self, _: Pid, _: Tid, _: SpaceId, events: &[TraceEvent]) {
        for event in events {
            match event {
                TraceEvent::Gap(gap) if matches!(gap.cause, GapCause::MissingCode { .. }) => {
                    self.at.push(gap.at)
                }
                _ => self.others.push(*event),
            }
        }
    }
}

/// Each gap is where the packets say, however the buffers are cut.
#[test]
fn ours() {
    let empty = tempfile::tempdir().unwrap();
    for expected in &RECORDINGS {
        let file = pipeline::open(&path_of(expected)).unwrap();
        let opened = Opened::new(&file).unwrap();
        let options = ImageOptions { symfs: Some(empty.path().into()), ..ImageOptions::default() };
        let image = Image::load(&opened.recording.sideband, &options);
        let opened = Opened { image, ..opened };
        let of_buffers: Vec<_> =
            opened.recording.buffers.iter().map(|buffer| expected_gaps(&places(buffer))).collect();
        let mut gaps: Vec<_> = of_buffers.iter().flat_map(|(gaps, ..)| gaps.clone()).collect();
        gaps.sort();
        let sum = |of: fn(&(Vec<AuxOffset>, usize, usize)) -> usize| of_buffers.iter().map(of).sum::<usize>();
        assert_eq!((sum(|b| b.1), sum(|b| b.2)), (expected.stretches, expected.psbs), "{}", expected.name);
        for segment_bytes in [1, 1 << 18] {
            let mut found = Gaps::default();
            opened.decode(&DecodeOptions { segment_bytes, ..DecodeOptions::default() }, &mut found);
            found.at.sort();
            assert_eq!(found.at, gaps, "{}", expected.name);
            assert_eq!(found.others, [], "{}", expected.name);
        }
    }
}

#[test]
fn perfs() {
    let has_perf = Command::new("perf").arg("version").stdout(Stdio::null()).status().is_ok();
    if !has_perf {
        skip("no perf here; install linux-perf");
    }
    for expected in &RECORDINGS {
        let path = path_of(expected);
        let file = pipeline::open(&path).unwrap();
        let buffers = file.recording().unwrap().buffers;
        let mut model: Vec<_> = buffers.iter().flat_map(|buffer| perfs_branches(&places(buffer))).collect();
        assert_eq!(kinds(&model), expected.branches, "{}", expected.name);
        if has_perf {
            let (mut branches, errors) = perf_script(&path, expected.is_pipe);
            branches.sort_unstable();
            model.sort_unstable();
            assert!(branches == model, "{}: {} branches, not {}", expected.name, branches.len(), model.len());
            let in_user_code = errors.iter().filter(|ip| is_user(**ip)).count();
            assert_eq!([in_user_code, errors.len() - in_user_code], expected.errors, "{}", expected.name);
        }
    }
}

/// Branches and the addresses of errors, as `perf script` prints them.
fn perf_script(path: &Path, is_pipe: bool) -> (Vec<(u64, u64)>, Vec<u64>) {
    let empty = tempfile::tempdir().unwrap();
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=be", "--symfs"]).arg(empty.path());
    perf.stderr(Stdio::null()).arg("-i");
    let output = if is_pipe {
        let mut cat = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().unwrap();
        let output = perf.arg("-").stdin(cat.stdout.take().unwrap()).output().unwrap();
        drop(perf); // with its end of the pipe: perf need not read all, and cat would wait
        cat.wait().unwrap();
        output
    } else {
        perf.arg(path).output().unwrap()
    };
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let (mut branches, mut errors) = (vec![], vec![]);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == "ip").filter(|_| line.contains("trace error"))
        {
            errors.push(hex(words[at + 1]));
        } else if let Some(from) = words.iter().position(|word| *word == "branches:") {
            let to = words.iter().position(|word| *word == "=>").unwrap();
            branches.push((hex(words[from + 1]), hex(words[to + 1])));
        }
    }
    (branches, errors)
}
