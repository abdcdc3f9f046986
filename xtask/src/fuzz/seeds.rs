//! `fuzz --seeds`: what fuzzing starts from, made anew: a tiny program, and recordings of it.
//!
//! ```text
//! fuzz/program/tiny.c --gcc--> fuzz/program/tiny --tracegen--> *.data, raw streams
//!                                                              --> fuzz/corpus/TARGET/seed-*
//! ```
//!
//! Streams and recordings fit the program, so all are made together. Files without `seed-` in front, which
//! fuzzing has found, are left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::layout;
use crate::process::{self, Result};

/// The program's name in the recordings, wherever it really ran.
const PROGRAM: &str = "/usr/bin/tiny";

/// A recording: its name, how the flow target is told of it (see `any_input::flow`), the options of
/// `tracegen encode`.
const RECORDINGS: [(&str, u8, &[&str]); 10] = [
    ("plain", 0x00, &[]),
    ("noretcomp", 0x02, &["--noretcomp"]),
    ("longtnt", 0x00, &["--long-tnt"]),
    ("nocyc", 0x04, &["--no-cyc"]),
    ("nomtc", 0x08, &["--no-mtc", "--drop-ret-stack=0.5"]),
    ("filter", 0x01, &["--filter=round_of"]),
    ("ovf", 0x00, &["--ovf-ms=0.005", "--ovf-us=0.5"]),
    ("interrupts", 0x40, &["--tick-us=1"]),
    ("cpu", 0x10, &["--per-cpu", "--ncpu=1", "--switch=3", "--tick-us=5"]),
    ("kernel", 0x00, &["--kernel", "--tick-us=2"]),
];

/// A PSB as often as possible.
const ALL: [&str; 1] = ["--psb-period=0"];

/// Packets that user code without transactions, power events and PEBS does not make (SDM, "Packet
/// Definitions"): PIP, MODE.TSX, TraceStop, VMCS, MNT, PTW, EXSTOP, MWAIT, PWRE, PWRX, BBP, BIP, BEP, CFE,
/// EVD.
const RARE_PACKETS: &[&[u8]] = &[
    &[2, 0x43, 1, 2, 3, 4, 5, 6],
    &[0x99, 0x21],
    &[2, 0x83],
    &[2, 0xc8, 1, 2, 3, 4, 5],
    &[2, 0xc3, 0x88, 1, 2, 3, 4, 5, 6, 7, 8],
    &[2, 0x12, 1, 2, 3, 4],
    &[2, 0xb2, 1, 2, 3, 4, 5, 6, 7, 8],
    &[2, 0xe2],
    &[2, 0xc2, 1, 0, 0, 0, 1, 0, 0, 0],
    &[2, 0x22, 0x80, 0x61],
    &[2, 0xa2, 0x37, 4, 0, 0, 0],
    &[2, 0x63, 0x01],
    &[0x2c, 1, 2, 3, 4, 5, 6, 7, 8],
    &[2, 0x33],
    &[2, 0x13, 0x83, 14],
    &[2, 0x53, 0, 1, 2, 3, 4, 5, 6, 7, 8],
];

/// Makes them all.
pub(super) fn make() -> Result {
    let scratch = layout::target().join("fuzz").join("seeds");
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let source = layout::root().join("fuzz/program/tiny.c");
    let program = compile(&scratch.join("tiny"), &[], &source)?;
    write(&layout::root().join("fuzz/program/tiny"), &read(&program)?)?;
    objects(&scratch, &program, &source)?;
    process::run(cargo::command().args(["build", "--release", "--quiet", "--package", "tracegen"]))?;
    let tracegen = layout::target().join("release").join("tracegen");
    let log = scratch.join("log");
    process::run(Command::new(&tracegen).arg("log").arg(&log).arg("--").arg(&program).args(["1", "2"]))?;
    for (name, flags, options) in RECORDINGS {
        let data = scratch.join(format!("{name}.data"));
        let raw = scratch.join(name);
        let mut encode = Command::new(&tracegen);
        encode.arg("encode").arg(&log).arg(&data).arg(scratch.join("truth")).args(ALL).args(options);
        process::capture(encode.arg("--raw").arg(&raw))?;
        let stream = read(&scratch.join(format!("{name}.0.pt")))?;
        write(&seed("flow", name), &[&[flags, 0][..], &stream].concat())?;
        let file = renamed(&read(&data)?, &program)?;
        write(&seed("perfdata", name), &file)?;
        if name == "cpu" {
            write(&seed("perfdata", "pipe"), &pipe(&file).ok_or("tracegen wrote no file layout")?)?;
        }
        if ["plain", "longtnt"].contains(&name) {
            write(&seed("packets", name), &stream)?;
        }
    }
    write(&seed("packets", "rare"), &RARE_PACKETS.concat())?;
    kernel(&scratch)?;
    let mut others = cargo::command();
    others.args(["run", "--quiet", "--package", "any_input", "--bin", "fuzz_seeds"]);
    process::run(others.arg(layout::root().join("fuzz/corpus")))
}

