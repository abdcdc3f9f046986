//! Files and names that a hostile process or a hostile author of a recording makes: docs/security.md.

#![allow(clippy::unwrap_used)]

mod tiny_elf;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use image::{Image, ImageOptions, ObjectError};
use model::{Avma, BuildId, CodeSource, FileOffset, Mmap, Ns, ObjectId, Pid, Sideband, SidebandRecord};

const BASE: u64 = 0x7f00_0000_1000;
/// No process has it.
const GONE: Pid = Pid(i32::MAX);

fn map(pid: Pid, start: u64, path: &str, build_id: Option<&[u8]>) -> SidebandRecord {
    let mmap = Mmap {
        pid,
        start: Avma(start),
        len: 0x2000,
        file_offset: FileOffset(tiny_elf::TEXT),
        path: path.into(),
        build_id: build_id.map(|id| BuildId(id.to_vec())),
        inode: None,
        executable: true,
        kernel: false,
    };
    SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body: Sideband::from(mmap) }
}

fn nowhere() -> ImageOptions {
    ImageOptions { debug_directory: "/nowhere".into(), ..ImageOptions::default() }
}

fn below(root: &Path) -> ImageOptions {
    ImageOptions { symfs: Some(root.into()), ..nowhere() }
}

fn put(root: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn bundled(image: &Image) -> Vec<(String, Vec<u8>)> {
    let bundle = image.bundle();
    bundle.files.iter().map(|file| (file.path.display().to_string(), file.bytes.to_vec())).collect()
}

/// A link to `/etc/shadow` was read as a map, and copied into the bundle.
#[test]
fn a_map_that_is_a_link_is_no_map() {
    let dir = tempfile::tempdir().unwrap();
    let secret = put(dir.path(), "secret", b"1000 20 secret\n");
    let map_path = dir.path().join("tmp/perf-2147483647.map");
    fs::create_dir_all(map_path.parent().unwrap()).unwrap();
    let anonymous = [map(GONE, BASE, "//anon", None)];
    let files = || bundled(&Image::load(&anonymous, &below(dir.path())));
    symlink(&secret, &map_path).unwrap();
    assert_eq!(files(), []);
    fs::remove_file(&map_path).unwrap();
    fs::hard_link(&secret, &map_path).unwrap();
    assert_eq!(files(), [], "another name of a file");
    fs::remove_file(&map_path).unwrap();
    // What is understood of one is in the bundle, and no other line.
    fs::write(&map_path, "1000 20 f\nroot:$y$j9T$secret:19000::::::\n").unwrap();
    assert_eq!(files(), [("tmp/perf-2147483647.map".to_owned(), b"1000 20 f\n".to_vec())]);
    if chown(&map_path, Some(12345), None).is_err() {
        return println!("skipped: not root, so no file can be given to another user");
    }
    assert_eq!(files(), [], "of another user");
}

/// The rest of a dump was copied, whatever it was.
#[test]
fn of_a_dump_a_bundle_has_whole_records() {
    let dir = tempfile::tempdir().unwrap();
    let whole = jitdump(&[0xc3]);
    put(dir.path(), "run/jit-42.dump", &[&whole[..], b"what follows is no record"].concat());
    let mapped = [map(GONE, BASE, "/run/jit-42.dump", None)];
    assert_eq!(bundled(&Image::load(&mapped, &below(dir.path()))), [("run/jit-42.dump".to_owned(), whole)]);
}

/// They were dropped from bundles without a word, and could be read from outside of `--symfs`.
#[test]
fn names_that_lead_out_of_a_directory_are_not_followed_and_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let elf = tiny_elf::build();
    let outside = put(dir.path(), "outside/libtiny.so", &elf);
    fs::create_dir(dir.path().join("symfs")).unwrap();
    let below_symfs =
        Image::load(&[map(GONE, BASE, "/../outside/libtiny.so", None)], &below(&dir.path().join("symfs")));
    assert!(matches!(below_symfs.object_error(ObjectId(0)), Some(ObjectError::Missing { .. })));
    let steps = "/..".repeat(outside.components().count());
    let name = format!("{}{steps}{}", dir.path().display(), outside.display());
    let here = Image::load(&[map(GONE, BASE, &format!("/..{}", outside.display()), None)], &nowhere());
    assert_eq!(here.object_error(ObjectId(0)), None);
    let bundle = here.bundle();
    assert_eq!((bundle.files.len(), bundle.left_out), (0, vec![format!("/..{}", outside.display())]));
    let here = Image::load(&[map(GONE, BASE, &name, None)], &nowhere());
    assert_eq!(here.bundle().left_out, [name]);
}

/// One object's path was another one's directory, and nothing was written.
#[test]
fn a_name_below_another_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let elf = tiny_elf::build();
    let root = dir.path().join("symfs");
    put(&root, ".build-id/de/adbeef", &elf);
    put(&root, "elf", &elf);
    // By its file name both of these are found; in a bundle one has its build id's place, and the other
    // would be below it.
    let below_it = "/.build-id/de/adbeef/elf/elf";
    let sideband =
        [map(GONE, BASE, "/a", Some(&tiny_elf::BUILD_ID)), map(GONE, BASE + 0x10_0000, below_it, None)];
    let image = Image::load(&sideband, &below(&root));
    let bundle = image.bundle();
    let paths: Vec<_> = bundle.files.iter().map(|file| file.path.as_path()).collect();
    assert_eq!(paths, [Path::new(".build-id/de/adbeef/elf")]);
    assert_eq!(bundle.left_out, [below_it]);
}

