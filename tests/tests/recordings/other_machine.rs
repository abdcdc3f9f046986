//! A recording analysed with a directory of copies (`--symfs`) instead of the files themselves.

use std::collections::HashMap;
use std::path::Path;

use analyzer::{CallRow, FunctionReport, Status};
use decoder::DecodeOptions;
use image::{BundledFile, Image, ImageOptions, ProblemKind};
use model::{FunctionId, Schedule};
use tracegen::truth::verify::KernelText;
use truth_tests::{Opened, fixture, pipeline};

const FUNCTIONS: [&str; 3] = ["outer_fn", "mid", "round_fn"];

/// Writes what the image is made of, but for objects of the file name `but`.
pub(crate) fn write_bundle(image: &Image, root: &Path, but: &str) {
    write_files(&image.bundle().files, root, |file| image.object_basename(file.object) != but);
}

/// Writes those of the files that are wanted.
pub(crate) fn write_files(files: &[BundledFile<'_>], root: &Path, wanted: impl Fn(&BundledFile<'_>) -> bool) {
    for file in files.iter().filter(|file| wanted(file)) {
        let path = root.join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &*file.bytes).unwrap();
    }
}

/// The recording with the files below `root` alone.
pub(crate) fn with_symfs<'a>(opened: &Opened<'a>, root: &Path) -> Opened<'a> {
    let options = ImageOptions {
        symfs: Some(root.into()),
        debug_directory: "/nowhere".into(),
        ..ImageOptions::default()
    };
    let recording = opened.recording.clone();
    let (schedule, image) = (Schedule::new(&recording.sideband), Image::load(&recording.sideband, &options));
    Opened { recording, schedule, image, kernel: KernelText::Missing }
}

fn ids(opened: &Opened<'_>) -> Vec<FunctionId> {
    FUNCTIONS.iter().map(|name| opened.function(name).unwrap()).collect()
}

/// The complete calls of each function.
fn complete(opened: &Opened<'_>) -> Vec<Vec<CallRow>> {
    let report = opened.analyse(&ids(opened), &DecodeOptions::default());
    let of_function = |f: &FunctionReport| {
        f.rows.iter().filter(|row| row.end.status == Status::Complete).copied().collect()
    };
    report.functions.iter().map(of_function).collect()
}

/// The calls of `left` of which none of `all` has the same packet of entry, and the latency within their
/// errors.
fn made_up(left: &[CallRow], all: &[CallRow]) -> usize {
    let mut by_packet: HashMap<_, Vec<&CallRow>> = HashMap::new();
    for row in all {
        by_packet
            .entry((row.id.tid, row.traced().and_then(|traced| traced.aux_buffer), row.aux_offset()))
            .or_default()
            .push(row);
    }
    let same = |a: &CallRow, b: &CallRow| a.latency_ns.abs_diff(b.latency_ns) <= a.error_ns + b.error_ns;
    let known = |row: &&CallRow| {
        let candidates =
            by_packet.get(&(row.id.tid, row.traced().and_then(|traced| traced.aux_buffer), row.aux_offset()));
        candidates.is_some_and(|candidates| candidates.iter().any(|other| same(row, other)))
    };
    left.iter().filter(|row| !known(row)).count()
}

#[test]
fn copies_give_the_same_report() {
    let Some(fixture) = fixture("demo") else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let here = Opened::new(&file).unwrap();
    let root = tempfile::tempdir().unwrap();
    write_bundle(&here.image, root.path(), "");
    let there = with_symfs(&here, root.path());
    assert!(there.image.objects().all(|id| {
        let path = there.image.object_path(id);
        path.is_none_or(|path| path.starts_with(root.path()))
            && (path.is_some() == here.image.object_path(id).is_some())
    }));
    let report =
        |opened: &Opened<'_>| format!("{:?}", opened.analyse(&ids(opened), &DecodeOptions::default()));
    assert!(report(&here) == report(&there));
}

/// The kernel's text is found in the copies by its build id, be it `kcore` or `vmlinux`.
#[test]
fn copies_of_the_kernel_give_the_same_report() {
    let Some(fixture) = fixture("demo-kernel-cpu2") else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let report =
        |opened: &Opened<'_>| format!("{:?}", opened.analyse(&ids(opened), &DecodeOptions::default()));
    let mut reports = Vec::new();
    for kernel in fixture.kernels() {
        let here = Opened::with_kernel(&file, &kernel).unwrap();
        let root = tempfile::tempdir().unwrap();
        write_bundle(&here.image, root.path(), "");
        write_files(&here.image.bundle_of_kernel().files, root.path(), |_| true);
        let there = with_symfs(&here, root.path());
        assert_eq!(there.image.has_kernel_text(), kernel.text == KernelText::There, "{kernel:?}");
        reports.push(report(&here));
        assert!(reports.last() == Some(&report(&there)), "{kernel:?}");
    }
    assert!(reports[0] != reports[1], "without its code the kernel is skipped");
}

/// What is left is true: after missing code the trace is lost up to the next PSB, and nothing is made up.
#[test]
fn a_missing_library_cuts_only_what_touches_it() {
    let Some(fixture) = fixture("demo") else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let here = Opened::new(&file).unwrap();
    let root = tempfile::tempdir().unwrap();
    write_bundle(&here.image, root.path(), "libc.so.6");
    let there = with_symfs(&here, root.path());
    let missing: Vec<_> =
        there.image.problems().into_iter().filter(|p| p.kind == ProblemKind::Unusable).collect();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].what.contains("libc.so.6 is missing"), "{missing:?}");
    for ((name, all), left) in FUNCTIONS.iter().zip(complete(&here)).zip(complete(&there)) {
        println!("{name}: {} complete calls of {} are left", left.len(), all.len());
        assert_eq!(made_up(&left, &all), 0, "{name}");
        assert_eq!(left.is_empty(), name == &"round_fn", "{name}: every round calls the library");
    }
    let report = there.analyse(&ids(&there), &DecodeOptions::default());
    let cause = report.loss.by_cause.iter().find(|cause| cause.object() == missing[0].object);
    assert!(cause.is_some_and(|cause| cause.count > 0 && cause.lost_ns > 0));
}
