//! For tests: a program of a known layout, and a made-up `/proc` of a process that has it mapped.
//!
//! ```text
//! offset     0x100                  0x1c30    0x2000    0x2c30           0x3c30
//! segments   [ constants ..........][ shared .. border .. inside .. last ]
//! mappings   r-- to 0x2000 ------------------->
//!                          r-x from 0x1000 ------------------------------------>
//! ```
//!
//! `shared` is followed by the cold part of `inside`.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use image::{FunctionMatch, Query};
use model::Pid;
use recorder::{Proc, Target};

use super::{Known, LiveCode};

const CODE: &str = "
    .macro function name section
    .section \\section, \"ax\"
    .type \\name, @function
    \\name: nop
    ret
    .size \\name, . - \\name
    .endm
    .globl shared, border, inside, last
    function shared .shared
    function inside.cold .shared
    function border .border
    function inside .inside
    function last .last
    .section .rodata
    .byte 0
    .section .note.GNU-stack
";

const LAYOUT: &str = "
    PHDRS { constants PT_LOAD FILEHDR PHDRS FLAGS(4); text PT_LOAD FLAGS(5); }
    SECTIONS {
        .rodata 0x400100 : { *(.rodata) . = 0x1b30; } :constants
        .text 0x402c30 : { *(.shared) . = 0x3d0; *(.border) . = 0x1000; *(.inside) . = 0x2000; *(.last) } :text
        /DISCARD/ : { *(*) }
    }
";

/// The process.
pub(crate) const PID: Pid = Pid(7);

/// The two mappings: addresses, protection, offset.
pub(crate) type Mappings = [(&'static str, &'static str, &'static str); 2];

/// The two mappings as the kernel maps the segments.
pub(crate) const CONSTANTS_FIRST: Mappings =
    [("00400000-00402000", "r--p", "0"), ("00402000-00405000", "r-xp", "1000")];

/// The text below the constants.
pub(crate) const TEXT_FIRST: Mappings =
    [("00402000-00405000", "r-xp", "1000"), ("00500000-00502000", "r--p", "0")];

/// The program and the process.
pub(crate) struct LaidOut {
    pub(crate) proc: Proc,
    pub(crate) code: LiveCode,
    program: PathBuf,
    _directory: tempfile::TempDir,
}

impl LaidOut {
    pub(crate) fn new(mappings: Mappings) -> Self {
        // Filters can name files there: no spaces, and no overlay.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = directory.path().to_owned();
        let [source, script, program] = ["code.s", "layout.ld", "program"].map(|name| root.join(name));
        fs::write(&source, CODE).unwrap();
        fs::write(&script, LAYOUT).unwrap();
        let mut compile = Command::new("cc");
        compile.args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none,-e,shared,-T"]);
        let compiled = compile.arg(&script).arg("-o").arg(&program).arg(&source).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

        let file = fs::metadata(&program).unwrap();
        let device = format!("{:x}:{:x}", rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        let line = |(addresses, protection, offset)| {
            format!("{addresses} {protection} {offset} {device} {} {}\n", file.ino(), program.display())
        };
        let process = root.join(PID.0.to_string());
        fs::create_dir_all(process.join("task").join(PID.0.to_string())).unwrap();
        fs::write(process.join("maps"), mappings.map(line).concat()).unwrap();
        symlink("/", process.join("root")).unwrap();
        let proc = Proc::at(&root);
        let code = known(&Target::Processes(vec![PID]), &proc);
        Self { proc, code, program, _directory: directory }
    }

    /// The program before it is started.
    pub(crate) fn not_started(&self) -> LiveCode {
        known(&Target::Program(vec![self.program.clone().into()]), &self.proc)
    }
}

fn known(target: &Target, proc: &Proc) -> LiveCode {
    match LiveCode::of(target, proc, None) {
        Known::Code(code) => *code,
        Known::TooMuch | Known::NotReadable => panic!("the code is readable"),
    }
}

/// A function of the program.
pub(crate) fn function(code: &LiveCode, name: &str) -> FunctionMatch {
    let found = code.image.find(&Query { text: name.to_owned(), object: None }).unwrap();
    found[0].clone()
}

/// Some functions of the program.
pub(crate) fn functions(code: &LiveCode, names: &[&str]) -> Vec<FunctionMatch> {
    names.iter().map(|name| function(code, name)).collect()
}
