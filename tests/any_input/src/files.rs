//! Any names in a recording, and any bytes as the files that they lead to: jitdumps, perf maps, objects;
//! and the bundle of all.

use std::path::Component;

use image::{Image, ImageOptions};
use model::{
    Avma, BuildId, CodeSource as _, FunctionId, FunctionLookup as _, Ns, Sideband, SidebandRecord, TscClock,
};

use crate::input::Input;
use crate::program::{self, PID};
use crate::scratch;

const START: u64 = 0x10_0000;
const LEN: u64 = 0x1_0000;
const STRIDE: usize = 61;

/// Where the bytes lie below the directory of objects, and the name by which the recording has them.
const PLACES: [(&str, &str); 4] = [
    ("root/tmp/perf-1.map", "//anon"),
    ("root/tmp/jit-1.dump", "/tmp/jit-1.dump"),
    ("root/usr/lib/object", "/usr/lib/object"),
    ("root/object", "/elsewhere/object"),
];

/// Code at every address is named or not, and a bundle has its files below its own directory.
///
/// # Panics
/// If a file of a bundle would lie elsewhere, or in the place of another one's directory.
pub fn files(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (place, name) = PLACES[usize::from(input.byte()) % PLACES.len()];
    let flags = input.byte();
    let other_name = input.text();
    let of_all = PLACES.map(|(place, _)| scratch::directory().join(place));
    of_all.iter().for_each(|path| drop(std::fs::remove_file(path)));
    scratch::file(place, input.rest());
    let mut named = program::mapping(name.as_ref(), START, LEN);
    let other = program::mapping(other_name.as_ref(), START + LEN, LEN);
    if let Sideband::Mmap(mmap) = &mut named.body {
        mmap.build_id = (flags & 1 != 0).then(|| BuildId(vec![7; 20]));
    }
    let sideband = [named, other];
    let image = load(&sideband, flags);
    let space = image.space(PID, Ns(0));
    for ip in (START..START + 2 * LEN).step_by(STRIDE).map(Avma) {
        let id = image.function_at(space, ip).id;
        if id != FunctionId::UNKNOWN {
            assert!(!image.function_name(id).is_empty());
        }
        assert!(image.code(space, ip).map_or(true, |code| !code.is_empty()));
    }
    check_bundle(&image);
}

fn load(sideband: &[SidebandRecord], flags: u8) -> Image {
    let clock = (flags & 2 != 0).then_some(TscClock { shift: 1, mult: 3, zero: 5 });
    let symfs = Some(scratch::directory().join("root"));
    let image = Image::load(sideband, &ImageOptions { symfs, clock, ..ImageOptions::default() });
    image.problems().iter().for_each(|problem| assert!(!problem.what.is_empty()));
    image
}

fn check_bundle(image: &Image) {
    let bundle = image.bundle();
    for file in &bundle.files {
        let is_below = file.path.components().all(|part| matches!(part, Component::Normal(_)));
        assert!(is_below, "{}", file.path.display());
        for other in &bundle.files {
            let is_in_it = other.path != file.path && other.path.starts_with(&file.path);
            assert!(!is_in_it, "{} in {}", other.path.display(), file.path.display());
        }
    }
}
