//! What is printed, held against a file of `tests/goldens`. `UPDATE_GOLDENS=1` writes it anew: read the diff.

use std::path::Path;

pub(crate) fn check_golden(name: &str, actual: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let actual = String::from_utf8(actual.to_vec()).unwrap();
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (actual, expected)) in actual.lines().zip(expected.lines()).enumerate() {
        assert_eq!(actual, expected, "{name}, line {}", number + 1);
    }
    assert_eq!(actual.lines().count(), expected.lines().count(), "lines of {name}");
}
