//! What the command says where it cannot record: exit code, setting, value and fix; and nothing is left over.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::live::server_of;
use super::machine;
use super::process::{HEAD_START, LIMIT, command, runs_on, signal, wait};
use crate::case::Word;
use crate::paths::Vm;

/// An ordinary user: Debian's unprivileged one.
pub(super) const USER: u32 = 65534;

/// Where the refused recordings were to be written; everybody may.
const PLACE: &str = "/tmp/refused";

/// How much an ordinary user may lock beside `ulimit -l`.
const LOCKED_KB: &str = "/proc/sys/kernel/perf_event_mlock_kb";

/// A command that must be refused.  Or not: with `code` 0.
struct Refusal {
    /// What is wrong.
    what: &'static str,
    /// `kernel.perf_event_paranoid`.
    paranoid: i32,
    /// The user who is refused.
    by: By,
    /// The target runs as root, not as [`USER`].
    target_of_root: bool,
    /// What else is wrong with the machine.
    obstacle: Obstacle,
    arguments: &'static [&'static str],
    code: i32,
    says: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Root,
    /// [`USER`].
    User,
    /// That, with CAP_PERFMON and CAP_SYS_PTRACE.
    CapableUser,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    None,
    /// `ulimit -l 64`.
    LittleToLock,
    /// That, and nothing beside.
    NothingToLock,
    /// perf records the target.
    Busy,
    /// The module is not there.
    NoPmu,
}

/// A program of [`Vm::programs`].
const SERVER: &str = "{programs}/server";

const ROOT: Refusal = Refusal {
    what: "",
    paranoid: 2,
    by: By::Root,
    target_of_root: true,
    obstacle: Obstacle::None,
    arguments: &["-p", Word::PID, "-d", "1", "-f", "handle"],
    code: 3,
    says: &[],
};