/// A link of a container led to the host's file of that name.
#[test]
fn links_of_a_process_stay_in_its_root() {
    let dir = tempfile::tempdir().unwrap();
    let secret = put(dir.path(), "secret.so", &tiny_elf::build());
    fs::create_dir_all(dir.path().join("root/opt")).unwrap();
    let Ok(busybox) = fs::read("/bin/busybox") else { return println!("skipped: no /bin/busybox") };
    let shell = put(dir.path(), "root/busybox", &busybox);
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(&secret, dir.path().join("root/opt/out.so")).unwrap();
    fs::copy(&secret, dir.path().join("root/opt/real.so")).unwrap();
    symlink("/opt/real.so", dir.path().join("root/opt/in.so")).unwrap();
    let mut chrooted = Command::new("chroot");
    let mut child = chrooted.arg(dir.path().join("root")).args(["/busybox", "sleep", "100"]).spawn().unwrap();
    let root = PathBuf::from(format!("/proc/{}/root", child.id()));
    // Until it has changed its root, that is ours.
    while !root.join("opt").is_dir() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    if child.try_wait().unwrap().is_some() {
        return println!("skipped: not root, so nothing gets a root of its own");
    }
    while fs::read_link(&root).unwrap() == Path::new("/") {
        std::thread::yield_now();
    }
    let pid = Pid(child.id() as i32);
    let load = |name: &str| {
        let image = Image::load(&[map(pid, BASE, name, Some(&tiny_elf::BUILD_ID))], &nowhere());
        image.object_path(ObjectId(0)).map(Path::to_owned)
    };
    assert_eq!(load("/opt/in.so"), Some(root.join("opt/in.so")));
    let out = load("/opt/out.so");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(out, None);
}

/// It waited for a writer for ever.
#[test]
fn pipes_are_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["libpipe.so", "jit-42.dump", "tmp/perf-2147483647.map", ".debug/libtiny.debug"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
    let sideband = [
        map(GONE, BASE, "/libpipe.so", None),
        map(GONE, BASE + 0x10_0000, "/jit-42.dump", None),
        map(GONE, BASE + 0x20_0000, "//anon", None),
    ];
    let image = Image::load(&sideband, &below(dir.path()));
    assert_eq!(image.bundle().files.len(), 0);
    assert!(matches!(image.object_error(ObjectId(0)), Some(ObjectError::Unreadable { .. })));
}

/// That a file is there, and what it is, could be asked of root's profiler by naming it.
#[test]
fn errors_tell_nothing_of_private_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let hidden = ImageOptions { hide_private: true, ..nowhere() };
    let there = put(dir.path(), "there.so", &tiny_elf::build());
    let text = put(dir.path(), "text", b"no ELF file");
    let error = |path: &Path, options: &ImageOptions| {
        let image = Image::load(&[map(GONE, BASE, path.to_str().unwrap(), Some(&[1, 2, 3]))], options);
        let name = image.object_name(ObjectId(0)).to_owned();
        image.object_error(ObjectId(0)).unwrap().to_string().replace(&name, "NAME")
    };
    let missing = error(&dir.path().join("missing"), &hidden);
    assert_eq!(
        missing,
        "NAME is missing, or not the file that ran; no more is said of files that not every user may read (but with --symfs /)"
    );
    assert_eq!([error(&there, &hidden), error(&text, &hidden)], [missing.clone(), missing]);
    assert!(error(&there, &nowhere()).contains("has build id deadbeef"));
    assert!(error(Path::new("/bin/sh"), &hidden).contains("has build id"), "every user may read it");
}

/// The header of a dump, and a record of code at [`BASE`].
fn jitdump(code: &[u8]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<u8>>();
    let header = words(&[0x4a69_5444, 1, 40, 62, 0, 42, 0, 0, 0, 0]);
    let load =
        [words(&[0, 58 + code.len() as u32]), longs(&[0, 42, BASE, BASE, code.len() as u64, 1])].concat();
    [header, load, b"f\0".to_vec(), code.to_vec()].concat()
}

/// SIGBUS ended the process.
#[test]
fn a_dump_that_is_cut_while_it_is_mapped_is_named() {
    files::survive_cut_files().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = put(dir.path(), "jit-42.dump", &jitdump(&[0xc3; 0x4000]));
    let image = Image::load(&[map(GONE, BASE + 0x10_0000, path.to_str().unwrap(), None)], &nowhere());
    let code = image.code(image.space(GONE, Ns(0)), Avma(BASE)).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0x1000).unwrap();
    assert_eq!((code[0], code[0x3fff], code.len()), (0xc3, 0, 0x4000));
    assert!(files::cut_files().contains(&path));
}

/// SIGBUS ended the process.
#[test]
fn an_object_that_is_cut_while_it_is_mapped_is_named() {
    files::survive_cut_files().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = put(dir.path(), "libcut.so", &tiny_elf::build());
    let image = Image::load(&[map(GONE, BASE, path.to_str().unwrap(), None)], &nowhere());
    OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let code = image.code(image.space(GONE, Ns(0)), Avma(BASE)).unwrap();
    assert!(code.iter().all(|byte| *byte == 0));
    assert!(files::cut_files().contains(&path));
}
