//! What is measured.

use crate::fixtures::Recording;

/// A recording, and the function that is reported on.
pub(super) struct Case {
    /// The recording's name.
    pub(super) name: &'static str,
    /// The run of `fixtures/programs.txt` that it is made of.
    pub(super) log: &'static str,
    /// Options of `tracegen encode`.
    pub(super) options: &'static str,
    /// What `func_latency report` is asked for.
    pub(super) function: &'static str,
    pub(super) extent: Extent,
}

impl Case {
    /// The recording, as it is made.
    pub(super) fn recording(&self) -> Recording<'static> {
        let options = self.options.split_whitespace().collect();
        Recording { name: self.name, log: self.log, options, full_only: false }
    }
}

/// How much is measured of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All, by `--quick`, too.
    Quick,
    /// All.
    Full,
    /// Only our report: the others would take hours.
    Report,
}

const SQLITE: &str = "sqlite3VdbeExec";
const PER_CPU: &str = "--per-cpu --ncpu=2 --switch=3 --tick-us=50 --slice-ms=0.1";
const BTREE: &str = "--filter=sqlite3_step --filter=sqlite3BtreeInsert";
const HEAVY_LOSS: &str = "--ovf-ms=0.2 --ovf-us=10";

const fn quick(name: &'static str, log: &'static str, options: &'static str, function: &'static str) -> Case {
    Case { name, log, options, function, extent: Extent::Quick }
}

const fn full(name: &'static str, log: &'static str, options: &'static str, function: &'static str) -> Case {
    Case { name, log, options, function, extent: Extent::Full }
}

/// Where a name is one of `fixtures/matrix.txt`, so are run and options: the recording is made once for both.
pub(super) const CASES: &[Case] = &[
    quick("sq50", "sq50", "", SQLITE),
    full("sq370", "sq370", "", SQLITE),
    quick("sq1-filter2", "sq1", BTREE, "sqlite3BtreeInsert"),
    full("sq50-filter2", "sq50", BTREE, "sqlite3BtreeInsert"),
    full("sq50-ovf", "sq50", HEAVY_LOSS, SQLITE),
    quick("demo-ovf", "demo", HEAVY_LOSS, "round_fn"),
    quick("demo-cpu2", "demo", PER_CPU, "round_fn"),
    quick("many", "many", "", "work"),
    quick("python", "python", "--whole-psb-ip", "_PyEval_EvalFrameDefault"),
    full("xz", "xz", "", "lzma_code"),
    full("blocks", "blocks", "", "random_walk"),
    full("mariadb", "mariadb", "", "handler::ha_write_row"),
    // Ten times sq370: memory and scaling must be the same.
    Case { name: "sq3700", log: "sq3700", options: "", function: SQLITE, extent: Extent::Report },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn recordings_of_the_matrix_are_those_of_the_matrix() {
        let matrix = fixtures::matrix().unwrap();
        let recordings = fixtures::recordings(&matrix).unwrap();
        for case in CASES {
            let same_name = recordings.iter().find(|recording| recording.name == case.name);
            let options: Vec<&str> = case.options.split_whitespace().collect();
            if let Some(recording) = same_name {
                assert_eq!((recording.log, &recording.options), (case.log, &options), "{}", case.name);
            }
        }
    }
}
