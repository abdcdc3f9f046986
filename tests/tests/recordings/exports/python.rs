//! Programs that read exports with packages for Python.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that has a package.
pub(super) struct Python(PathBuf);

impl Python {
    /// The one that `cargo xtask test` has made, which has all of them; else that on the `PATH`, if it has
    /// `package`.
    pub(super) fn with(package: &str) -> Option<Self> {
        if let Some(made) = std::env::var_os("FUNC_LATENCY_PYTHON") {
            return Some(Self(made.into()));
        }
        let import = Command::new("python3").args(["-c", &format!("import {package}")]).output();
        if import.is_ok_and(|output| output.status.success()) {
            return Some(Self("python3".into()));
        }
        println!("skipped: python3 has no package {package}");
        None
    }

    /// Runs the tests of our Python package, which uses the command under test; how many there were.
    pub(super) fn run_package_tests(&self, command: &Command, fixtures: &Path) -> u64 {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
        let mut tests = Command::new(&self.0);
        tests.args(["-B", "-m", "unittest", "discover", "-s", "tests"]).current_dir(&package);
        tests.env("PYTHONPATH", &package).env("FUNC_LATENCY_FIXTURES", fixtures);
        let output = tests.env("FUNC_LATENCY_COMMAND", command.get_program()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")).unwrap();
        ran.split(' ').next().unwrap().parse().unwrap()
    }

    /// The numbers that one of our scripts prints of a file.
    pub(super) fn run(&self, script: &str, file: &Path) -> Vec<u64> {
        self.run_with(script, &[file])
    }

    /// The numbers that one of our scripts prints of these files.
    pub(super) fn run_with(&self, script: &str, files: &[&Path]) -> Vec<u64> {
        let text = self.output(script, files);
        text.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    /// What one of our scripts prints of these files.
    pub(super) fn output(&self, script: &str, files: &[&Path]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/exports").join(script);
        let output = Command::new(&self.0).arg(script).args(files).output().unwrap();
        assert!(output.status.success(), "{files:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}