const REFUSALS: [Refusal; 20] = [
    Refusal {
        what: "no such process",
        arguments: &["-p", "4000000", "-f", "handle"],
        code: 2,
        says: &["-p 4000000", "no such process"],
        ..ROOT
    },
    Refusal {
        what: "no such thread",
        arguments: &["-T", "4000000", "-f", "handle"],
        code: 2,
        says: &["-T 4000000", "no such thread"],
        ..ROOT
    },
    Refusal {
        what: "a CPU that is switched off",
        arguments: &["-C", "1", "-p", Word::PID, "-f", "handle"],
        code: 2,
        says: &["-C 1", "those that run are 0"],
        ..ROOT
    },
    Refusal {
        what: "no such function",
        arguments: &["-p", Word::PID, "-f", "no_such_function"],
        code: 2,
        says: &["no_such_function"],
        ..ROOT
    },
    Refusal {
        what: "a filter on whole CPUs",
        arguments: &["-C", "0", "-i", "-f", "handle"],
        code: 2,
        says: &["-p"],
        ..ROOT
    },
    Refusal {
        what: "a setting that the PMU does not have",
        arguments: &["-p", Word::PID, "-f", "handle", "--pt_config", "mtc_period=1"],
        code: 2,
        says: &["mtc_period"],
        ..ROOT
    },
    Refusal {
        what: "another tracer",
        obstacle: Obstacle::Busy,
        says: &["another tracer", "end that one first", "find /proc/"],
        ..ROOT
    },
    Refusal {
        what: "somebody else's process",
        by: By::User,
        says: &["perf_event_paranoid is 2", "setcap"],
        ..ROOT
    },
    Refusal {
        what: "somebody else's thread",
        by: By::User,
        arguments: &["-T", Word::PID, "-d", "1", "-f", "handle"],
        says: &["perf_event_paranoid is 2", "setcap"],
        ..ROOT
    },
    Refusal {
        what: "whole CPUs, by an ordinary user",
        by: By::User,
        arguments: &["-C", "0", "-d", "1", "-f", "handle"],
        says: &["perf_event_paranoid is 2", "no whole CPUs", "setcap"],
        ..ROOT
    },
    Refusal {
        what: "an ordinary user's own process",
        by: By::User,
        target_of_root: false,
        arguments: &["-p", Word::PID, "-d", "0.5", "-f", "handle"],
        code: 0,
        ..ROOT
    },
    Refusal {
        what: "paranoid 3",
        paranoid: 3,
        by: By::User,
        target_of_root: false,
        says: &["perf_event_paranoid is 3", "sysctl kernel.perf_event_paranoid=2"],
        ..ROOT
    },
    Refusal {
        what: "somebody else's process, with capabilities",
        by: By::CapableUser,
        arguments: &["-p", Word::PID, "-d", "0.5", "-f", "handle"],
        code: 0,
        ..ROOT
    },
    Refusal {
        what: "paranoid 3, which takes more than CAP_PERFMON by Debian's patch",
        paranoid: 3,
        by: By::CapableUser,
        says: &["perf_event_paranoid is 3", "CAP_SYS_ADMIN", "sysctl kernel.perf_event_paranoid=2"],
        ..ROOT
    },
    Refusal {
        what: "more than may be locked",
        by: By::User,
        target_of_root: false,
        obstacle: Obstacle::LittleToLock,
        arguments: &["-p", Word::PID, "-d", "1", "-f", "handle", "-m", "64M"],
        says: &["of 64 MB: ", "ulimit -l is 64 KB", "perf_event_mlock_kb is 516", "a smaller -m"],
        ..ROOT
    },
    Refusal {
        what: "a program to start, and more than may be locked",
        by: By::User,
        obstacle: Obstacle::LittleToLock,
        arguments: &["-f", "handle", "-m", "64M", "--", SERVER],
        says: &["of 64 MB: ", "ulimit -l is 64 KB"],
        ..ROOT
    },
    Refusal {
        what: "nothing that may be locked",
        by: By::User,
        target_of_root: false,
        obstacle: Obstacle::NothingToLock,
        arguments: &["-p", Word::PID, "-t", "-d", "1", "-f", "handle"],
        says: &["1 buffers of trace need", "ulimit -l is 16 KB", "sysctl kernel.perf_event_mlock_kb="],
        ..ROOT
    },
    Refusal {
        what: "more ranges than there are",
        arguments: &["-p", Word::PID, "-i", "-f", "handle", "-f", "getenv", "-f", "strtok_r"],
        code: 2,
        says: &["2 ranges", "fewer functions"],
        ..ROOT
    },
    Refusal {
        what: "more memory than there is",
        arguments: &["-p", Word::PID, "-f", "handle", "-m", "64G"],
        says: &["of 65536 MB: ", "a smaller -m"],
        ..ROOT
    },
    Refusal {
        what: "no PMU",
        obstacle: Obstacle::NoPmu,
        arguments: &["-p", Word::PID, "-d", "1", "-f", "handle", "--backend", "pt"],
        says: &["intel_pt", "doctor"],
        ..ROOT
    },
];