/// The kernel of the recording that has one, where `any_input` looks for its text.
fn kernel(scratch: &Path) -> Result {
    ["kcore", "kallsyms", "modules"].iter().try_for_each(|name| {
        let bytes = read(&scratch.join("kernel").join(name))?;
        write(&layout::root().join("fuzz/program/kernel").join(name), &bytes)
    })
}

/// Compiles with `-O2 -g` and no library.
fn compile(output: &Path, options: &[&str], source: &Path) -> Result<PathBuf> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-tree-vectorize"]);
    gcc.args(["-Wl,--build-id", "-Wl,-z,noseparate-code"]);
    gcc.args(if options.is_empty() { &["-static"] } else { options });
    // The debug information names no directory of this machine.
    let dir = source.parent().unwrap_or(Path::new("."));
    gcc.current_dir(dir).arg(format!("-ffile-prefix-map={}=.", dir.display()));
    gcc.arg("-o").arg(output).arg(source.file_name().unwrap_or_default());
    process::run(&mut gcc)?;
    Ok(output.to_path_buf())
}

/// The program as it is, without symbols, with compressed debug information, and as a library.
fn objects(scratch: &Path, program: &Path, source: &Path) -> Result {
    let stripped = scratch.join("stripped");
    process::run(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
    let compressed = scratch.join("compressed");
    process::run(Command::new("objcopy").arg("--compress-debug-sections").arg(program).arg(&compressed))?;
    let library = compile(&scratch.join("library"), &["-shared", "-fPIC", "-DLIBRARY"], source)?;
    for (name, file) in
        [("program", program), ("stripped", &stripped), ("compressed", &compressed), ("library", &library)]
    {
        write(&seed("elf", name), &read(file)?)?;
    }
    Ok(())
}

/// The recording with another name for the program; the same length, so that nothing else moves.
fn renamed(recording: &[u8], program: &Path) -> Result<Vec<u8>> {
    let old = program.to_string_lossy().into_owned().into_bytes();
    if old.len() < PROGRAM.len() {
        return Err(format!("{} is a shorter name than {PROGRAM}", program.display()));
    }
    let mut new = PROGRAM.as_bytes().to_vec();
    new.resize(old.len(), 0);
    let mut out = recording.to_vec();
    let places: Vec<usize> = (0..recording.len()).filter(|at| recording[*at..].starts_with(&old)).collect();
    for at in places {
        out[at..at + old.len()].copy_from_slice(&new);
    }
    Ok(out)
}

/// A recording in the pipe layout: events and features are records.
fn pipe(file: &[u8]) -> Option<Vec<u8>> {
    const HEADER_ATTR: u32 = 64;
    let word = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?) as usize);
    let section = |at: usize| file.get(word(at)?..word(at)? + word(at + 8)?);
    let (entry, attrs, data) = (word(16)?, section(24)?, section(40)?);
    let mut out = [&b"PERFILE2"[..], &16u64.to_le_bytes()].concat();
    for attr in attrs.chunks_exact(entry) {
        let (attr, ids) = attr.split_at(entry - 16);
        let place = |at: usize| Some(u64::from_le_bytes(ids.get(at..at + 8)?.try_into().ok()?) as usize);
        let ids = file.get(place(0)?..place(0)? + place(8)?)?;
        let size = 8 + attr.len() + ids.len();
        out.extend_from_slice(&HEADER_ATTR.to_le_bytes());
        out.extend_from_slice(&[0, 0, size as u8, (size >> 8) as u8]);
        out.extend_from_slice(&[attr, ids].concat());
    }
    out.extend_from_slice(data);
    Some(out)
}

fn seed(target: &str, name: &str) -> PathBuf {
    layout::root().join("fuzz/corpus").join(target).join(format!("seed-{name}"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("fuzz: {:>6} bytes {}", bytes.len(), path.display());
    Ok(())
}
