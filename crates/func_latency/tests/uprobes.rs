//! Calls timed by uprobes, held against programs that count their own (`uprobes/truth.cpp`).
//!
//! What needs root, or CAP_BPF and CAP_PERFMON, says that it is skipped without.

#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod probing;
#[path = "uprobes/unharmed.rs"]
mod unharmed;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::{Field, Row};
use probing::{Probing, TICK_NS, compiled, not_permitted, stolen_ns};
use serde_json::Value;

/// The program, compiled once.
fn truth() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let compiler = ["g++", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    compiled(&PROGRAM, "uprobes-truth", &compiler, "tests/uprobes/truth.cpp")
}

/// What was seen of a case, and what the program counted.
struct Seen {
    report: Value,
    counted: Vec<u64>,
    said: String,
    /// What the program's threads have on their clocks, and not in the kernel's sums: at most so much.
    stolen_ns: u64,
}

/// A running case.
struct Case {
    program: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Case {
    /// Started, and waiting.
    fn new(name: &str) -> Self {
        let mut program =
            Command::new(truth()).arg(name).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(program.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { program, output }
    }

    /// Goes to its end; the numbers that it has counted.
    fn go(mut self) -> Vec<u64> {
        self.program.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.program.wait().unwrap().success(), "{text}");
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }
}

/// Probes `functions` through all of a case, whatever it costs; `None`: that is not permitted here.
fn probed(case: &str, functions: &[&str], more: &[&str]) -> Option<Seen> {
    let case = Case::new(case);
    let pid = case.program.id().to_string();
    let mut words = vec!["-p", &pid, "--check", "--format", "json", "--max-overhead", "1e9"];
    functions.iter().for_each(|function| words.extend(["-f", function]));
    words.extend(more);
    let probing = Probing::start(&words)?;
    let stolen_before_ns = stolen_ns();
    let counted = case.go();
    let stolen_ns = stolen_ns() - stolen_before_ns + TICK_NS;
    let ended = probing.end();
    Some(Seen { report: ended.report(), counted, said: ended.said, stolen_ns })
}

impl Seen {
    /// Complete, cut, open at start, open at end of a function; it has no others.
    fn calls(&self, function: usize) -> [u64; 4] {
        let calls = &self.report["functions"][function]["calls"];
        assert_eq!(calls["unwound"], 0, "probes do not see how a call is unwound");
        ["complete", "cut", "open_start", "open_end"].map(|status| calls[status].as_u64().unwrap())
    }

    /// Name and calls of the callers.
    fn callers(&self, function: usize) -> Vec<(String, u64)> {
        let callers = self.report["functions"][function]["callers"].as_array().unwrap();
        let caller = |c: &Value| (c["name"].as_str().unwrap().to_owned(), c["calls"].as_u64().unwrap());
        let mut callers: Vec<(String, u64)> = callers.iter().map(caller).collect();
        callers.sort();
        callers
    }

    /// Of a function's calls that are listed, all that were cut were cut by this.
    fn all_cut_by(&self, function: usize, cause: &str) {
        let listed = self.report["functions"][function]["longest_open"].as_array().unwrap();
        assert!(!listed.is_empty() && listed.iter().all(|call| call["cut_by"] == cause), "{listed:?}");
    }

    fn off_cpu_ns(&self) -> u64 {
        self.report["functions"][0]["off_cpu_ns"]["sum"].as_u64().unwrap()
    }

