//! Every JSON output fits `docs/report.schema.json`, and has no key that it does not describe.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod program;

use std::path::Path;

use program::{BUILD_ID, check, write};
use serde_json::{Map, Value, json};

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The part of JSON Schema that the file uses: any other word is an error.
struct Schema(Value);

impl Schema {
    fn open() -> Self {
        Self(serde_json::from_str(&read("../../docs/report.schema.json")).unwrap())
    }

    /// What is wrong with a document, and where.
    fn check(&self, value: &Value) -> Result<(), String> {
        self.fits(&self.0, value, "$")
    }

    fn fits(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{at}: {what}: {value}"));
        for (word, argument) in schema.as_object().unwrap() {
            match word.as_str() {
                "$schema" | "title" | "description" | "$defs" | "required" => (),
                "$ref" => {
                    let target = argument.as_str().unwrap().strip_prefix('#').unwrap();
                    self.fits(self.0.pointer(target).unwrap(), value, at)?;
                }
                "oneOf" => {
                    let fits = |one: &&Value| self.fits(one, value, at).is_ok();
                    match argument.as_array().unwrap().iter().filter(fits).count() {
                        1 => (),
                        count => return wrong(&format!("fits {count} of {argument}")),
                    }
                }
                "items" => {
                    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.fits(argument, item, &format!("{at}[{number}]"))?;
                    }
                }
                "properties" => {
                    let properties = argument.as_object().unwrap();
                    self.properties_fit(schema, properties, value.as_object(), at)?;
                }
                word if keeps(word, argument, value) => (),
                word => return wrong(&format!("{word} is {argument}")),
            }
        }
        Ok(())
    }

    /// Stricter than the schema is for readers: a key that it does not describe is an error.
    fn properties_fit(
        &self,
        schema: &Value,
        properties: &Map<String, Value>,
        value: Option<&Map<String, Value>>,
        at: &str,
    ) -> Result<(), String> {
        let Some(value) = value else { return Ok(()) };
        for key in schema["required"].as_array().unwrap() {
            if !value.contains_key(key.as_str().unwrap()) {
                return Err(format!("{at}: no {key}"));
            }
        }
        for (key, value) in value {
            let at = format!("{at}.{key}");
            let property = properties.get(key).ok_or_else(|| format!("{at}: not described"))?;
            self.fits(property, value, &at)?;
        }
        Ok(())
    }
}

/// A value keeps to what one word of the schema says.
fn keeps(word: &str, argument: &Value, value: &Value) -> bool {
    match word {
        "type" => is_type(argument, value),
        "const" => argument == value,
        "enum" => argument.as_array().unwrap().contains(value),
        "minimum" => value.as_i64().is_none_or(|number| number >= argument.as_i64().unwrap()),
        "maxItems" => value.as_array().is_none_or(|all| all.len() as u64 <= argument.as_u64().unwrap()),
        "pattern" => value.as_str().is_none_or(|text| matches(argument.as_str().unwrap(), text)),
        other => panic!("the test knows no {other}"),
    }
}

fn is_type(names: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type {other}"),
    };
    match names {
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        name => is(name.as_str().unwrap()),
    }
}

/// The two patterns that there are.
fn matches(pattern: &str, text: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match pattern {
        "^[1-9][0-9]*-[0-9]+$" => text
            .split_once('-')
            .is_some_and(|(tid, number)| is_number(tid) && !tid.starts_with('0') && is_number(number)),
        "^0x[0-9a-f]+$" => text.strip_prefix("0x").is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        }),
        other => panic!("no pattern {other}"),
    }
}

#[test]
fn goldens_fit_the_schema() {
    let schema = Schema::open();
    let reports = ["report", "report-no-switches", "report-no-times", "top", "top-no-times"];
    let explained = ["counters", "explain-clusters", "explain-slower", "modes"];
    let compared = ["diff", "stat", "compare", "compare-blocks"];
    for name in reports.into_iter().chain(explained).chain(compared) {
        let document = serde_json::from_str(&read(&format!("tests/goldens/{name}.json"))).unwrap();
        assert_eq!(schema.check(&document), Ok(()), "{name}");
    }
    for line in read("tests/goldens/rows.jsonl").lines() {
        assert_eq!(schema.check(&serde_json::from_str(line).unwrap()), Ok(()), "{line}");
    }
}

