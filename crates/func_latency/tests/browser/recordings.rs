//! The page of a recording, as `report` writes it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::opened::Opened;
use crate::program;

/// What `report` writes of a recording.
fn reported(test: &str, directory: &Path, recording: &Path, function: &str) -> Option<Opened> {
    Opened::written(test, |page| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        command.arg("report").arg(recording).args(["-f", function, "--check", "--html"]).arg(page);
        let output = command.current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn a_recording_without_much_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let recording = program::write(directory.path(), &program::BUILD_ID);
    let Some(mut opened) = reported("small", directory.path(), &recording, "f") else { return };
    assert_eq!(opened.number("plot", "shown"), 2.0);
    opened.browser.value("document.querySelector('#slowest button').click()");
    let tree = opened.rows("details .tree");
    assert!(tree.len() == 1 && tree[0].starts_with("f|+0|1|"), "{tree:?}");
    let details = opened.rows("details");
    assert!(details.contains(&"called through|outer".to_owned()), "{details:?}");
    assert!(details.contains(&"went|the usual way".to_owned()), "{details:?}");
    opened.finish();
}

/// The planted cause is three levels down (`fixtures/programs/causes.c`): the way there is marked, and
/// nothing beside it.
#[test]
fn the_trees_of_a_recording_differ_where_the_cause_was_planted() {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
    let fixtures = std::env::var_os("FUNC_LATENCY_FIXTURES").map_or(target, PathBuf::from);
    let recording = fixtures.join("causes.data");
    if !recording.exists() {
        assert!(std::env::var_os("FUNC_LATENCY_REQUIRE_FIXTURES").is_none(), "no {}", recording.display());
        println!("skipped: no {} (cargo xtask fixtures makes it)", recording.display());
        return;
    }
    let Some(mut opened) = reported("causes", &fixtures, &recording, "dear_child") else { return };
    opened.browser.value("document.querySelector('#slowest button').click()");
    let rows = opened.rows("details .tree");
    let marked: Vec<&str> = rows
        .iter()
        .filter(|row| row.ends_with("|differs"))
        .map(|row| row.split(['|', '\n']).next().unwrap())
        .collect();
    let levels = ["dear_child", "deep_1", "deep_2", "deep_3"];
    assert!(
        marked.len() == 4 && marked.iter().zip(levels).all(|(row, name)| row.starts_with(name)),
        "{rows:?}"
    );
    opened.screenshot("opened.png");
    opened.narrow(800);
    assert!(opened.tree_has_room(), "of 800 pixels");
    opened.finish();
}