    fn latency_ns(&self) -> u64 {
        self.report["functions"][0]["latency_ns"]["sum"].as_u64().unwrap()
    }
}

fn named(callers: &[(&str, u64)]) -> Vec<(String, u64)> {
    callers.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
}

#[test]
fn calls_from_two_sites() {
    let Some(seen) = probed("plain", &["work"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([1500, 0, 0, 0], &[1500][..]));
    assert_eq!(seen.callers(0), named(&[("main", 500), ("main", 1000)]));
    assert_eq!(seen.report["trace"]["decoder"], "uprobe");
    assert_eq!(seen.report["trace"]["monotonic_offset_ns"], 0);
    assert_eq!(seen.report["loss"]["coverage"], 1.0);
    let limits = &seen.report["loss"]["problems"];
    assert!(limits[0].as_str().unwrap().contains("timed by uprobes"), "{limits}");
    let error = &seen.report["functions"][0]["error_ns"];
    assert!(error["mean"].as_f64().unwrap() > 0.0, "{error}");
}

#[test]
fn recursion_is_paired_by_the_stack_pointer() {
    let Some(seen) = probed("recursive", &["recursive"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([127, 0, 0, 0], &[127][..]));
    assert_eq!(seen.callers(0), named(&[("main", 1), ("recursive", 63), ("recursive", 63)]));
}

#[test]
fn recursion_deeper_than_is_followed_is_counted_and_mispairs_nothing() {
    let Some(seen) = probed("deep", &["deep"], &[]) else { return };
    let too_deep = seen.report["loss"]["capped_stacks"].as_u64().unwrap();
    assert_eq!((seen.calls(0), too_deep, seen.counted.as_slice()), ([128 + 3, 0, 0, 0], 72, &[203][..]));
}

#[test]
fn a_tail_call_ends_at_its_jump_and_its_callee_is_called_by_return_address() {
    let Some(seen) = probed("tail", &["jumper", "landed", "work"], &[]) else { return };
    let calls: Vec<u64> = (0..3).map(|function| seen.calls(function)[0]).collect();
    assert_eq!((calls, seen.counted.as_slice()), (vec![300; 3], &[900][..]));
    let jumped: Vec<&Value> = (0..3).map(|f| &seen.report["functions"][f]["ended_by_jump"]).collect();
    assert_eq!(jumped, [300, 0, 0]);
    assert_eq!(seen.callers(1), named(&[("main", 300)]));
    assert_eq!(seen.callers(2), named(&[("landed", 300)]));
    let says = "all calls of jumper end where they jump to another function, whose time is not in them: measure landed, to which \
                it jumps, or take --uretprobe";
    assert!(seen.said.contains(says), "{}", seen.said);
}

/// What is said of a function of which no call is seen in a moment, while the program waits.
fn said_without_calls(function: &str) -> Option<String> {
    let case = Case::new("plain");
    let pid = case.program.id().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "-f", function, "-p", &pid, "-d", "0.2"]);
    let output = command.output().unwrap();
    assert_eq!(case.go(), [1500]);
    let said = String::from_utf8(output.stderr).unwrap();
    if not_permitted(&said) {
        return None;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    Some(said)
}

/// It was said that no call was seen, and nothing else.
#[test]
fn a_function_that_runs_all_the_time_is_said_to() {
    let Some(said) = said_without_calls("main") else { return };
    assert!(
        said.contains("in which it was running all the time, as it seems: it stands on the stack of"),
        "{said}"
    );
    assert!(said.contains("(uprobes-truth): take one that it calls ("), "{said}");
    let Some(said) = said_without_calls("recursive") else { return };
    assert!(said.contains("no call of recursive (") && !said.contains("stands on the stack"), "{said}");
}

#[test]
fn a_function_that_is_inlined_wherever_it_is_used_is_said_to() {
    let Some(said) = said_without_calls("inlined_everywhere") else { return };
    assert!(
        said.contains("; the compiler has inlined it in 1 place, and inlined code is not called"),
        "{said}"
    );
}

/// It was said that there is no function of this name, and nothing else.
#[test]
fn a_stripped_program_is_named_with_what_gives_it_names() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uprobes-stripped");
    assert!(Command::new("strip").arg(truth()).arg("-o").arg(&program).status().unwrap().success());
    let of_nm = Command::new("nm").arg(truth()).output().unwrap().stdout;
    let symbols = String::from_utf8(of_nm).unwrap();
    let work = symbols.lines().find(|line| line.ends_with(" T work")).unwrap();
    let address = work.split(' ').next().unwrap().trim_start_matches('0');
    let run = |function: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        command.args(["--backend", "uprobe", "-f", function, "--"]).arg(&program).arg("plain");
        let mut probing =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It may have been refused, and read nothing.
        let _ = probing.stdin.take().unwrap().write_all(b"go\n");
        let output = probing.wait_with_output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (_, said) = run("work");
    if not_permitted(&said) {
        return;
    }
    for part in ["uprobes-stripped is stripped", "build id ", "-f uprobes-stripped+0xADDRESS"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (report, said) = run(&format!("uprobes-stripped+0x{address}"));
    assert!(report.contains("count: 1,500"), "{report}{said}");
}

/// `work` that a child calls is the child's.
#[test]
fn children_are_what_a_call_calls_itself() {
    let Some(seen) = probed("children", &["calls_others"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([100, 0, 0, 0], &[500][..]));
    let children = seen.report["functions"][0]["children"].as_array().unwrap();
    // glibc has more than one name for it.
    let name = |child: &'_ Value| child["name"].as_str().unwrap().trim_start_matches('_').to_owned();
    let mut named: Vec<(String, u64)> =
        children.iter().map(|child| (name(child), child["count"].as_u64().unwrap())).collect();
    named.sort();
    // One row for each call site.
    let expect = ["*self", "getppid", "landed", "work", "work"].map(|name| (name.to_owned(), 100));
    assert_eq!(named, expect, "{children:?}");
    let Some(alone) = probed("children", &["calls_others"], &["--max-probes", "0"]) else { return };
    assert_eq!(alone.report["functions"][0]["children"].as_array().unwrap().len(), 1, "*self");
}

/// Why calls were slow is told by what they called: of branches probes know nothing.
#[test]
fn slow_calls_are_explained_by_their_children() {
    let case = Case::new("varies");
    let pid = case.program.id().to_string();
    let words = ["-p", &pid, "-f", "calls_what_varies", "--explain", "--max-overhead", "1e9"];
    let Some(probing) = Probing::start(&words) else { return };
    case.go();
    let ended = probing.end();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let (_, explained) = ended.stdout.split_once("slow calls of [calls_what_varies]").unwrap();
    for row in ["varies", "*self", "[difference]"] {
        assert!(explained.lines().any(|line| line.trim_start().starts_with(row)), "{row}: {explained}");
    }
    assert!(!explained.contains("divergent branch"), "{explained}");
}

#[test]
fn a_conditional_jump_leaves_only_where_its_condition_holds() {
    let Some(seen) = probed("condition", &["leaves_by_condition", "work"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.calls(1)), ([300, 0, 0, 0], [150, 0, 0, 0]));
    assert_eq!(seen.counted, [300, 150]);
    assert_eq!(seen.report["functions"][0]["ended_by_jump"], 150);
}

#[test]
fn a_jump_to_the_own_entry_is_a_loop() {
    let Some(seen) = probed("loop", &["loops_to_entry"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([100, 0, 0, 0], &[100][..]));
}

/// Rewritten return addresses (uretprobes) abort such a program.
#[test]
fn an_exception_thrown_through_a_probed_function_cuts_it_and_harms_nobody() {
    let Some(seen) = probed("throw", &["throws", "throws_from_below"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.calls(1)), ([200, 100, 0, 0], [200, 100, 0, 0]));
    assert_eq!(seen.counted, [600, 100]);
    seen.all_cut_by(0, "unwound out of sight");
    seen.all_cut_by(1, "unwound out of sight");
}

#[test]
fn a_longjmp_out_of_a_probed_function_cuts_it() {
    let Some(seen) = probed("longjmp", &["jumps_back"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([300, 100, 0, 0], &[400, 100][..]));
    seen.all_cut_by(0, "unwound out of sight");
}

/// With rewritten return addresses a call lasts until its callee has returned, to which it jumped.
#[test]
fn uretprobes_see_a_tail_call_to_its_end() {
    let Some(seen) = probed("tail", &["jumper", "landed", "work"], &["--uretprobe"]) else { return };
    for function in 0..3 {
        assert_eq!(seen.calls(function), [300, 0, 0, 0]);
        assert_eq!(seen.report["functions"][function]["ended_by_jump"], 0);
    }
    let callers: Vec<_> = (0..3).map(|function| seen.callers(function)).collect();
    assert_eq!(callers, ["main", "main", "landed"].map(|name| named(&[(name, 300)])));
    // Each probe's own time was taken off the measured one, and that is as certain as the error says.
    let mean = |function: usize| {
        let latency = &seen.report["functions"][function]["latency_ns"];
        ["mean", "mean_error"].map(|figure| latency[figure].as_f64().unwrap())
    };
    for (around, inside) in [(mean(0), mean(1)), (mean(1), mean(2))] {
        assert!(around[0] + around[1] > inside[0] - inside[1], "{inside:?} is inside of {around:?}");
    }
    assert!(seen.said.contains("an exception that is thrown through a probed function ends the program"));
}

#[test]
fn uretprobes_see_recursion_longjmp_and_loops_to_the_entry() {
    let Some(seen) = probed("recursive", &["recursive"], &["--uretprobe"]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([127, 0, 0, 0], &[127][..]));
    assert_eq!(seen.callers(0), named(&[("main", 1), ("recursive", 63), ("recursive", 63)]));
    let Some(seen) = probed("longjmp", &["jumps_back"], &["--uretprobe"]) else { return };
    assert_eq!(seen.calls(0), [300, 100, 0, 0]);
    let Some(seen) = probed("loop", &["loops_to_entry"], &["--uretprobe"]) else { return };
    assert_eq!(seen.calls(0), [100, 0, 0, 0]);
}

/// The kernel follows 64 of them in a thread: of the 128 that have frames, the others have no end.
#[test]
fn uretprobes_nested_deeper_than_the_kernel_follows_have_no_end() {
    let Some(seen) = probed("deep", &["deep"], &["--uretprobe"]) else { return };
    let too_deep = seen.report["loss"]["capped_stacks"].as_u64().unwrap();
    assert_eq!((seen.calls(0), too_deep), ([64 + 3, 64, 0, 0], 72));
    seen.all_cut_by(0, "end not seen");
}

#[test]
fn a_handler_interrupts_calls_and_ends_none() {
    for case in ["signal", "altstack"] {
        let Some(seen) = probed(case, &["interrupted", "work"], &[]) else { return };
        assert_eq!((seen.calls(0), seen.calls(1)), ([200, 0, 0, 0], [400, 0, 0, 0]), "{case}");
        assert_eq!(seen.callers(1), named(&[("handler", 200), ("interrupted", 200)]), "{case}");
        assert_eq!(seen.counted, [600]);
    }
}

#[test]
fn threads_that_are_born_and_gone_have_all_their_calls() {
    let Some(seen) = probed("threads", &["work"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([4000, 0, 0, 0], &[4000][..]));
    assert_eq!(seen.report["trace"]["threads"], 41);
}

#[test]
fn a_child_process_is_not_probed() {
    let Some(seen) = probed("fork", &["work"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([100, 0, 0, 0], &[100][..]));
}

/// Every call is either reported or counted as lost.
#[test]
fn a_full_ring_loses_calls_and_counts_each() {
    let Some(seen) = probed("flood", &["work"], &["-m", "4K"]) else { return };
    let loss = &seen.report["loss"];
    let [complete, cut, open_start, open_end] = seen.calls(0);
    assert_eq!((cut, open_start, open_end), (0, 0, 0));
    let cause = &loss["by_cause"][0];
    assert_eq!((&cause["cause"], &cause["first"]["aux_offset"]), (&"full ring".into(), &Value::Null));
    assert_eq!(complete + cause["count"].as_u64().unwrap(), 80_000);
    assert_eq!(seen.counted, [80_000]);
    assert!(loss["coverage"].as_f64().unwrap() < 1.0, "{loss}");
}

/// Time off the CPU of all calls: asleep, awake, preempted, by the name of what they waited for.
struct OffCpu {
    causes: Value,
    all_ns: u64,
}

impl OffCpu {
    fn of(seen: &Seen) -> Self {
        let causes = seen.report["functions"][0]["off_cpu_causes"].clone();
        let all_ns = seen.off_cpu_ns();
        let parts = ["blocked_ns", "runnable_ns", "preempted_ns"].map(|part| causes[part].as_u64().unwrap());
        assert_eq!(parts.iter().sum::<u64>(), all_ns, "{causes}");
        Self { causes, all_ns }
    }

    /// The split is that of the program's clock and the kernel's sums (called, clock, ran, waited for a CPU),
    /// to a twentieth.
    fn agrees_with(&self, seen: &Seen) {
        let not_told = switches_not_told(seen);
        if not_told > 0 {
            return println!("skipped: the kernel did not tell of {not_told} context switches");
        }
        let [clock_ns, ran_ns, delayed_ns] = [1, 2, 3].map(|place| seen.counted[place]);
        let [blocked_ns, runnable_ns, preempted_ns] =
            ["blocked_ns", "runnable_ns", "preempted_ns"].map(|part| self.causes[part].as_u64().unwrap());
        let asleep_ns = clock_ns.saturating_sub(ran_ns + delayed_ns);
        // Around each call the program reads its clocks, which the probes do not see.
        let allowed_ns = self.all_ns / 20 + seen.stolen_ns + seen.counted[0] * 20_000;
        let agrees = |ours: u64, theirs: u64| ours.abs_diff(theirs) <= allowed_ns;
        let says = format!("{}; {clock_ns} ns: {ran_ns} ran, {delayed_ns} waited for a CPU", self.causes);
        assert!(agrees(blocked_ns, asleep_ns), "{says}");
        assert!(agrees(runnable_ns + preempted_ns, delayed_ns), "{says}");
    }

    /// What a reason has of all time off the CPU.
    fn share(&self, reason: &str) -> f64 {
        let rows = self.causes["reasons"].as_array().unwrap();
        let ns = |row: &Value| {
            let parts = ["blocked_ns", "runnable_ns", "preempted_ns"].map(|part| row[part].as_u64().unwrap());
            parts.iter().sum::<u64>()
        };
        let of_reason = rows.iter().filter(|row| row["name"] == reason).map(ns).sum::<u64>();
        of_reason as f64 / self.all_ns as f64
    }

    /// What a reason has of the time asleep.
    fn blocked_share(&self, reason: &str) -> f64 {
        let rows = self.causes["reasons"].as_array().unwrap();
        let blocked_ns = |row: &Value| row["blocked_ns"].as_u64().unwrap();
        let of_reason = rows.iter().filter(|row| row["name"] == reason).map(blocked_ns).sum::<u64>();
        of_reason as f64 / blocked_ns(&self.causes) as f64
    }
}

/// How many context switches the kernel did not tell of, by the report's problems: "2 times the kernel ...".
fn switches_not_told(seen: &Seen) -> u64 {
    let problems = seen.report["loss"]["problems"].as_array().unwrap();
    let problem = problems.iter().filter_map(Value::as_str).find(|said| said.contains("did not tell of"));
    problem.map_or(0, |said| said.split(' ').next().unwrap().parse().unwrap())
}

/// A figure of 0 would say that the calls never slept.
#[test]
fn without_the_scheduler_time_off_the_cpu_is_not_known() {
    let rows = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uprobes-no-sched.jsonl");
    let more = ["--no-sched", "--max-probes", "0", "--rows", rows.to_str().unwrap()];
    let Some(seen) = probed("sleep", &["waits"], &more) else { return };
    assert_eq!((seen.calls(0), seen.counted[0]), ([20, 0, 0, 0], 20));
    let function = &seen.report["functions"][0];
    let figures = ["off_cpu_ns", "cpu_percent", "off_cpu_causes"].map(|key| function[key].clone());
    assert_eq!(figures, [Value::Null, Value::Null, Value::Null]);
    assert_eq!(seen.report["trace"]["no_off_cpu"], "the scheduler was not followed (--no-sched)");
    let rows = std::fs::read_to_string(rows).unwrap();
    let row: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!((&row["off_cpu_ns"], &row["measured_off_cpu_ns"]), (&Value::Null, &Value::Null));
}

/// Rows of a table of a run, below a directory that has no other run.
fn table(directory: &Path, name: &str) -> Vec<Value> {
    let runs = std::fs::read_dir(directory.join(name)).unwrap();
    let [run] = <[_; 1]>::try_from(runs.map(|run| run.unwrap().path()).collect::<Vec<_>>()).unwrap();
    assert!(run.file_name().unwrap().to_str().unwrap().starts_with("recording=u"), "{}", run.display());
    let file = std::fs::File::open(run.join(format!("{name}.parquet"))).unwrap();
    let value = |field: &Field| match field {
        Field::Null => Value::Null,
        Field::Int(number) => (*number).into(),
        Field::Long(number) => (*number).into(),
        Field::Str(text) => text.clone().into(),
        other => other.to_string().into(),
    };
    let row = |row: Row| -> Value {
        row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
    };
    let rows = SerializedFileReader::new(file).unwrap().into_iter();
    rows.map(|read| row(read.unwrap())).collect()
}

#[test]
fn tables_have_what_each_call_called_and_waited_for() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uprobes-tables");
    let _ = std::fs::remove_dir_all(&directory);
    let place = format!("{}/", directory.display());
    let Some(seen) = probed("sleep", &["waits"], &["--rows", &place]) else { return };
    let [calls, children, waits] = ["calls", "children", "off_cpu"].map(|name| table(&directory, name));
    assert_eq!((calls.len() as u64, table(&directory, "gaps")), (seen.counted[0], vec![]));
    let sum = |rows: &[Value], column: &str| rows.iter().filter_map(|row| row[column].as_u64()).sum::<u64>();
    let with_children: Vec<Value> =
        calls.iter().filter(|row| row["began"] == "with_children").cloned().collect();
    // Of each of these calls children and *self add up to its latency.
    assert_eq!(sum(&children, "sum_ns"), sum(&with_children, "latency_ns"));
    let own = children.iter().filter(|row| row["child"] == "*self").count();
    assert!(own == with_children.len() && own > 0, "{own} calls with children: {calls:?}");
    let asleep = waits.iter().filter(|row| row["reason"] == "clock_nanosleep").count() as u64;
    assert!(asleep + switches_not_told(&seen) >= seen.counted[0], "{waits:?}");
    let slept_ns: u64 = ["blocked_ns", "runnable_ns", "preempted_ns"].iter().map(|it| sum(&waits, it)).sum();
    assert!(slept_ns <= sum(&calls, "off_cpu_ns"), "{slept_ns} ns: {waits:?}");
}

#[test]
fn a_sleeping_call_is_blocked_for_as_long_as_it_sleeps() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uprobes-sleep.html");
    let rows = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uprobes-sleep.jsonl");
    let more = ["--html", page.to_str().unwrap(), "--rows", rows.to_str().unwrap(), "--max-probes", "0"];
    let Some(seen) = probed("sleep", &["waits"], &more) else { return };
    assert_eq!((seen.calls(0), seen.counted[0]), ([20, 0, 0, 0], 20));
    let off_cpu = OffCpu::of(&seen);
    assert!(off_cpu.share("clock_nanosleep") > 0.95, "{}", off_cpu.causes);
    off_cpu.agrees_with(&seen);
    assert_eq!(off_cpu.causes["wakers"][0]["name"], "[interrupt]");
    // Each row has the thread of a call and what the call waited for, and no place in a trace.
    let rows = std::fs::read_to_string(rows).unwrap();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 20);
    for row in &rows {
        assert_eq!((&row["thread"], &row["pid"]), (&"uprobes-truth".into(), &row["tid"]));
        assert_eq!(row["aux_offset"], Value::Null);
    }
    // A call has no reason only where the kernel did not tell of its context switch.
    let without_reason = rows.iter().filter(|row| row["waited_for"] != "clock_nanosleep");
    let untold: Vec<&Value> = without_reason.map(|row| &row["waited_for"]).collect();
    assert!(untold.len() as u64 <= switches_not_told(&seen), "{untold:?}");
    assert!(untold.iter().all(|reason| reason.is_null()), "{untold:?}");
    // The page has the calls, and what each of them waited for.
    let page = std::fs::read_to_string(page).unwrap();
    let meta = page.split_once("id=\"meta\">").unwrap().1.split_once("</script>").unwrap().0;
    let meta: Value = serde_json::from_str(meta).unwrap();
    let function = &meta["functions"][0];
    assert_eq!((&function["calls"], &function["trees"]), (&20.into(), &Value::Null));
    let reasons = function["ways"]["reasons"].as_array().unwrap();
    assert!(reasons.contains(&"clock_nanosleep".into()), "{reasons:?}");
}

#[test]
fn a_call_that_waits_for_another_thread_names_it() {
    let Some(seen) = probed("futex", &["waits"], &["--waker-stacks", "--max-probes", "0"]) else { return };
    assert_eq!((seen.calls(0), seen.counted[0]), ([20, 0, 0, 0], 20));
    let off_cpu = OffCpu::of(&seen);
    assert!(off_cpu.share("futex") > 0.95, "{}", off_cpu.causes);
    let waker = &off_cpu.causes["wakers"][0];
    assert!(waker["name"].as_str().unwrap().starts_with("uprobes-truth ("), "{}", off_cpu.causes);
    // Threads of one process may wait for each other elsewhere, too: for its memory map, say. On a busy
    // machine the turn of a call may have come before it waits.
    assert!((19..25).contains(&waker["count"].as_u64().unwrap()), "{}", off_cpu.causes);
    assert_ne!(waker["tid"], waker["pid"], "it is the other thread that wakes");
    // The C library's own function has no frame, so that its caller is passed over.
    let from = &waker["stacks"][0];
    assert!(from["count"].as_u64() >= Some(19), "{waker}");
    assert_eq!(&from["functions"].as_array().unwrap()[..2], ["syscall", "hands_over"], "{waker}");
    off_cpu.agrees_with(&seen);
}

#[test]
fn a_call_that_writes_to_disk_waits_in_fsync() {
    let Some(seen) = probed("fsync", &["waits"], &["--max-probes", "0"]) else { return };
    assert_eq!((seen.calls(0), seen.counted[0]), ([50, 0, 0, 0], 50));
    let off_cpu = OffCpu::of(&seen);
    // On a file system in memory it does not wait; where there is a journal, the write waits for it, too.
    let (fsync, write) = (off_cpu.blocked_share("fsync"), off_cpu.blocked_share("write"));
    let is_right = fsync > write && fsync + write > 0.95;
    assert!(off_cpu.all_ns < 1_000_000 || is_right, "{}", off_cpu.causes);
    off_cpu.agrees_with(&seen);
}

#[test]
fn calls_that_spin_against_more_threads_than_cpus_are_preempted() {
    let Some(seen) = probed("spin", &["waits"], &["--max-probes", "0"]) else { return };
    assert_eq!(seen.calls(0)[0], seen.counted[0]);
    let off_cpu = OffCpu::of(&seen);
    assert!(off_cpu.share("[preempted]") > 0.95, "{}", off_cpu.causes);
    assert!(off_cpu.all_ns > seen.latency_ns() / 4, "{} of {}", off_cpu.all_ns, seen.latency_ns());
    off_cpu.agrees_with(&seen);
}

/// Calls of a function that does nothing else: probes cost many times what it takes.
#[test]
fn what_it_will_cost_is_said_and_refused_above_the_limit() {
    let case = Case::new("always");
    let pid = case.program.id().to_string();
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        command.args(["--backend", "uprobe", "-f", "work", "-p", &pid, "-d", "0.2"]).args(more);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, says) = run(&[]);
    if not_permitted(&says) {
        return;
    }
    assert_eq!(code, Some(3), "{says}");
    assert!(says.contains("% more CPU time, and --max-overhead allows 20 %"), "{says}");
    let (code, says) = run(&["--max-overhead", "100000000"]);
    assert_eq!(code, Some(0), "{says}");
    assert!(says.contains(" calls a second, each slower by "), "{says}");
    assert!(case.go().is_empty());
}

/// Numbers of the kernel are others than those of a container: one thread was two, and `-T` found none of its
/// calls.
#[test]
fn in_a_pid_namespace_of_its_own_a_thread_is_one() {
    /// Both are inside, where the program is told by its number there.
    const SCRIPT: &str = r#"
        mkfifo "$3/in"
        "$1" plain < "$3/in" > "$3/counted" & pid=$!
        exec 3> "$3/in"
        until grep -q ready "$3/counted"; do sleep 0.02; done
        "$2" --backend uprobe -f work -T $pid -d 60 --verbose --check --max-overhead 1e9 --format json \
            --rows "$3/rows.jsonl" > "$3/report" 2> "$3/said" 3>&- & probing=$!
        until grep -q ' placed' "$3/said" || ! kill -0 $probing; do sleep 0.02; done 2> /dev/null
        echo go >&3
        wait $pid
        wait $probing
        echo $pid"#;
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", SCRIPT, "sh"]).arg(truth());
    let output = command.arg(env!("CARGO_BIN_EXE_func_latency")).arg(directory.path()).output().unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    if output.stdout.is_empty() {
        return println!("skipped: no namespaces here: {}", String::from_utf8_lossy(&output.stderr));
    }
    if not_permitted(&read("said")) {
        return;
    }
    let report: Value = serde_json::from_str(&read("report")).unwrap_or_else(|_| panic!("{}", read("said")));
    let calls = &report["functions"][0]["calls"]["complete"];
    assert_eq!((calls, &report["trace"]["threads"]), (&1500.into(), &1.into()), "{}", read("said"));
    let pid = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let rows = read("rows.jsonl");
    let row: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!([row["tid"].to_string(), row["pid"].to_string()], [pid.clone(), pid.clone()]);
    assert!(pid.parse::<u32>().unwrap() < 100, "{pid}");
}

/// Entries are probed process by process: meanwhile calls begin in the last ones that are not seen to, and
/// only the one that runs when the window begins is open.
#[test]
fn a_thread_has_one_call_that_was_running_when_the_window_began() {
    let cases: Vec<Case> = (0..12).map(|_| Case::new("naps")).collect();
    let pids: Vec<String> = cases.iter().map(|case| case.program.id().to_string()).collect();
    let rows = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uprobes-naps.csv");
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "-f", "work", "-d", "0.1", "--max-overhead", "100000000"]);
    let output = command.args(["-p", &pids.join(","), "--rows"]).arg(&rows).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if not_permitted(&said) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    cases.into_iter().for_each(|case| assert!(case.go().is_empty()));
    let rows = std::fs::read_to_string(rows).unwrap();
    let open: Vec<&str> = rows.lines().filter(|row| row.contains(",open_start,")).collect();
    let thread = |row: &&str| row.split('-').next().unwrap().to_owned();
    let threads: BTreeSet<String> = open.iter().map(thread).collect();
    assert_eq!(open.len(), threads.len(), "{open:#?}");
}

/// The kernel takes the probes away with us.
#[test]
fn a_program_goes_on_when_we_are_killed() {
    let case = Case::new("plain");
    let pid = case.program.id().to_string();
    let Some(probing) = Probing::start(&["-p", &pid, "-f", "work"]) else { return };
    probing.kill();
    assert_eq!(case.go(), [1500]);
}

/// It is started for it, and probed before its first instruction: all of its calls are seen, to its end.
#[test]
fn a_program_that_is_started_has_all_its_calls() {
    let program = truth().to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "--format", "json", "--check", "--max-overhead", "5"]);
    command.args(["-f", "work", "-f", "main", "--", program, "plain"]);
    let mut probing =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    probing.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = probing.wait_with_output().unwrap();
    let (stdout, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    if not_permitted(&said) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    // How often it will be called is not known, and the limit was taken as if it held.
    assert!(
        said.contains("what probes will cost is not known, and --max-overhead 5 does not limit it"),
        "{said}"
    );
    // The program writes to the same stdout, before the report.
    let (of_program, report) = stdout.split_at(stdout.find('{').unwrap());
    assert!(of_program.contains("1500"), "{of_program}");
    let report: Value = serde_json::from_str(report).unwrap();
    let complete = |function: usize| report["functions"][function]["calls"]["complete"].as_u64().unwrap();
    assert_eq!([complete(0), complete(1)], [1500, 1], "{report}");
    // By name, and so by where the program was mapped.
    let callers = report["functions"][0]["callers"].as_array().unwrap();
    assert!(callers.iter().all(|caller| caller["name"] != "[unknown]"), "{callers:?}");
}

