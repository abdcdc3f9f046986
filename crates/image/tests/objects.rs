//! An image of files that are built for the purpose: names, kinds, build ids, places, damage.

#![allow(clippy::unwrap_used)]

mod tiny_elf;

use std::collections::BTreeMap;
use std::path::Path;

use image::{FindError, Image, ImageOptions, MatchedBy, ObjectError, ProblemKind, Query};
use model::{
    Avma, BuildId, CodeSource, FileOffset, FunctionId, FunctionKind, FunctionLookup, Mmap, NoCode, Ns,
    ObjectId, Pid, Sideband, SidebandRecord, SpaceId, Svma,
};
use proptest::prelude::*;

const PID: Pid = Pid(42);
const BASE: u64 = 0x7f00_0000_1000;

fn record(body: Sideband) -> SidebandRecord {
    SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body }
}

fn map(path: &str, start: u64, build_id: Option<&[u8]>) -> SidebandRecord {
    record(Sideband::from(Mmap {
        pid: PID,
        start: Avma(start),
        len: 0x2000,
        file_offset: FileOffset(tiny_elf::TEXT),
        path: path.into(),
        build_id: build_id.map(|id| BuildId(id.to_vec())),
        inode: None,
        executable: true,
        kernel: false,
    }))
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_string()
}

/// The space of the process, and an image with the small file mapped at [`BASE`].
fn tiny(name: &str) -> (tempfile::TempDir, Image, SpaceId) {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), name, &tiny_elf::build());
    let image = Image::load(&[map(&path, BASE, Some(&tiny_elf::BUILD_ID))], &ImageOptions::default());
    assert_eq!(image.problems(), []);
    let space = image.space(PID, Ns(0));
    (dir, image, space)
}

fn query(text: &str) -> Query {
    Query { text: text.into(), object: None }
}

/// Functions of one name were counted as they were met, so that the second was the first where only that ran.
#[test]
fn functions_of_one_name_are_told_apart_by_address() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "libtwins.so", &tiny_elf::build_with("alpha"));
    let image = Image::load(&[map(&path, BASE, None)], &ImageOptions::default());
    let space = image.space(PID, Ns(0));
    let at = |offset| image.function_at(space, Avma(BASE + offset)).id;
    let [first, second, unnamed] = [0, 0x10, 0x20].map(at);
    let names = [first, second].map(|id| image.function_name(id));
    assert_eq!(names, ["alpha", "alpha"]);
    assert_eq!(image.nth_of_names(&[second]), BTreeMap::from([(second, 1)]));
    let all = BTreeMap::from([(first, 0), (second, 1), (unnamed, 0)]);
    assert_eq!(image.nth_of_names(&[unnamed, second, first, FunctionId::UNKNOWN]), all);
}

#[test]
fn every_address_has_its_function() {
    let (_dir, image, space) = tiny("libtiny.so");
    let expect = [
        (0x00, "alpha", FunctionKind::Symbol, true),
        (0x0f, "alpha", FunctionKind::Symbol, false),
        (0x10, "beta", FunctionKind::Symbol, true),
        (0x20, "[libtiny.so+0x401020]", FunctionKind::Unnamed, false),
        (0x30, "alpha", FunctionKind::Symbol, false),
        (0x40, "puts@plt", FunctionKind::Plt, true),
        (0x4f, "puts@plt", FunctionKind::Plt, false),
    ];
    for (offset, name, kind, at_entry) in expect {
        let ip = Avma(BASE + offset);
        let at = image.function_at(space, ip);
        assert_eq!((image.function_name(at.id).as_str(), at.at_entry), (name, at_entry), "+{offset:#x}");
        assert_eq!(image.kind(at.id), kind);
        assert_eq!(image.place(space, ip), Some((ObjectId(0), Svma(0x40_1000 + offset))));
        assert_eq!(image.site_name(space, ip), format!("libtiny.so+{:#x}", 0x40_1000 + offset));
    }
    assert_eq!(image.function_at(space, Avma(BASE + 0x50)).id, FunctionId::UNKNOWN);
    assert_eq!(image.function_at(space, Avma(BASE - 1)).id, FunctionId::UNKNOWN);

    for ip in (BASE - 0x20..BASE + 0x2020).map(Avma) {
        let stretch = image.stretch_around(space, ip);
        assert!(stretch.addresses.contains(&ip));
        for near in (ip.0 - 0x20..ip.0 + 0x20).map(Avma).filter(|near| stretch.addresses.contains(near)) {
            assert_eq!(stretch.at(near), image.function_at(space, near), "{ip}, {near}");
        }
    }
    let alpha = image.stretch_around(space, Avma(BASE + 0x35));
    assert_eq!(alpha.addresses, Avma(BASE + 0x30)..Avma(BASE + 0x40));

    let alpha = alpha.id;
    assert_eq!(image.function_symbols(alpha), ["alpha", "alpha_too"]);
    assert_eq!(image.function_parts(alpha), [(Svma(0x40_1000), 0x10), (Svma(0x40_1030), 0x10)]);
    assert_eq!((image.function_size(alpha), image.function_entry(alpha)), (0x10, Some(Svma(0x40_1000))));
}

