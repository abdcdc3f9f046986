//! Which file serves an object: by name, by build id, from caches; and never a wrong one.

#![allow(clippy::unwrap_used)]

mod tiny_elf;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use image::{HostFiles, HostVdso, Image, ImageOptions, ObjectError, ProblemKind};
use model::{
    Avma, BuildId, CodeSource, FileOffset, FunctionLookup, Inode, Mmap, NoCode, Ns, ObjectId, Pid, Sideband,
    SidebandRecord, TscClock,
};

const PID: Pid = Pid(42);
const BASE: u64 = 0x7f00_0000_1000;
const HEX: &str = "deadbeef";

fn map(path: &str, build_id: Option<&[u8]>) -> SidebandRecord {
    map_at(Ns(0), path, BASE, 0x2000, tiny_elf::TEXT, build_id)
}

fn map_at(time: Ns, path: &str, start: u64, len: u64, offset: u64, id: Option<&[u8]>) -> SidebandRecord {
    let mmap = Mmap {
        pid: PID,
        start: Avma(start),
        len,
        file_offset: FileOffset(offset),
        path: path.into(),
        build_id: id.map(|id| BuildId(id.to_vec())),
        inode: None,
        executable: true,
        kernel: false,
    };
    let (time, body) = ((time > Ns(0)).then_some(time), Sideband::from(mmap));
    SidebandRecord { time, cpu: None, pid: None, tid: None, file_offset: 0, body }
}

fn put(root: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Without anything of the machine that runs the test.
fn nowhere() -> ImageOptions {
    ImageOptions { debug_directory: "/nowhere".into(), ..ImageOptions::default() }
}

fn code_at_base(image: &Image) -> Result<&[u8], NoCode> {
    image.code(image.space(PID, Ns(0)), Avma(BASE))
}

#[test]
fn deleted_files_come_from_the_caches_by_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let elf = tiny_elf::build();
    for (place, symfs, cache, debuginfod) in [
        (format!("{HEX}/executable"), false, false, true),
        (format!(".build-id/de/{}", &HEX[2..]), false, true, false),
        (format!(".build-id/de/{}/elf", &HEX[2..]), false, true, false),
        (format!(".build-id/de/{}/elf", &HEX[2..]), true, false, false),
    ] {
        let root = dir.path().join(place.replace('/', "_"));
        let path = put(&root, &place, &elf);
        let given = |yes: bool| yes.then(|| root.clone());
        let options = ImageOptions {
            symfs: given(symfs),
            build_id_cache: given(cache),
            debuginfod_cache: given(debuginfod),
            ..nowhere()
        };
        for name in ["/opt/lib/libgone.so", "/opt/lib/libgone.so (deleted)"] {
            let image = Image::load(&[map(name, Some(&tiny_elf::BUILD_ID))], &options);
            assert_eq!(image.object_path(ObjectId(0)), Some(path.as_path()), "{place}");
            assert_eq!(code_at_base(&image), Ok(&elf[0x1000..]));
            let image = Image::load(&[map(name, Some(&[1, 2, 3, 4]))], &options);
            assert_eq!(code_at_base(&image), Err(NoCode::MissingObject(ObjectId(0))), "another build id");
        }
    }
}

/// The file at a deleted file's path was decoded, though it cannot be the one that ran.
#[test]
fn a_replaced_file_is_not_used_without_a_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let path = put(dir.path(), "libtiny.so", &tiny_elf::build());
    let name = path.to_str().unwrap();
    let deleted = format!("{name} (deleted)");
    let image = Image::load(&[map(&deleted, None)], &nowhere());
    assert_eq!(image.object_error(ObjectId(0)), Some(&ObjectError::Replaced { name: name.into() }));
    assert_eq!(image.problems().len(), 1);
    let image = Image::load(&[map(&deleted, Some(&tiny_elf::BUILD_ID))], &nowhere());
    assert_eq!(image.problems(), [], "the same build id is the same file");
    // A user that gives a directory says that its files are the right ones.
    let symfs = ImageOptions { symfs: Some("/".into()), ..nowhere() };
    assert!(code_at_base(&Image::load(&[map(&deleted, None)], &symfs)).is_ok());
}