/// Known by the table that the Go runtime unwinds with; this one is of a program that is none.
#[test]
fn go_is_refused_with_the_reason() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, table) = (directory.join("uprobes-go"), directory.join("uprobes-gopclntab"));
    std::fs::write(&table, b"table").unwrap();
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--add-section").arg(format!(".gopclntab={}", table.display())).arg(truth()).arg(&program);
    assert!(objcopy.status().unwrap().success(), "{objcopy:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "-f", "work", "--"]).arg(&program).arg("plain");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("work cannot be probed: it is Go, whose goroutines change stacks"), "{said}");
    assert!(output.stdout.is_empty(), "nothing of it has run");
}

/// All was measured, and then nothing printed.
#[test]
fn what_cannot_be_written_is_said_before_anything_is_measured() {
    for output in [["--rows", "/no/such/dir/x.csv"], ["--html", "/no/such/dir/x.html"], ["--html", "/tmp"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        command.args(["--backend", "uprobe", "-f", "work"]).args(output).arg("--").arg(truth()).arg("plain");
        let output_of = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output_of.stderr).unwrap();
        assert_eq!(output_of.status.code(), Some(3), "{said}");
        let [_, path] = output;
        assert!(said.starts_with(&format!("func_latency: error: cannot write {path}: ")), "{said}");
        assert!(output_of.stdout.is_empty(), "nothing of it has run");
    }
}

