//! Names and entries of a library that compilers and binutils made, in every state of being stripped.

use std::path::{Path, PathBuf};
use std::process::Command;

use image::{Image, ImageOptions, Query};
use model::{Avma, FileOffset, FunctionAt, Mmap, ObjectId, Pid, Sideband, SidebandRecord, Svma};
use truth_tests::skip;

const SOURCE: &str = r#"
extern int fill(int *, int);
extern void report(const char *, int *) __attribute__((cold));
static __attribute__((noinline, noclone)) int local_fn(int x) { return x * 3 + 1; }
static __attribute__((noinline, noclone)) int with_cold(int x)
{
    int room[8];
    x = fill(room, x);
    if (__builtin_expect(x < 0, 0)) {
        report("negative", room);
        x = room[3];
    }
    return x + 1;
}
int exported(int x) { return local_fn(x) + with_cold(x); }
"#;

/// A directory with the library and its stripped forms.
struct Workshop(tempfile::TempDir);

impl Workshop {
    /// `None` if a tool is missing here.
    fn new(build_id: &str) -> Option<Self> {
        let workshop = Self(tempfile::tempdir().unwrap());
        std::fs::write(workshop.path("lib.c"), SOURCE).unwrap();
        let compile = format!("gcc -O2 -g -fPIC -shared -Wl,--build-id={build_id} -o libfull.so lib.c");
        let commands = [
            &compile[..],
            "objcopy --only-keep-debug libfull.so lib.debug",
            "strip -o libbare.so libfull.so",
        ];
        commands.iter().all(|command| workshop.run(command)).then_some(workshop)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// False if there is no such tool.
    fn run(&self, command: &str) -> bool {
        let words: Vec<&str> = command.split(' ').collect();
        let Ok(status) = Command::new(words[0]).args(&words[1..]).current_dir(self.0.path()).status() else {
            skip(&format!("no {}", words[0]));
            return false;
        };
        assert!(status.success(), "{command}");
        true
    }

    /// An image of one of the files, with debug files below the directory.
    fn image(&self, name: &str) -> Image {
        let body = Sideband::from(Mmap {
            pid: Pid(7),
            start: Avma(0x7f00_0000_0000),
            len: 0x1_0000,
            file_offset: FileOffset(0),
            path: self.path(name).to_str().unwrap().to_owned(),
            build_id: None,
            inode: None,
            executable: true,
            kernel: false,
        });
        let mmap = SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body };
        let options = ImageOptions { debug_directory: self.path("debug"), ..ImageOptions::default() };
        Image::load(&[mmap], &options)
    }
}

/// Linked addresses of the functions and of the cold part, by the full symbol table.
struct Places {
    local_fn: Svma,
    with_cold: Svma,
    cold: Svma,
}

impl Places {
    fn new(full: &Image) -> Self {
        let at = |name: &str| {
            let query = Query { text: name.into(), object: None };
            full.find(&query).unwrap()[0].id
        };
        let (local_fn, with_cold) = (at("local_fn"), at("with_cold"));
        let parts = full.function_parts(with_cold);
        let with_cold = full.function_entry(with_cold).unwrap();
        let cold = parts.iter().map(|(start, _)| *start).find(|start| *start != with_cold);
        Self { local_fn: full.function_entry(local_fn).unwrap(), with_cold, cold: cold.unwrap() }
    }
}

fn at(image: &Image, place: Svma) -> (String, bool) {
    let FunctionAt { id, at_entry } = image.function_at_place(ObjectId(0), place);
    (image.function_name(id), at_entry)
}

fn check_named(image: &Image, places: &Places) {
    assert_eq!(at(image, places.local_fn), ("local_fn".to_owned(), true));
    assert_eq!(at(image, places.with_cold), ("with_cold".to_owned(), true));
    assert_eq!(at(image, places.cold), ("with_cold".to_owned(), false));
}

fn check_unnamed(image: &Image, places: &Places, file: &str) {
    let unnamed = |place: Svma| format!("[{file}+{place}]");
    assert_eq!(at(image, places.local_fn), (unnamed(places.local_fn), true));
    assert_eq!(at(image, places.with_cold), (unnamed(places.with_cold), true));
    assert_eq!(at(image, places.cold), (unnamed(places.cold), false), "jumped to, never called");
}

#[test]
fn a_stripped_library_has_functions_without_names() {
    let Some(workshop) = Workshop::new("none") else { return };
    let places = Places::new(&workshop.image("libfull.so"));
    check_named(&workshop.image("libfull.so"), &places);
    let bare = workshop.image("libbare.so");
    check_unnamed(&bare, &places, "libbare.so");
    let query = Query { text: format!("libbare.so+{}", places.local_fn), object: None };
    let found = bare.find(&query).unwrap();
    assert_eq!((found.len(), found[0].entry), (1, places.local_fn));
}

#[test]
fn debug_files_are_found_by_build_id() {
    let Some(workshop) = Workshop::new("0xabcdef0123") else { return };
    let places = Places::new(&workshop.image("libfull.so"));
    check_unnamed(&workshop.image("libbare.so"), &places, "libbare.so");
    let installed = workshop.path("debug/.build-id/ab");
    std::fs::create_dir_all(&installed).unwrap();
    std::fs::copy(workshop.path("lib.debug"), installed.join("cdef0123.debug")).unwrap();
    let image = workshop.image("libbare.so");
    check_named(&image, &places);
    let line = image.source_line_at(ObjectId(0), places.local_fn).unwrap();
    assert!(line.file.ends_with("lib.c") && line.line == 4, "{line:?}");
}

#[test]
fn debug_files_are_found_by_link_if_the_checksum_is_right() {
    let Some(workshop) = Workshop::new("none") else { return };
    let places = Places::new(&workshop.image("libfull.so"));
    workshop.run("objcopy --add-gnu-debuglink=lib.debug libbare.so liblinked.so");
    check_named(&workshop.image("liblinked.so"), &places);
    let debug = std::fs::read(workshop.path("lib.debug")).unwrap();
    std::fs::remove_file(workshop.path("lib.debug")).unwrap();
    check_unnamed(&workshop.image("liblinked.so"), &places, "liblinked.so");
    let below = workshop.path("debug").join(workshop.0.path().strip_prefix("/").unwrap());
    for directory in [workshop.path(".debug"), below] {
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("lib.debug");
        std::fs::write(&file, &debug).unwrap();
        check_named(&workshop.image("liblinked.so"), &places);
        std::fs::write(&file, [&debug[..], b"x"].concat()).unwrap();
        check_unnamed(&workshop.image("liblinked.so"), &places, "liblinked.so");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn packed_symbols_are_unpacked() {
    let Some(workshop) = Workshop::new("none") else { return };
    let places = Places::new(&workshop.image("libfull.so"));
    let commands = [
        "strip --strip-debug -o mini lib.debug",
        "xz -k mini",
        "objcopy --add-section .gnu_debugdata=mini.xz libbare.so libpacked.so",
    ];
    if !commands.iter().all(|command| workshop.run(command)) {
        return;
    }
    check_named(&workshop.image("libpacked.so"), &places);
    assert!(Path::new(&workshop.path("mini.xz")).is_file());
    // Damaged: as if it were not there.
    let mut packed = std::fs::read(workshop.path("libpacked.so")).unwrap();
    let start = packed.windows(6).position(|w| w == b"\xfd7zXZ\0").unwrap();
    packed[start + 40] ^= 0x10;
    std::fs::write(workshop.path("libdamaged.so"), packed).unwrap();
    check_unnamed(&workshop.image("libdamaged.so"), &places, "libdamaged.so");
}
