//! The rows of a run.

use serde_json::Value;

/// What of a row is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Thread.
    pub(crate) tid: i32,
    /// Its entry.
    pub(crate) start_ns: u64,
    /// How long it took, or at least, with its probes: others see that.
    pub(crate) latency_ns: u64,
    /// Of that, off the CPU.
    pub(crate) off_cpu_ns: u64,
    /// It was seen to begin and to end.
    pub(crate) is_complete: bool,
    /// It was seen to begin.
    pub(crate) is_entered: bool,
}

/// All rows, by function.
pub(crate) struct Rows(Vec<(String, Row)>);

impl Rows {
    /// Of a file of `--rows`.
    pub(crate) fn read(file: &str) -> Self {
        let text = std::fs::read_to_string(file).unwrap();
        Self(text.lines().map(|line| row(&serde_json::from_str(line).unwrap())).collect())
    }

    /// Those of a function, by its name without parameters.
    pub(crate) fn of(&self, function: &str) -> Vec<Row> {
        let is_it = |name: &str| {
            name == function || name.strip_prefix(function).is_some_and(|rest| rest.starts_with('('))
        };
        self.0.iter().filter(|(name, _)| is_it(name)).map(|(_, row)| *row).collect()
    }
}

fn row(line: &Value) -> (String, Row) {
    let number = |key: &str| line[key].as_u64().unwrap();
    let row = Row {
        tid: line["tid"].as_i64().unwrap() as i32,
        start_ns: number("start_ns"),
        latency_ns: number("measured_ns"),
        off_cpu_ns: number("measured_off_cpu_ns"),
        is_complete: line["status"] == "complete",
        is_entered: line["status"] != "open_start",
    };
    (line["function"].as_str().unwrap().to_owned(), row)
}
