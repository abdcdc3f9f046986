//! The Python package, by its own tests.

use truth_tests::fixture;

use super::command;
use super::python::Python;

#[test]
fn the_python_package_reports_what_merge_does() {
    let Some(python) = Python::with("pyarrow") else { return };
    for name in ["demo", "demo-cpu2-ovf", "demo-noswitch", "demo-skew"] {
        if fixture(name).is_none() {
            return;
        }
    }
    let Some(demo) = fixture("demo") else { return };
    let fixtures = demo.data.parent().unwrap();
    assert_eq!(python.run_package_tests(&command(), fixtures), 11);
}