/// `map` without build id, of a file with this inode on the device that is mounted at [`plain`].
fn map_inode(pid: i32, path: &Path, number: u64) -> SidebandRecord {
    let mut record = map(path.to_str().unwrap(), None);
    if let Sideband::Mmap(mmap) = &mut record.body {
        mmap.pid = Pid(pid);
        mmap.inode = Some(Inode { device: (259, 2), number });
    }
    record
}

/// Two plain file systems: the recorded one, and that of a file here, whatever it is.
fn plain(file: &Path) -> ImageOptions {
    let dev = std::fs::metadata(file).unwrap().dev();
    let (major, minor) = (dev >> 8 & 0xfff, dev & 0xff | dev >> 12 & 0xffff_ff00);
    let mounts = format!("1 0 259:2 / / rw - ext4 x rw\n2 1 {major}:{minor} / /tmp rw - tmpfs x rw\n");
    ImageOptions { host_files: Some(HostFiles::of_mounts(&mounts)), ..nowhere() }
}

/// A file that was replaced, or that is of another container, was decoded as if it had run.
#[test]
fn a_file_with_another_inode_is_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = put(dir.path(), "libtiny.so", &tiny_elf::build());
    let inode = std::fs::metadata(&path).unwrap().ino();
    let nobody = i32::MAX;
    let same = Image::load(&[map_inode(nobody, &path, inode)], &plain(&path));
    assert_eq!(same.object_path(ObjectId(0)), Some(path.as_path()));
    assert_eq!(same.problems(), []);
    let other = [map_inode(nobody, &path, inode + 1)];
    let error = ObjectError::Inode { path: path.clone(), file: inode, recording: inode + 1 };
    assert_eq!(Image::load(&other, &plain(&path)).object_error(ObjectId(0)), Some(&error));
    let with_both = [other[0].clone(), map_inode(nobody, &path, inode)];
    let both = Image::load(&with_both, &plain(&path));
    let errors = [0, 1].map(|id| both.object_error(ObjectId(id)));
    assert_eq!(errors, [Some(&error), None], "two files of one name");
    assert_eq!(both.files_of_one_name(), BTreeSet::from([path.to_str().unwrap()]));
    assert_eq!(
        (both.bundle().files.len(), same.bundle().files.len()),
        (0, 1),
        "elsewhere one would be taken for the other"
    );
    // Where the inode says nothing, the file is taken by its name.
    let recorded_only = HostFiles::of_mounts("1 0 259:2 / / rw - ext4 x rw\n");
    let overlay = HostFiles::of_mounts("1 0 259:2 / / rw - overlay x rw\n");
    for host_files in [None, Some(recorded_only), Some(overlay)] {
        let options = ImageOptions { host_files, ..nowhere() };
        assert_eq!(Image::load(&other, &options).object_error(ObjectId(0)), None, "{options:?}");
    }
}

/// A container has another file at the path: the one that its process sees is used while that lives.
#[test]
fn the_file_of_a_container_is_found_by_its_inode() {
    let dir = tempfile::tempdir().unwrap();
    let inside = put(dir.path(), "inside.so", &tiny_elf::build());
    let path = put(dir.path(), "libtiny.so", b"another file");
    let script = "mount --bind \"$1\" \"$2\" && echo mounted && exec sleep 60";
    let mut container = std::process::Command::new("unshare");
    container.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).args([&inside, &path]);
    let Ok(mut container) = container.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        return println!("skipped: no unshare");
    };
    let mut said = String::new();
    let told = BufReader::new(container.stdout.take().unwrap()).read_line(&mut said);
    let pid = i32::try_from(container.id()).unwrap();
    let inode = std::fs::metadata(&inside).unwrap().ino();
    let image = Image::load(&[map_inode(pid, &path, inode)], &plain(&path));
    container.kill().unwrap();
    container.wait().unwrap();
    if told.unwrap() == 0 {
        return println!("skipped: no mount namespace of our own");
    }
    assert_eq!(image.object_error(ObjectId(0)), None);
    let seen = format!("/proc/{pid}/root{}", path.display());
    assert_eq!(image.object_path(ObjectId(0)), Some(Path::new(&seen)));
    assert!(
        image
            .code(image.space(Pid(pid), Ns(0)), Avma(BASE))
            .is_ok_and(|code| code.starts_with(&[0xc3; 0x40]))
    );
}

