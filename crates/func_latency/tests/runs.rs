//! Runs that are repeated and compared: `stat`, `compare`, and `diff` of rows.
//!
//! What needs root, or CAP_BPF and CAP_PERFMON, says that it is skipped without.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[cfg(feature = "bpf")]
mod probing;
mod program;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use program::check;
#[cfg(feature = "bpf")]
use program::ran;
use serde_json::Value;

/// A directory of its own for each test.
fn scratch(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("runs-{test}"));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// `cargo xtask ci --full` asks for more of everything that can be had in any number.
fn is_full_run() -> bool {
    std::env::var_os("FUNC_LATENCY_FULL").is_some_and(|v| v != "0" && !v.is_empty())
}

/// Always the same dice.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About 0, with a standard deviation of 1: of twelve dice.
    fn noise(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// Writes rows of calls around `typical_ns`; one in fifty takes up to a hundred times as long.
fn write_rows(path: &Path, dice: &mut Dice, calls: u64, typical_ns: f64) {
    let mut text = String::new();
    for call in 0..calls {
        let rare = if dice.uniform() < 0.02 { 1.0 + 100.0 * dice.uniform() } else { 1.0 };
        let latency_ns = (typical_ns * rare * (1.0 + 0.1 * dice.noise())).max(1.0) as u64;
        let of_call = r#""function":"work(int)","error_ns":3,"off_cpu_ns":0,"status":"complete""#;
        writeln!(text, r#"{{"id":"7-{call}",{of_call},"latency_ns":{latency_ns}}}"#).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// Writes ten runs, which differ by 1.5 % by themselves.
fn write_runs(directory: &Path, dice: &mut Dice, typical_ns: f64) {
    std::fs::create_dir_all(directory).unwrap();
    for number in 1..=10 {
        let typical_ns = typical_ns * (1.0 + 0.015 * dice.noise());
        write_rows(&directory.join(format!("run-{number:02}.jsonl")), dice, 300, typical_ns);
    }
}

fn json(directory: &Path, words: &[&str], code: i32) -> Value {
    let (text, _) = check(directory, &[words, &["--format", "json"]].concat(), code);
    serde_json::from_str(&text).unwrap()
}

fn verdict<'v>(document: &'v Value, figure: &str) -> &'v str {
    let figures = document["figures"].as_array().unwrap();
    figures.iter().find(|entry| entry["figure"] == figure).unwrap()["verdict"].as_str().unwrap()
}

#[test]
fn ten_runs_that_are_slower_fail_and_the_same_do_not() {
    let directory = scratch("ten");
    let mut dice = Dice(1);
    for (name, typical_ns) in [("a", 1000.0), ("same", 1000.0), ("slower", 1100.0)] {
        write_runs(&directory.join(name), &mut dice, typical_ns);
    }
    let limit = ["-f", "work", "--fail-above", "5%"];
    let slower = json(&directory, &[&["diff", "a", "slower"][..], &limit].concat(), 1);
    assert_eq!((verdict(&slower, "p50"), &slower["fail_above"]["fails"]), ("slower", &true.into()));
    assert_eq!((&slower["samples"], &slower["function"]), (&"runs".into(), &"work(int)".into()));
    let same = json(&directory, &[&["diff", "a", "same"][..], &limit].concat(), 0);
    for figure in ["mean", "p50", "p90", "p99"] {
        assert_eq!(verdict(&same, figure), "may_be_chance", "{figure}: {same:#}");
    }
    assert_eq!((verdict(&same, "p99.9"), &same["fail_above"]["fails"]), ("too_few", &false.into()));
    // By more than 20 % it is not slower, and of p99.9 nothing is known.
    check(&directory, &["diff", "a", "slower", "--fail-above", "20%"], 0);
    let (text, said) =
        check(&directory, &["diff", "a", "slower", "--fail-above", "5", "--quantile", "p99.9"], 0);
    assert!(text.contains("--fail-above 5%, of p99.9: whether B is slower by more cannot be told"), "{text}");
    assert!(said.contains("cannot be told: p99.9 needs 1,000 calls in each run"), "{said}");
}

/// The figures of which B is said to be slower or faster.
fn alarms(document: &Value) -> Vec<&str> {
    let figures = document["figures"].as_array().unwrap().iter();
    let is_alarm = |entry: &&Value| matches!(entry["verdict"].as_str(), Some("slower" | "faster"));
    figures.filter(is_alarm).map(|entry| entry["figure"].as_str().unwrap()).collect()
}

/// Of one command compared with itself again and again 1 % may be false alarms, in any of the figures; 100
/// times in a full run.
#[test]
fn the_same_command_is_told_from_itself_no_more_often_than_the_level_says() {
    let directory = scratch("same");
    let mut dice = Dice(5);
    let (times, allowed) = if is_full_run() { (100, 1) } else { (10, 0) };
    let mut false_alarms = vec![];
    for time in 0..times {
        ["a", "b"].iter().for_each(|name| write_runs(&directory.join(name), &mut dice, 1000.0));
        let document = json(&directory, &["diff", "a", "b", "-f", "work"], 0);
        assert_eq!(document["samples"], "runs");
        let alarms = alarms(&document);
        if !alarms.is_empty() {
            false_alarms.push(format!("{time}: {}", alarms.join(", ")));
        }
    }
    println!("{} false alarms in {times} comparisons", false_alarms.len());
    assert!(false_alarms.len() <= allowed, "of {times}:\n{}", false_alarms.join("\n"));
}

/// Outliers rule the means, and said that nothing differed.
#[test]
fn a_median_of_133_and_one_of_153_ns_differ_in_two_thousand_calls() {
    let directory = scratch("median");
    let mut dice = Dice(2);
    let rows = [("a", 133.0), ("again", 133.0), ("b", 153.0)];
    rows.iter().for_each(|(name, ns)| {
        write_rows(&directory.join(format!("{name}.jsonl")), &mut dice, 2000, *ns);
    });
    let differ = json(&directory, &["diff", "a.jsonl", "b.jsonl"], 0);
    assert_eq!(
        (verdict(&differ, "p50"), verdict(&differ, "mean")),
        ("slower", "may_be_chance"),
        "{differ:#}"
    );
    assert_eq!(differ["samples"], "blocks");
    let same = json(&directory, &["diff", "a.jsonl", "again.jsonl"], 0);
    for figure in ["mean", "p50", "p90", "p99"] {
        assert_eq!(verdict(&same, figure), "may_be_chance", "{figure}: {same:#}");
    }
}

/// Of probes that cost more than a call: all that is known of its time is an upper bound.
#[test]
fn times_of_zero_are_not_alike_but_unknown() {
    let directory = scratch("zeros");
    let row = r#"{"function":"f","error_ns":870,"off_cpu_ns":0,"status":"complete","latency_ns":0}"#;
    for set in ["a", "b"] {
        std::fs::create_dir(directory.join(set)).unwrap();
        for number in 1..=8 {
            std::fs::write(
                directory.join(set).join(format!("run-{number}.jsonl")),
                format!("{row}\n").repeat(20),
            )
            .unwrap();
        }
    }
    let (text, said) = check(&directory, &["diff", "a", "b", "--fail-above", "5%"], 0);
    assert!(text.contains("is 0 ns in both: less than its error"), "{text}");
    let limit =
        "mean, p50, p90: no more than the errors of the times: what is known is < 871 ns, 871 ns, 871 ns";
    assert!(text.contains(&format!("  A: {limit}")) && text.contains(&format!("  B: {limit}")), "{text}");
    assert!(said.contains("--fail-above of p50 cannot be told: p50 is 0 ns in both"), "{said}");
    let document = json(&directory, &["diff", "a", "b"], 0);
    assert_eq!(verdict(&document, "p50"), "no_ratio");
    assert_eq!(document["figures"][1]["change_percent"], Value::Null, "{document:#}");
    let (text, _) = check(&directory, &["stat", "a"], 0);
    assert!(text.contains(&format!("  {limit}")), "{text}");
}

#[test]
fn recordings_and_rows_are_runs() {
    let directory = scratch("mixed");
    program::write(&directory, &program::BUILD_ID);
    check(&directory, &["report", "-f", "f", "--rows", "calls.csv"], 0);
    let stat = json(&directory, &["stat", "perf.data", "calls.csv", "-f", "f"], 0);
    let runs = stat["functions"][0]["runs"].as_array().unwrap();
    let [of_recording, of_rows] = runs.as_slice() else { unreachable!("{stat:#}") };
    for key in ["calls", "sum_ns", "p50_ns", "max_ns", "off_cpu_sum_ns"] {
        assert_eq!(of_recording[key], of_rows[key], "{key}");
    }
    assert_eq!((&of_rows["name"], &of_rows["calls"]), (&"calls.csv".into(), &2.into()));
    // A directory of both has each run once.
    std::fs::create_dir(directory.join("runs")).unwrap();
    std::fs::copy(directory.join("perf.data"), directory.join("runs/1.data")).unwrap();
    let of_directory = json(&directory, &["stat", "runs", "-f", "f"], 0);
    assert_eq!(of_directory["functions"][0]["runs"][0]["sum_ns"], of_recording["sum_ns"]);
    std::fs::copy(directory.join("calls.csv"), directory.join("runs/1.csv")).unwrap();
    let of_both = json(&directory, &["stat", "runs", "-f", "f"], 0);
    assert_eq!(of_both["functions"][0]["runs"].as_array().unwrap().len(), 1, "{of_both:#}");
    let (_, said) = check(&directory, &["stat", "perf.data", "calls.csv"], 2);
    assert!(said.contains("which function? Name it with -f FUNC"), "{said}");
}

#[test]
fn what_cannot_be_repeated_or_compared_is_said() {
    let directory = scratch("wrong");
    write_rows(&directory.join("a.jsonl"), &mut Dice(3), 5, 100.0);
    std::fs::create_dir(directory.join("empty")).unwrap();
    std::fs::write(directory.join("bad.csv"), "id\n1\n").unwrap();
    for (words, code, says) in [
        (&["diff", "a.jsonl", "a.jsonl", "-f", "other"][..], 2, "no call of 'other' is in a.jsonl"),
        (&["diff", "a.jsonl", "empty"], 4, "empty: no runs: no .jsonl or .csv"),
        (&["diff", "a.jsonl", "bad.csv"], 4, "bad.csv: line 1: no row as report --rows writes it"),
        (&["diff", "a.jsonl", "none.csv"], 4, "none.csv: No such file"),
        (&["compare", "-f", "f", "--", "a"], 2, "compare takes two lines of a shell"),
        (&["compare", "-r", "6", "--fail-above", "1%", "-f", "f", "--", "a", "b"], 2, "-r 7 or more can"),
        (&["stat", "-f", "f", "--html", "x", "--", "a"], 2, "--html has no effect on runs that are repeated"),
        (&["stat", "-f", "f", "--save", ".", "--", "a"], 2, "--save .: not an empty directory"),
        (&["diff", "a.jsonl", "a.jsonl", "--fail-above=-1%"], 2, "is no share from 0% on"),
        (
            &["diff", "a.jsonl", "a.jsonl", "--quantile", "p98", "--fail-above", "1%"],
            2,
            "`p98` is none of mean",
        ),
    ] {
        let (_, said) = check(&directory, words, code);
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

/// Runs by probes, where these are permitted.
#[cfg(feature = "bpf")]
mod by_probes {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A directory with the program.
    fn compiled(test: &str) -> PathBuf {
        let directory = scratch(test);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/uprobes/repeated.c");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-g", source, "-o", "repeated"]).current_dir(&directory);
        assert!(compiler.status().unwrap().success(), "gcc {source}");
        directory
    }

    /// The JSON of a command, and what it said; `None`: probes are not permitted here.
    fn run(directory: &Path, command: &[&str], program: &[&str]) -> Option<(Value, String)> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        // What it costs is not the question.
        process.args(command).args(["--backend", "uprobe", "--max-overhead", "1000", "-f", "work"]);
        process.args(["--format", "json"]).args(program);
        let output = process.current_dir(directory).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if probing::not_permitted(&said) {
            return None;
        }
        assert_eq!(output.status.code(), Some(0), "{command:?}: {said}");
        // What the program prints is not among it.
        Some((serde_json::from_slice(&output.stdout).unwrap(), said))
    }

    fn calls(stat: &Value) -> Vec<u64> {
        let runs = stat["functions"][0]["runs"].as_array().unwrap();
        runs.iter().map(|run| run["calls"].as_u64().unwrap()).collect()
    }

    #[test]
    fn a_program_is_run_again_and_again() {
        let directory = compiled("again");
        let command = ["stat", "-r", "2", "--warmup", "1"];
        let Some((stat, said)) = run(&directory, &command, &["--", "./repeated", "200000"]) else { return };
        assert_eq!(
            (calls(&stat).as_slice(), &stat["measured"]),
            (&[300, 300][..], &"./repeated 200000".into())
        );
        let counted = said.lines().filter(|line| line.contains("./repeated 200000: run ")).count();
        assert_eq!((counted, said.matches("a run that does not count").count()), (2, 1), "{said}");
    }

    /// Figures of programs that failed looked like any other.
    #[test]
    fn a_program_that_fails_is_said_to() {
        let directory = compiled("fails");
        let program = ["--", "./repeated", "200000", "10", "3"];
        let Some((stat, said)) = run(&directory, &["stat", "-r", "2"], &program) else { return };
        assert_eq!(calls(&stat), [10, 10]);
        assert_eq!(said.matches("warning: the program failed: exit status: 3\n").count(), 2, "{said}");
    }

    #[test]
    fn two_programs_are_run_in_turns_and_their_rows_kept() {
        let directory = compiled("turns");
        let command = ["compare", "-r", "2", "--save", "kept"];
        let programs = ["--", "./repeated 200000", "./repeated '800000'"];
        let Some((compared, said)) = run(&directory, &command, &programs) else { return };
        assert_eq!((verdict(&compared, "p50"), &compared["samples"]), ("too_few", &"runs".into()));
        let turns = said.lines().filter_map(|line| line.strip_suffix(" of 2"));
        let turns: Vec<&str> = turns.filter_map(|line| line.strip_prefix("func_latency: note: ")).collect();
        assert_eq!(turns, ["A: run 1", "B: run 1", "B: run 2", "A: run 2"]);
        // What was kept gives the same figures. How much slower B is, is up to who else uses the machine.
        assert_eq!(json(&directory, &["diff", "kept/a", "kept/b"], 0)["figures"], compared["figures"]);
        let diff =
            ["diff", "kept/a/run-1.jsonl", "kept/b/run-1.jsonl", "--fail-above", "50%", "--format", "json"];
        let (code, told, said) = ran(&directory, &diff);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(code, Some(told["fail_above"]["fails"].as_bool().unwrap().into()), "{told:#}{said}");
    }

    /// A process that ends with the test.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn windows_of_a_process_are_runs_and_can_be_kept() {
        let directory = compiled("windows");
        let mut program = Command::new(directory.join("repeated"));
        let running = Running(program.args(["1000000", "1000000000"]).stdout(Stdio::null()).spawn().unwrap());
        let pid = running.0.id().to_string();
        let window = ["-d", "0.2", "-p", &pid];
        let Some((stat, _)) = run(&directory, &["stat", "-r", "3"], &window) else { return };
        let (runs, measured) = (calls(&stat), &stat["measured"]);
        assert_eq!((runs.len(), measured), (3, &format!("0.2 s of process {pid}").into()));
        let (report, _) = run(&directory, &["--save", "kept"], &window).unwrap();
        let kept = calls(&json(&directory, &["stat", "kept/run-1.jsonl"], 0));
        assert_eq!(kept, [report["functions"][0]["calls"]["complete"].as_u64().unwrap()]);
    }
}
