//! An image of the program that runs the test: a real file with symbols and DWARF.

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // `no_mangle` counts as unsafe

use image::{FindError, FunctionMatch, HostVdso, Image, ImageOptions, MatchedBy, Query};
use model::{
    Avma, CodeSource, FileOffset, FunctionKind, FunctionLookup, Mmap, Ns, Pid, Sideband, SidebandRecord,
    SpaceId,
};

const PID: Pid = Pid(7);

/// A function that is there under exactly this name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn image_test_landmark(x: u64) -> u64 {
    std::hint::black_box(twice(x) + twice(x ^ 1))
}

// Hand-written code, as most is: of no type and without a size.
core::arch::global_asm!(
    ".pushsection .text.image_test_untyped, \"ax\", @progbits",
    ".globl image_test_untyped",
    "image_test_untyped:",
    "mov rax, rdi",
    "image_test_label:",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn image_test_untyped(x: u64) -> u64;
}

#[inline(always)]
fn twice(x: u64) -> u64 {
    std::hint::black_box(x).wrapping_mul(2)
}

/// What the kernel says of our own code, as a recording would have it.
fn own_mappings() -> Vec<SidebandRecord> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let executable = maps.lines().filter(|line| line.split_whitespace().nth(1) == Some("r-xp"));
    executable
        .filter_map(|line| {
            let words: Vec<_> = line.splitn(6, ' ').collect();
            let (start, end) = words[0].split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let mmap = Mmap {
                pid: PID,
                start: Avma(number(start)),
                len: number(end) - number(start),
                file_offset: FileOffset(number(words[2])),
                path: words.get(5)?.trim_start().to_owned(), // which may have spaces
                build_id: None,
                inode: None,
                executable: true,
                kernel: false,
            };
            let body = Sideband::from(mmap);
            Some(SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body })
        })
        .collect()
}

fn landmark() -> Avma {
    Avma(image_test_landmark as *const () as u64)
}

fn own_image() -> (Image, SpaceId) {
    let image = Image::load(&own_mappings(), &ImageOptions::default());
    assert_eq!(image.problems(), []);
    let space = image.space(PID, Ns(1));
    (image, space)
}

fn find(image: &Image, text: &str) -> Result<Vec<FunctionMatch>, FindError> {
    image.find(&Query { text: text.into(), object: None })
}

#[test]
fn the_code_is_what_runs() {
    let (image, space) = own_image();
    let ip = landmark().0;
    let code = image.code(space, Avma(ip)).unwrap();
    let maps = own_mappings();
    let mapping = maps.iter().find_map(|record| match &record.body {
        Sideband::Mmap(m) if m.start.0 <= ip && ip < m.start.0 + m.len => Some(m),
        _ => None,
    });
    let mapping = mapping.unwrap();
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let from = (ip - mapping.start.0 + mapping.file_offset.0) as usize;
    let until = from + (mapping.start.0 + mapping.len - ip) as usize;
    assert!(code == &file[from..until.min(file.len())]);
}

#[test]
fn the_landmark_is_found_by_address_and_name() {
    let (image, space) = own_image();
    let ip = landmark();
    let at = image.function_at(space, ip);
    assert!(at.at_entry);
    assert_eq!(image.function_name(at.id), "image_test_landmark");
    let inside = image.function_at(space, ip.plus(1));
    assert_eq!((inside.id, inside.at_entry), (at.id, false));
    let after = image.function_at(space, ip.plus(image.function_size(at.id) + 64));
    assert_ne!(after.id, at.id);
    let stretch = image.stretch_around(space, ip.plus(1));
    assert_eq!((stretch.at(ip), stretch.addresses.start), (at, ip));

    for (text, by) in [
        ("image_test_landmark", MatchedBy::Symbol),
        ("image_test_landm", MatchedBy::Prefix),
        ("image_*_landmark", MatchedBy::Glob),
        (&ip.to_string(), MatchedBy::ProcessAddress),
    ] {
        let found = find(&image, text).unwrap();
        assert_eq!((found.len(), found[0].id, found[0].matched_by), (1, at.id, by), "{text}");
    }
    let error = find(&image, "image_tset_landmark").unwrap_err();
    assert_eq!(error.candidates()[0].name, "image_test_landmark");
    assert!(matches!(find(&image, "core::fmt::"), Err(FindError::Ambiguous { .. })));
}

/// The number of the first line of this file with this text.
fn source_line_of(text: &str) -> u32 {
    let lines = include_str!("own_program.rs").lines();
    lines.zip(1..).find(|(line, _)| line.contains(text)).unwrap().1
}

