//! By the rules of the Firefox Profiler's format.

use serde_json::Value;

use super::{cases, text};

/// What the profiler's own checks demand: tables are as long as they say, and indices are inside of them.
fn check_table(thread: &Value, name: &str, indices: &[(&str, u64)]) -> u64 {
    let table = thread[name].as_object().unwrap();
    let length = table["length"].as_u64().unwrap();
    for (column, values) in table {
        if let Some(values) = values.as_array() {
            assert_eq!(values.len() as u64, length, "{name}.{column}");
        }
    }
    for (column, end) in indices {
        let indices = table[*column].as_array().unwrap();
        assert!(indices.iter().filter_map(Value::as_u64).all(|index| index < *end), "{name}.{column}");
    }
    length
}

#[test]
fn the_firefox_profilers_rules_hold() {
    for case in cases() {
        let profile: Value = serde_json::from_str(&text(&case.export("firefox", &[]))).unwrap();
        assert_eq!(profile["meta"]["preprocessedProfileVersion"], 55);
        let mut total_ms = 0.0;
        for thread in profile["threads"].as_array().unwrap() {
            let strings = thread["stringArray"].as_array().unwrap().len() as u64;
            let functions = check_table(thread, "funcTable", &[("name", strings)]);
            let frames = check_table(thread, "frameTable", &[("func", functions), ("category", 1)]);
            let stacks = check_table(thread, "stackTable", &[("frame", frames)]);
            let prefixes = thread["stackTable"]["prefix"].as_array().unwrap();
            let is_before =
                |(at, prefix): (usize, &Value)| prefix.as_u64().is_none_or(|prefix| prefix < at as u64);
            assert!(
                prefixes.iter().enumerate().all(is_before),
                "{}: a stack comes before its caller's",
                case.name
            );
            check_table(thread, "samples", &[("stack", stacks)]);
            check_table(thread, "markers", &[]);
            let column = |name: &str| {
                thread["samples"][name]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|v| v.as_f64().unwrap())
                    .collect::<Vec<_>>()
            };
            assert!(column("time").is_sorted(), "{}", case.name);
            total_ms += column("weight").iter().sum::<f64>();
        }
        assert_eq!((total_ms * 1e6).round() as u64, case.report.outermost.sum_ns, "{}", case.name);
    }
}
