//! The virtual machines: software emulation, so that they run wherever the tests do.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::kernel::{Kernel, MODULES};
use crate::layout;
use crate::process::{self, Result};
use crate::stages::seconds;

/// Statically linked: the first file system has no libraries.
const BUSYBOX: &str = "/bin/busybox";

/// What the first process calls.
const APPLETS: [&str; 11] =
    ["sh", "mount", "insmod", "mkdir", "chroot", "cat", "cp", "sed", "basename", "ifconfig", "poweroff"];

/// Without ERMS: `rep movsb`, by which the kernel copies where there is that, is emulated byte by byte.
const CPU: &str = "Skylake-Client-v4,-erms";

/// Starts machines, lets them run the cases, and waits until they have ended, for `limit` at most.
pub(super) fn run(kernel: &Kernel, directory: &Path, machines: usize, limit: Duration) -> Result {
    let files = directory.join("initramfs");
    let archive = directory.join("initramfs.cpio");
    first_files(kernel, &files)?;
    pack(&files, &archive)?;
    thread::scope(|scope| {
        let run = |number| {
            scope.spawn({
                let archive = &archive;
                move || run_one(number, kernel, directory, archive, limit)
            })
        };
        let running: Vec<_> = (0..machines).map(run).collect();
        let failed = |_| Err("the thread of a machine failed".to_owned());
        running.into_iter().map(|machine| machine.join().unwrap_or_else(failed)).fold(Ok(()), Result::and)
    })
}

fn run_one(number: usize, kernel: &Kernel, directory: &Path, archive: &Path, limit: Duration) -> Result {
    let complaints = directory.join(format!("qemu-{number}.err"));
    let mut qemu = qemu(number, kernel, directory, archive);
    qemu.stderr(fs::File::create(&complaints).map_err(|e| format!("{}: {e}", complaints.display()))?);
    let start = Instant::now();
    let mut child = qemu.spawn().map_err(|e| process::cannot_start(&qemu, &e))?;
    let ended = pass_on(&mut child, start, limit);
    if !ended {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| process::cannot_start(&qemu, &e))?;
    println!("vm: machine {number} ran {}", seconds(start.elapsed()));
    match (ended, status.success()) {
        (true, true) => Ok(()),
        (true, false) => {
            let said = fs::read_to_string(&complaints).unwrap_or_default();
            let said = process::last_lines(&said, 5);
            Err(format!("`{}` failed: {status}\n{said}", process::command_line(&qemu)))
        }
        (false, _) => Err(format!("machine {number} did not end within {}", seconds(limit))),
    }
}

/// Passes the console on, line by line; false if the time is over.
fn pass_on(child: &mut Child, start: Instant, limit: Duration) -> bool {
    let (lines, received) = mpsc::channel();
    let Some(console) = child.stdout.take() else { return true };
    thread::spawn(move || {
        let read = BufReader::new(console).split(b'\n').map_while(std::result::Result::ok);
        read.take_while(|line| lines.send(line.clone()).is_ok()).for_each(drop);
    });
    loop {
        match received.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(line) => println!("{}", String::from_utf8_lossy(&line).trim_end()),
            Err(mpsc::RecvTimeoutError::Timeout) => return false,
            Err(mpsc::RecvTimeoutError::Disconnected) => return true,
        }
    }
}

/// The console is our standard output; nothing but the two shared directories leads out. Mitigations only
/// cost time, and the check of the timer fails where emulation is slow.
fn qemu(number: usize, kernel: &Kernel, directory: &Path, archive: &Path) -> Command {
    let share = |id: &str, path: &Path, options: &str| {
        let path = path.display();
        format!("local,id={id},path={path},security_model=none,{options}")
    };
    let mut qemu = Command::new("qemu-system-x86_64");
    // One thread emulates all processors: with one each they wait for each other most of the time.
    qemu.args(["-accel", "tcg,thread=single,tb-size=128", "-cpu", CPU, "-smp", "2", "-m", "768"]);
    qemu.args(["-no-reboot", "-nodefaults", "-display", "none", "-serial", "stdio", "-monitor", "none"]);
    qemu.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(archive);
    let options = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off tsc=reliable no_timer_check";
    qemu.arg("-append").arg(format!("{options} vm_share={} vm_number={number}", directory.display()));
    qemu.arg("-fsdev").arg(share("root", Path::new("/"), "readonly=on,multidevs=remap"));
    qemu.args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]);
    qemu.arg("-fsdev").arg(share("share", directory, "multidevs=remap"));
    qemu.args(["-device", "virtio-9p-pci,fsdev=share,mount_tag=share"]);
    qemu.stdin(Stdio::null()).stdout(Stdio::piped());
    qemu
}

/// The first file system: `init`, a shell, and the modules with which the host's files are reached.
fn first_files(kernel: &Kernel, files: &Path) -> Result {
    let named = |e: std::io::Error| format!("{}: {e}", files.display());
    if files.exists() {
        fs::remove_dir_all(files).map_err(named)?;
    }
    for directory in ["bin", "mod", "proc", "sys", "dev", "r"] {
        fs::create_dir_all(files.join(directory)).map_err(named)?;
    }
    fs::copy(BUSYBOX, files.join("bin/busybox")).map_err(|e| format!("{BUSYBOX}: {e}"))?;
    for applet in APPLETS {
        symlink("busybox", files.join("bin").join(applet)).map_err(named)?;
    }
    let mut order = String::new();
    for module in MODULES {
        let from = kernel.module(module);
        let name = module.rsplit('/').next().unwrap_or(module);
        fs::copy(&from, files.join("mod").join(name)).map_err(|e| format!("{}: {e}", from.display()))?;
        order += &format!("{name}\n");
    }
    fs::write(files.join("modules"), order).map_err(named)?;
    let (from, init) = (layout::root().join("tests/vm/guest/init"), files.join("init"));
    fs::copy(&from, &init).map_err(|e| format!("{}: {e}", from.display()))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(named)
}

/// What the kernel unpacks into its first file system.
fn pack(files: &Path, archive: &Path) -> Result {
    let names = process::capture(Command::new("find").arg(".").current_dir(files))?;
    let output = fs::File::create(archive).map_err(|e| format!("{}: {e}", archive.display()))?;
    let mut cpio = Command::new("cpio");
    cpio.args(["--create", "--format=newc", "--quiet"]).current_dir(files);
    let mut child =
        cpio.stdin(Stdio::piped()).stdout(output).spawn().map_err(|e| process::cannot_start(&cpio, &e))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(names.as_bytes()).map_err(|e| process::cannot_start(&cpio, &e))?;
    }
    let status = child.wait().map_err(|e| process::cannot_start(&cpio, &e))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed: {status}", process::command_line(&cpio)))
    }
}