#[test]
fn what_the_commands_write_fits_the_schema() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &BUILD_ID);
    let schema = Schema::open();
    let commands: [(&[&str], &str); 15] = [
        (&["report", "-f", "f", "--rows", "calls.jsonl"], "func_latency/3"),
        (&["report", "-f", "outer"], "func_latency/3"),
        (&["report", "-f", "f", "--counters"], "func_latency/3"),
        (&["top"], "func_latency_top/1"),
        (&["plan"], "func_latency.plan/1"),
        (&["show", "77-1", "-f", "f"], "func_latency_call/2"),
        (&["explain", "-f", "f"], "func_latency_explain/1"),
        (&["explain", "-f", "outer"], "func_latency_explain/1"),
        (&["modes", "-f", "f"], "func_latency_modes/1"),
        (&["report", "-c", "-f", "f"], "func_latency/3"),
        (&["annotate", "-f", "f"], "func_latency.annotate/1"),
        (&["annotate", "-f", "f", "--slow", "p99"], "func_latency.annotate/1"),
        (&["diff", "perf.data", "perf.data", "-f", "f"], "func_latency_diff/1"),
        (&["diff", "perf.data", "calls.jsonl", "-f", "f", "--fail-above", "5%"], "func_latency.compare/1"),
        (&["stat", "perf.data", "calls.jsonl", "-f", "f"], "func_latency.stat/1"),
    ];
    for (words, name) in commands {
        let (text, _) = check(directory.path(), &[words, &["--format", "json"]].concat(), 0);
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((schema.check(&document), &document["schema"]), (Ok(()), &name.into()), "{words:?}");
    }
    let words =
        ["watch", "-f", "f", "--replay", "perf.data", "--format", "json", "--over", "0ns", "--keep", "1"];
    let (text, _) = check(directory.path(), &words, 0);
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().unwrap();
    let schemas: Vec<&Value> = documents.iter().map(|document| &document["schema"]).collect();
    assert_eq!(schemas, ["func_latency.watch/1", "func_latency.capture/1", "func_latency/3"]);
    documents.iter().for_each(|document| assert_eq!(schema.check(document), Ok(()), "{document}"));
    let rows = std::fs::read_to_string(directory.path().join("calls.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), 2);
    for line in rows.lines() {
        assert_eq!(schema.check(&serde_json::from_str(line).unwrap()), Ok(()), "{line}");
    }
}

/// A schema that fits everything says nothing.
#[test]
fn what_is_changed_does_not_fit() {
    let schema = Schema::open();
    let row: Value = serde_json::from_str(read("tests/goldens/rows.jsonl").lines().next().unwrap()).unwrap();
    let row_schema = &schema.0["$defs"]["row"];
    let cases = [
        ("id", json!(42), "$.id: type is \"string\": 42"),
        ("id", json!("42"), "$.id: pattern is \"^[1-9][0-9]*-[0-9]+$\": \"42\""),
        ("tid", json!("42"), "$.tid: type is \"integer\": \"42\""),
        ("cpu", json!(-1), "$.cpu: minimum is 0: -1"),
        (
            "status",
            json!("done"),
            "$.status: enum is [\"complete\",\"unwound\",\"open_start\",\"open_end\",\"cut\"]: \"done\"",
        ),
        ("other", json!(null), "$.other: not described"),
    ];
    for (key, value, says) in cases {
        let mut changed = row.clone();
        changed[key] = value;
        assert_eq!(schema.fits(row_schema, &changed, "$"), Err(says.to_owned()));
    }
    let mut without = row;
    without.as_object_mut().unwrap().remove("end_ns");
    assert_eq!(schema.fits(row_schema, &without, "$"), Err("$: no \"end_ns\"".to_owned()));
}