#[test]
fn lines_and_inlined_instances_come_from_dwarf() {
    let (image, space) = own_image();
    let ip = landmark();
    let line = image.source_line(space, ip).unwrap();
    assert_eq!(line.inlined_at, []);
    // Somewhere in it stands what `twice` does, perhaps inlined from `core` in turn: its line in `twice`,
    // then the call's.
    let multiplication = source_line_of("wrapping_mul(2)");
    let call = source_line_of("black_box(twice(x)");
    let chains = (0..image.function_size(image.function_at(space, ip).id)).filter_map(|offset| {
        let line = image.source_line(space, ip.plus(offset))?;
        let chain = std::iter::once(&line).chain(&line.inlined_at);
        let here = chain.filter(|line| line.file.ends_with("own_program.rs"));
        Some(here.map(|line| line.line).collect::<Vec<_>>())
    });
    let inlined: Vec<_> = chains.filter(|chain| chain.contains(&multiplication)).collect();
    assert!(
        !inlined.is_empty() && inlined.iter().all(|chain| *chain == [multiplication, call]),
        "{inlined:?}"
    );
    assert!(line.file.ends_with("own_program.rs"), "{}", line.file);
    let source = include_str!("own_program.rs").lines().collect::<Vec<_>>();
    assert!(source[line.line as usize - 1].contains("extern \"C\" fn image_test_landmark"));
    assert_eq!(image.source_line(space, ip), Some(line), "from the cache");
    assert_eq!(image.inlined_sites("own_program::twice", None), 2);
    assert_eq!(image.inlined_sites("own_program::thrice", None), 0);
    assert_eq!(image_test_landmark(1), 2);
}

#[test]
fn the_c_library_has_names_and_stubs() {
    let (image, space) = own_image();
    let write = find(&image, "libc.so.6:write").unwrap();
    assert!(write[0].symbols.contains(&"write".to_string()));
    let object = write[0].object;
    assert_eq!(image.object(write[0].id), Some(object));
    assert!(image.object_name(object).ends_with("/libc.so.6"));
    assert_ne!(space, SpaceId(0));
}

/// The vDSO is no file: its code is that of the running kernel.
#[test]
fn the_vdso_is_code_like_any_other() {
    use std::os::unix::fs::FileExt;
    let maps = own_mappings();
    let vdso = maps.iter().find_map(|record| match &record.body {
        Sideband::Mmap(mmap) if mmap.path == "[vdso]" => Some(mmap),
        _ => None,
    });
    let vdso = vdso.unwrap();
    let mut bytes = vec![0; vdso.len as usize];
    std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, vdso.start.0).unwrap();
    let host_vdso = Some(HostVdso { bytes: bytes.clone(), same_kernel_release: true });
    let image = Image::load(&maps, &ImageOptions { host_vdso, ..ImageOptions::default() });
    let space = image.space(PID, Ns(1));
    assert!(image.code(space, vdso.start) == Ok(&bytes));
    let found = find(&image, "[vdso]:clock_gettime").unwrap();
    let entry = image.function_entry(found[0].id).unwrap();
    let ip = vdso.start.plus(entry.0); // linked at 0
    assert_eq!(image.function_at(space, ip), model::FunctionAt { id: found[0].id, at_entry: true });
    assert_eq!(image.function_name(found[0].id), "clock_gettime");
    assert_eq!(image.problems().len(), 1, "that it is the same vDSO is an assumption");
}

/// Debian strips its C library: functions that are not exported have only a range in `.eh_frame`.
#[test]
fn functions_without_symbols_have_entries() {
    let (image, space) = own_image();
    let qsort = find(&image, "libc.so.6:qsort_r").unwrap();
    let exported = image.function_entry(qsort[0].id).unwrap();
    // Entries of unnamed functions in the 64 KB around, by asking for every address.
    let object = qsort[0].object;
    let addresses = exported.0.saturating_sub(0x8000)..exported.0 + 0x8000;
    let entered = addresses.map(|svma| (svma, image.function_at_place(object, model::Svma(svma))));
    let unnamed: Vec<_> =
        entered.filter(|(_, at)| at.at_entry && image.kind(at.id) == FunctionKind::Unnamed).collect();
    let has_symtab = image.function_symbols(qsort[0].id).iter().any(|name| name.starts_with("__GI_"));
    if has_symtab {
        println!("skipped: this C library is not stripped");
        return;
    }
    assert!(unnamed.len() > 5, "{} unnamed functions near qsort_r", unnamed.len());
    let (svma, at) = unnamed[0];
    assert_eq!(image.function_name(at.id), format!("[libc.so.6+{svma:#x}]"));
    let found = find(&image, &format!("libc.so.6+{svma:#x}")).unwrap();
    assert_eq!((found[0].id, found[0].matched_by), (at.id, MatchedBy::LinkedAddress));
    assert_ne!(space, SpaceId(0));
}

#[test]
fn a_symbol_without_a_type_is_a_function_and_a_local_one_a_label() {
    let (image, space) = own_image();
    let start = Avma(image_test_untyped as *const () as u64);
    let found = image.find(&Query { text: "image_test_untyped".to_owned(), object: None }).unwrap();
    let at_start = image.function_at(space, start);
    assert_eq!((found.len(), at_start.id, at_start.at_entry), (1, found[0].id, true));
    // `mov rax, rdi` has three bytes.
    let at_label = image.function_at(space, start.plus(3));
    assert_eq!((at_label.id, at_label.at_entry), (found[0].id, false));
    let not_found = image.find(&Query { text: "image_test_label".to_owned(), object: None });
    assert!(matches!(not_found, Err(FindError::Unknown { .. })), "{not_found:?}");
}