#[test]
fn the_vdso_is_known_by_its_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let elf = tiny_elf::build();
    put(dir.path(), &format!("[vdso]/{HEX}/vdso"), &elf);
    let cache = ImageOptions { build_id_cache: Some(dir.path().into()), ..nowhere() };
    let host = |same_kernel_release| ImageOptions {
        host_vdso: Some(HostVdso { bytes: elf.clone(), same_kernel_release }),
        ..nowhere()
    };
    let (same, other) = (Some(&tiny_elf::BUILD_ID[..]), Some(&[1, 2, 3][..]));
    let cases = [
        (&cache, same, true, 0),
        (&cache, other, false, 0),
        (&cache, None, false, 0),
        (&host(false), same, true, 0),
        (&host(true), other, false, 0),
        (&host(true), None, true, 1),
        (&host(false), None, false, 0),
    ];
    for (options, id, found, assumptions) in cases {
        let image = Image::load(&[map("[vdso]", id)], options);
        assert_eq!(code_at_base(&image).is_ok(), found, "{id:?}");
        assert_eq!(image.problems().len(), assumptions);
        let space = image.space(PID, Ns(0));
        let name = image.function_name(image.function_at(space, Avma(BASE + 0x10)).id);
        assert_eq!(name, if found { "beta" } else { "[vdso]" });
    }
}

/// With TSC times.
fn jitdump_header() -> Vec<u8> {
    let mut header: Vec<u8> =
        [0x4a69_5444u32, 1, 40, 62, 0, 42].iter().flat_map(|w| w.to_le_bytes()).collect();
    header.extend(longs(&[0, 1]));
    header
}