/// It ends with the window, as it was started for it.
#[test]
fn a_program_that_is_started_ends_with_the_window() {
    let mark = format!("ends-with-the-window-{}", std::process::id());
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command
        .args(["--backend", "uprobe", "-f", "work", "-d", "0.2", "--"])
        .arg(truth())
        .args(["plain", &mark]);
    // It waits for a word that never comes.
    let mut probing =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let never = probing.stdin.take().unwrap();
    let said = String::from_utf8(probing.wait_with_output().unwrap().stderr).unwrap();
    let goes_on = is_running(&mark);
    drop(never);
    assert!(not_permitted(&said) || said.contains("no call of work"), "{said}");
    assert!(!goes_on, "{said}");
}

/// Some process has `mark` in its command line.
fn is_running(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap();
    let command_line = |process: std::fs::DirEntry| std::fs::read(process.path().join("cmdline")).ok();
    let mut command_lines = processes.filter_map(|process| command_line(process.ok()?));
    command_lines.any(|words| String::from_utf8_lossy(&words).contains(mark))
}

/// All threads of its process are probed, and only those that were named are reported.
#[test]
fn threads_that_were_not_named_are_left_out() {
    let case = Case::new("threads");
    let main = case.program.id().to_string();
    let Some(probing) = Probing::start(&["-T", &main, "-f", "work", "--format", "json"]) else { return };
    assert_eq!(case.go(), [4000]);
    let ended = probing.end();
    assert_eq!(ended.code, Some(1), "{}", ended.said);
    assert!(ended.said.contains("no call of work"), "{}", ended.said);
}

#[test]
fn what_it_cannot_do_is_refused() {
    let own = std::process::id().to_string();
    let of_own = |more: &[&'static str]| {
        [&["-p".to_owned(), own.clone()][..], &more.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()]
            .concat()
    };
    for (words, says) in [
        (of_own(&["-C", "0"]), "do not take -C"),
        (of_own(&["-a", "main"]), "-a needs Intel PT"),
        (of_own(&["--follow"]), "do not take --follow"),
        (of_own(&["-F", "cpu"]), "-F needs Intel PT"),
        (of_own(&["--counters"]), "--counters and --by need Intel PT"),
        (of_own(&["--by", "ipc"]), "--counters and --by need Intel PT"),
        (of_own(&["--bundle", "nowhere"]), "--bundle"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        let output = command.args(["--backend", "uprobe", "-f", "main"]).args(&words).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(stderr.contains(says), "{words:?}: {stderr}");
    }
}