/// All of [`REFUSALS`].
pub(super) fn all(vm: &Vm) -> Result<String> {
    machine::set_second_cpu(false)?;
    fs::create_dir_all(PLACE)?;
    fs::set_permissions(PLACE, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let mut wrong = String::new();
    for refusal in &REFUSALS {
        if let Err(error) = one(vm, refusal) {
            wrong += &format!("\n  {}: {error:#}", refusal.what);
        }
    }
    ensure!(wrong.is_empty(), "refusals:{wrong}");
    let refused = REFUSALS.iter().filter(|refusal| refusal.code != 0).count();
    Ok(format!(
        "{refused} refusals, each with code, setting and fix; an ordinary user records own processes, with capabilities those of others"
    ))
}

fn one(vm: &Vm, refusal: &Refusal) -> Result<()> {
    let mut target = server_of(if refusal.target_of_root { 0 } else { USER }, vm)?;
    let obstacle = raise(refusal.obstacle, &target)?;
    let open = machine::open_events().ok();
    let refused = machine::with_paranoid(refusal.paranoid, || refuse(vm, refusal, &target));
    let left = nothing_is_left(open);
    if let Some(mut perf) = obstacle {
        signal("INT", &perf)?;
        wait(&mut perf)?;
    }
    match refusal.obstacle {
        Obstacle::NoPmu => machine::load_module(vm)?,
        Obstacle::NothingToLock => fs::write(LOCKED_KB, "516")?,
        Obstacle::None | Obstacle::LittleToLock | Obstacle::Busy => (),
    }
    let lives = runs_on(&mut target);
    signal("TERM", &target)?;
    wait(&mut target)?;
    refused.and(lives).and(left)
}

/// No event is open that was not before, and no program is held that was to be started.
fn nothing_is_left(open_before: Option<u64>) -> Result<()> {
    let open = machine::open_events().ok();
    ensure!(open == open_before, "{open_before:?} events of the PMU were open, now {open:?}");
    // One that was killed is there until the system's first process has waited for it.
    let begun = Instant::now();
    while is_running("func_latency")? {
        ensure!(begun.elapsed() < LIMIT, "a process of the command is left");
        sleep(HEAD_START);
    }
    Ok(())
}

fn is_running(name: &str) -> Result<bool> {
    for entry in fs::read_dir("/proc")? {
        if fs::read_to_string(entry?.path().join("comm")).is_ok_and(|comm| comm.trim() == name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes it impossible; perf, if that is what does it.
fn raise(obstacle: Obstacle, target: &Child) -> Result<Option<Child>> {
    match obstacle {
        Obstacle::None | Obstacle::LittleToLock => Ok(None),
        Obstacle::NothingToLock => Ok(fs::write(LOCKED_KB, "0").map(|()| None)?),
        Obstacle::NoPmu => machine::unload_module().map(|()| None),
        Obstacle::Busy => {
            let starts = machine::starts()?;
            let mut perf = Command::new("perf");
            perf.args(["record", "-B", "-N", "--per-thread", "-e", "intel_pt//u", "-o", "/tmp/busy.data"]);
            let perf = perf.args(["-p", &target.id().to_string()]).stderr(Stdio::null()).spawn()?;
            while machine::starts()? == starts {
                sleep(HEAD_START);
            }
            Ok(Some(perf))
        }
    }
}

/// The command is refused as it should be, and has left no file.
fn refuse(vm: &Vm, refusal: &Refusal, target: &Child) -> Result<()> {
    let mut words = Vec::new();
    match refusal.obstacle {
        Obstacle::LittleToLock => words.extend(["prlimit", "--memlock=65536:65536"].map(str::to_owned)),
        Obstacle::NothingToLock => words.extend(["prlimit", "--memlock=16384:16384"].map(str::to_owned)),
        Obstacle::None | Obstacle::Busy | Obstacle::NoPmu => (),
    }
    if refusal.by == By::CapableUser {
        let user = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()];
        words.push("setpriv".to_owned());
        words.extend(user);
        // By number: perfmon is younger than some setpriv.
        words.extend(
            ["--inh-caps=+sys_ptrace,+cap_38", "--ambient-caps=+sys_ptrace,+cap_38"].map(str::to_owned),
        );
    }
    words.extend([vm.func_latency().display().to_string(), "-D".to_owned(), PLACE.to_owned()]);
    let pid = target.id().to_string();
    let programs = vm.programs().display().to_string();
    let filled = |word: &&str| word.replace(Word::PID, &pid).replace(Word::PROGRAMS, &programs);
    words.extend(refusal.arguments.iter().map(filled));
    let mut command = command(&words)?;
    if refusal.by == By::User {
        command.uid(USER).gid(USER);
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(refusal.code), "{}, not {}: {said}", output.status, refusal.code);
    for words in refusal.says {
        ensure!(said.contains(words), "does not say `{words}`: {said}");
    }
    let data = Path::new(PLACE).join("perf.data");
    ensure!(data.exists() == (refusal.code == 0), "{}: there {}", data.display(), data.exists());
    if refusal.code == 0 {
        fs::remove_file(data)?;
    }
    let files = fs::read_dir(Path::new(PLACE))?;
    let left: Vec<_> = files.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    ensure!(left.is_empty(), "leaves {left:?}");
    Ok(())
}