/// `-f memcpy` reported two calls: those of the resolver.
#[test]
fn a_resolver_is_told_from_the_function_it_chooses() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = tiny_elf::build();
    // The symbol of beta: global function in section 1, and its address.
    let mut symbol = vec![2 | 1 << 4, 0, 1, 0];
    symbol.extend((tiny_elf::BIAS + tiny_elf::TEXT + 0x10).to_le_bytes());
    let at = file.windows(symbol.len()).position(|bytes| bytes == symbol).unwrap();
    file[at] = 10 | 1 << 4; // STT_GNU_IFUNC
    let path = write(dir.path(), "libtiny.so", &file);
    let image = Image::load(&[map(&path, BASE, Some(&tiny_elf::BUILD_ID))], &ImageOptions::default());
    for (name, is_resolver) in [("alpha", false), ("beta", true)] {
        let found = image.find(&query(name)).unwrap();
        assert_eq!(found.iter().map(|f| f.is_resolver).collect::<Vec<_>>(), [is_resolver], "{name}");
    }
}

#[test]
fn code_ends_with_the_file_and_the_mapping() {
    let (_dir, image, space) = tiny("libtiny.so");
    let file = tiny_elf::build();
    assert_eq!(image.code(space, Avma(BASE)), Ok(&file[0x1000..]));
    assert_eq!(image.code(space, Avma(BASE + 0x4f)), Ok(&file[0x104f..]));
    assert_eq!(image.code(space, Avma(BASE + 0x1800)), Err(NoCode::Unmapped));
    assert_eq!(image.code(space, Avma(BASE + 0x2000)), Err(NoCode::Unmapped));
    assert_eq!(image.code(space, Avma(u64::MAX - 5)), Err(NoCode::Kernel));
    assert_eq!(image.code(SpaceId(99), Avma(BASE)), Err(NoCode::Unmapped));
}

#[test]
fn code_without_symbols_in_the_loader_is_the_loaders() {
    let (_dir, image, space) = tiny("ld-linux-x86-64.so.2");
    let at = image.function_at(space, Avma(BASE + 0x20));
    assert_eq!((image.kind(at.id), at.at_entry), (FunctionKind::Loader, false));
    assert_eq!(image.kind(image.function_at(space, Avma(BASE)).id), FunctionKind::Symbol);
}

#[test]
fn another_build_id_is_an_error_that_names_both() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "libtiny.so", &tiny_elf::build());
    let sideband = [map(&path, BASE, Some(&[1, 2, 3])), map("[vdso]", BASE + 0x10_0000, None)];
    let image = Image::load(&sideband, &ImageOptions::default());
    let space = image.space(PID, Ns(0));
    assert_eq!(image.code(space, Avma(BASE)), Err(NoCode::MissingObject(ObjectId(0))));
    let problems = image.problems();
    assert_eq!(problems.len(), 1, "the vdso matters only where it was called");
    assert_eq!(problems[0].kind, ProblemKind::Unusable);
    assert_eq!(
        problems[0].what,
        format!(
            "{path} has build id deadbeef, but the recording's is 010203; give the files that ran with --symfs DIR"
        )
    );

    let vdso = image.function_at(space, Avma(BASE + 0x10_0010));
    assert_eq!((image.function_name(vdso.id).as_str(), vdso.at_entry), ("[vdso]", false));
    assert_eq!(image.function_name(image.function_at(space, Avma(BASE)).id), "[libtiny.so]");
    assert_eq!(image.object_error(ObjectId(1)), Some(&ObjectError::NoVdso { recording: None }));
}

#[test]
fn files_are_found_below_symfs() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("opt/lib")).unwrap();
    write(root.path(), "opt/lib/liba.so", &tiny_elf::build());
    write(root.path(), "libb.so", &tiny_elf::build());
    let sideband = [
        map("/opt/lib/liba.so (deleted)", BASE, Some(&tiny_elf::BUILD_ID)),
        map("/far/away/libb.so", BASE + 0x10_0000, None),
        map("/opt/lib/libc.so", BASE + 0x20_0000, None),
    ];
    let image =
        Image::load(&sideband, &ImageOptions { symfs: Some(root.path().into()), ..ImageOptions::default() });
    let found: Vec<_> = image.objects().map(|id| image.object_path(id).is_some()).collect();
    assert_eq!(found, [true, true, false]);
    let tried = vec![root.path().join("opt/lib/libc.so"), root.path().join("libc.so")];
    let missing = ObjectError::Missing { name: "/opt/lib/libc.so".into(), tried };
    assert_eq!(image.object_error(ObjectId(2)), Some(&missing));
}