fn jitdump_load(time: u64, index: u64, name: &str, code: &[u8]) -> Vec<u8> {
    let size = 16 + 40 + name.len() + 1 + code.len();
    let mut load: Vec<u8> = [0, size as u32].iter().flat_map(|w| w.to_le_bytes()).collect();
    load.extend(longs(&[time, 42, BASE + 0x100, BASE + 0x100, code.len() as u64, index]));
    load.extend([name.as_bytes(), b"\0", code].concat());
    load
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn code_that_a_program_wrote_comes_from_its_dump() {
    let dir = tempfile::tempdir().unwrap();
    let mut dump = jitdump_header();
    dump.extend(jitdump_load(100, 1, "first", &[0x90, 0xc3]));
    dump.extend(jitdump_load(200, 2, "second", &[0x50, 0x58, 0xc3]));
    let path = put(dir.path(), "jit-42.dump", &dump);
    let sideband = [
        map_at(Ns(0), "//anon", BASE, 0x1000, BASE, None),
        map_at(Ns(50), path.to_str().unwrap(), BASE + 0x10_0000, 0x1000, 0, None),
        // The kernel tells of the memory again when it grows.
        map_at(Ns(150), "//anon", BASE, 0x2000, BASE, None),
    ];
    let clock = Some(TscClock { shift: 0, mult: 1, zero: 0 });
    let image = Image::load(&sideband, &ImageOptions { clock, ..nowhere() });
    assert_eq!(image.problems(), []);
    let check = |ns, name: &str, code: &[u8]| {
        let space = image.space(PID, Ns(ns));
        let ip = Avma(BASE + 0x100);
        assert_eq!(image.code(space, ip), Ok(code));
        let at = image.function_at(space, ip);
        assert_eq!((image.function_name(at.id).as_str(), at.at_entry), (name, true));
        assert_eq!(image.code(space, Avma(BASE)), Err(NoCode::MissingObject(ObjectId(0))));
        assert_eq!(image.code(space, Avma(BASE + 0x1f00)), Err(NoCode::MissingObject(ObjectId(0))));
    };
    check(120, "first", &[0x90, 0xc3]);
    check(199, "first", &[0x90, 0xc3]);
    check(200, "second", &[0x50, 0x58, 0xc3]);
}

/// It has no code that is known, and the decoder asks for that.
#[test]
fn the_page_of_uprobes_is_known_by_its_name() {
    let page = BASE + 0x10_0000;
    let code = map_at(Ns(0), "//anon", BASE, 0x1000, 0, None);
    let image = Image::load(std::slice::from_ref(&code), &nowhere());
    assert!(!image.has_uprobes_pages());
    let image = Image::load(&[code, map_at(Ns(50), "[uprobes]", page, 0x1000, 0, None)], &nowhere());
    assert!(image.has_uprobes_pages());
    let is_in = |at| image.is_in_uprobes_page(image.space(PID, Ns(60)), Avma(at));
    let seen = [is_in(page), is_in(page + 0xfff), is_in(page + 0x1000), is_in(BASE)];
    assert_eq!(seen, [true, true, false, false]);
}

/// Gaps in it are told apart by the process's map, and calls into it have names.
#[test]
fn code_without_a_dump_is_named_by_the_perf_map() {
    let dir = tempfile::tempdir().unwrap();
    let map = format!("{:x} 20 first\n{:x} 10 second one\n", BASE + 0x100, BASE + 0x120);
    let path = put(dir.path(), "perf-42.map", map.as_bytes());
    let sideband = [
        map_at(Ns(0), "//anon", BASE, 0x1000, 0x77, None),
        map_at(Ns(50), "//anon", BASE + 0x1000, 0x1000, 0, None),
        map_at(Ns(50), "[uprobes]", BASE + 0x10_0000, 0x1000, 0, None),
    ];
    let options = ImageOptions { symfs: Some(dir.path().into()), ..nowhere() };
    let image = Image::load(&sideband, &options);
    assert_eq!(image.problems(), [], "it is one only where it was executed");
    let space = image.space(PID, Ns(60));
    for (offset, name, at_entry) in [
        (0x100, "first", true),
        (0x11f, "first", false),
        (0x120, "second one", true),
        (0x130, "[unknown]", false),
    ] {
        let at = image.function_at(space, Avma(BASE + offset));
        assert_eq!((image.function_name(at.id).as_str(), at.at_entry), (name, at_entry), "{offset:#x}");
    }
    for offset in [0, 0x100, 0x1f00] {
        assert_eq!(image.code(space, Avma(BASE + offset)), Err(NoCode::MissingObject(ObjectId(0))));
    }
    assert_eq!(image.object_name(ObjectId(0)), "/tmp/perf-42.map");
    assert_eq!(image.object_error(ObjectId(0)), Some(&ObjectError::OnlyNames { path }));
    let site = image.site_name(space, Avma(BASE + 0x104));
    assert_eq!(site, format!("perf-42.map+{:#x}", BASE + 0x104));
    assert_eq!(image.object_name(ObjectId(1)), "[uprobes]");

    // A bundle takes it along.
    let files: Vec<_> = image.bundle().files.iter().map(|file| file.path.clone()).collect();
    assert_eq!(files, [Path::new("tmp/perf-42.map")]);
}

/// Both may be there (V8's `--perf-prof --perf-basic-prof`): the dump has times and code.
#[test]
fn a_jitdump_counts_more_than_a_perf_map() {
    let dir = tempfile::tempdir().unwrap();
    let mut dump = jitdump_header();
    dump.extend(jitdump_load(100, 1, "dumped", &[0x90, 0xc3]));
    put(dir.path(), "jit-42.dump", &dump);
    put(dir.path(), "tmp/perf-42.map", format!("{:x} 40 listed\n", BASE + 0x100).as_bytes());
    let sideband = [
        map_at(Ns(0), "//anon", BASE, 0x1000, BASE, None),
        map_at(Ns(50), "/run/jit-42.dump", BASE + 0x10_0000, 0x1000, 0, None),
    ];
    let clock = Some(TscClock { shift: 0, mult: 1, zero: 0 });
    let image = Image::load(&sideband, &ImageOptions { symfs: Some(dir.path().into()), clock, ..nowhere() });
    let name = |ns, offset| {
        let space = image.space(PID, Ns(ns));
        image.function_name(image.function_at(space, Avma(BASE + offset)).id)
    };
    assert_eq!(name(100, 0x100), "dumped");
    assert_eq!(name(100, 0x102), "listed", "after the code of the dump");
    let code = image.code(image.space(PID, Ns(100)), Avma(BASE + 0x100));
    assert_eq!(code, Ok(&[0x90, 0xc3][..]));
}

/// A perf map is found by way of `/proc`, as for a process in a container.
#[test]
fn a_perf_map_of_a_process_that_lives_is_found() {
    let pid = Pid(std::process::id().try_into().unwrap());
    let path = Path::new("/tmp").join(format!("perf-{}.map", pid.0));
    std::fs::write(&path, format!("{BASE:x} 20 mine\nand a line that is none\n")).unwrap();
    let of_this_process = |path: &str, id: Option<&[u8]>| {
        let mut record = map(path, id);
        if let Sideband::Mmap(mmap) = &mut record.body {
            mmap.pid = pid;
        }
        record
    };
    let load = |record| Image::load(&[record], &nowhere());
    let named = load(of_this_process("/memfd:doublemapper (deleted)", None));
    let program = load(of_this_process("/memfd:program", Some(&tiny_elf::BUILD_ID)));
    std::fs::remove_file(&path).unwrap();
    let name = |image: &Image| image.function_name(image.function_at(image.space(pid, Ns(0)), Avma(BASE)).id);
    assert_eq!(name(&named), "mine");
    assert_eq!(name(&program), "[memfd:program]", "an object of its own");
    let found = named.object_path(ObjectId(0)).unwrap();
    assert!(found.starts_with(format!("/proc/{}/root/tmp", pid.0)), "{}", found.display());
    let problems = named.problems();
    assert!(problems[0].what.contains(": 1 of its lines are left out"), "{problems:?}");
}

/// The file was there, named on the command line, and its object "missing".
#[test]
fn a_missing_object_is_the_file_that_the_user_names_if_it_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let own = put(dir.path(), "program", &tiny_elf::build());
    let id = [0xde, 0xad, 0xbe, 0xef];
    let with = |build_id, binary: &Path| {
        let options = ImageOptions { binary: Some(binary.into()), ..nowhere() };
        let image = Image::load(&[map("/not/here/program", build_id)], &options);
        (code_at_base(&image).is_ok(), image.problems().remove(0))
    };
    for (build_id, checked) in [
        (Some(&id[..]), "it has the build id of what ran"),
        (None, "the recording has no build id to check it by"),
    ] {
        let (has_code, problem) = with(build_id, &own);
        assert!(has_code);
        let what =
            format!("/not/here/program is not here: {} is used in its place; {checked}", own.display());
        assert_eq!((problem.what, problem.kind), (what, ProblemKind::Substitute));
    }
    // Another program, by its build id or by its name, is not the one.
    let (has_code, problem) = with(Some(&[1, 2, 3]), &own);
    assert!(
        !has_code && problem.what.contains("has build id deadbeef, but the recording's is 010203"),
        "{problem:?}"
    );
    let (has_code, problem) = with(None, &put(dir.path(), "other", &tiny_elf::build()));
    assert!(!has_code && problem.what.starts_with("/not/here/program is missing"), "{problem:?}");
    // One that is there is what ran.
    let options = ImageOptions { binary: Some(put(dir.path(), "copy/program", b"")), ..nowhere() };
    let image = Image::load(&[map(own.to_str().unwrap(), Some(&id))], &options);
    assert!(code_at_base(&image).is_ok() && image.problems().is_empty());
}