#[test]
fn one_name_in_two_objects_is_ambiguous_until_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "liba.so", &tiny_elf::build());
    let b = write(dir.path(), "libb.so", &tiny_elf::build());
    std::os::unix::fs::symlink(&b, dir.path().join("link.so")).unwrap();
    let image = Image::load(&[map(&a, BASE, None), map(&b, BASE * 2, None)], &ImageOptions::default());
    let Err(FindError::Ambiguous { count: 2, candidates, .. }) = image.find(&query("beta")) else {
        unreachable!("not ambiguous")
    };
    let offered: Vec<_> = candidates.iter().map(|c| (c.object_name.as_str(), c.size, c.entry)).collect();
    assert_eq!(offered, [(a.as_str(), 0x10, Svma(0x40_1010)), (b.as_str(), 0x10, Svma(0x40_1010))]);

    let beta = image.function_at_place(ObjectId(1), Svma(0x40_1010)).id;
    let link = dir.path().join("link.so").to_str().unwrap().to_string();
    let by_object = |object: &str| Query { text: "beta".into(), object: Some(object.into()) };
    for query in [query("libb.so:beta"), by_object(&b), by_object("libb.so"), by_object(&link)] {
        let found = image.find(&query).unwrap();
        assert_eq!((found.len(), found[0].id, found[0].matched_by), (1, beta, MatchedBy::Symbol));
    }
    assert!(matches!(image.find(&by_object("libz.so")), Err(FindError::NoObject { .. })));
}

#[test]
fn addresses_find_functions() {
    let (_dir, image, space) = tiny("libtiny.so");
    let beta = image.function_at(space, Avma(BASE + 0x10)).id;
    let by = |text: &str| image.find(&query(text)).map(|found| (found[0].id, found[0].matched_by));
    assert_eq!(by(&format!("{:#x}", BASE + 0x18)), Ok((beta, MatchedBy::ProcessAddress)));
    assert_eq!(by("0x401010"), Ok((beta, MatchedBy::LinkedAddress)));
    assert_eq!(by("libtiny.so+0x401010"), Ok((beta, MatchedBy::LinkedAddress)));
    assert_eq!(by("libtiny.so:0x401010"), Ok((beta, MatchedBy::LinkedAddress)));
    let unnamed = image.function_at(space, Avma(BASE + 0x20)).id;
    assert_eq!(by("[libtiny.so+0x401020]"), Ok((unnamed, MatchedBy::LinkedAddress)));
    assert!(by("0x1").is_err());
}

#[test]
fn names_find_functions() {
    let (_dir, image, space) = tiny("libtiny.so");
    let at = |offset| image.function_at(space, Avma(BASE + offset)).id;
    let by = |text: &str| {
        let found = image.find(&query(text))?;
        Ok(found.iter().map(|f| (f.id, f.matched_by)).collect::<Vec<_>>())
    };
    assert_eq!(by("alpha"), Ok(vec![(at(0), MatchedBy::Symbol)]));
    assert_eq!(by("alpha_too"), Ok(vec![(at(0), MatchedBy::Symbol)]));
    assert_eq!(by("be"), Ok(vec![(at(0x10), MatchedBy::Prefix)]));
    assert_eq!(by("al"), Ok(vec![(at(0), MatchedBy::Prefix)]), "two names of one function");
    assert_eq!(by("*a"), Ok(vec![(at(0), MatchedBy::Glob), (at(0x10), MatchedBy::Glob)]));
    assert_eq!(by("[ab]eta"), Ok(vec![(at(0x10), MatchedBy::Glob)]));
    let Err::<Vec<_>, _>(FindError::Unknown { candidates, .. }) = by("bet4") else { unreachable!("found") };
    assert_eq!(candidates.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["beta"]);
    for text in ["", "*", "zzz*", "[", "::", ":", "0x", "+0x1"] {
        let _ = by(text); // whatever it finds
    }
}

/// Asks everything that can be asked of an image.
fn ask_everything(image: &Image) {
    let space = image.space(PID, Ns(0));
    for offset in (0..0x60).chain([0x1fff, 0x2000]) {
        let ip = Avma(BASE + offset);
        assert!(image.code(space, ip).is_ok_and(|code| !code.is_empty()) || image.code(space, ip).is_err());
        let at = image.function_at(space, ip);
        assert_eq!(at.id == FunctionId::UNKNOWN, image.object(at.id).is_none());
        let _ = image.function_name(at.id);
        let _ = image.function_symbols(at.id);
        let _ = image.function_parts(at.id);
        let _ = image.site_name(space, ip);
    }
    let _ = image.source_line(space, Avma(BASE));
    let _ = image.inlined_sites("alpha", None);
    let _ = image.stack_switchers();
    let _ = image.find(&query("alpha"));
    let _ = image.find(&query("x*"));
    let _ = image.find(&query("gamma"));
    let _ = image.problems();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn damaged_files_are_harmless(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..6),
        headers in any::<bool>(),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        let mut bytes = tiny_elf::build();
        // All but the zeros between the headers and the code.
        let targets: Vec<usize> = (0..120).chain(tiny_elf::TEXT as usize..bytes.len()).collect();
        for (at, bit) in flips {
            let at = if headers { at.index(120) } else { targets[at.index(targets.len())] };
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), "libtiny.so", &bytes);
        ask_everything(&Image::load(&[map(&path, BASE, None)], &ImageOptions::default()));
    }
}
