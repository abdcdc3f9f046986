//! What a call costs the program that is probed, beside other tools that see ends by rewritten return
//! addresses: bpftrace, and bcc's `funclatency` (of Debian's `libbpf-tools`).

#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod probing;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use probing::{not_permitted, signal};

/// How long the program is watched at a time.
const WATCHED: Duration = Duration::from_millis(300);

/// How often each tool watches.
const TURNS: usize = 5;

/// The running program.
struct Paying {
    program: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Paying {
    fn new(path: &Path) -> Self {
        let mut program = Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let questions = program.stdin.take();
        let answers = BufReader::new(program.stdout.take().unwrap());
        Self { program, questions, answers }
    }

    /// Calls so far, and ns on the CPU.
    fn ask(&mut self) -> [f64; 2] {
        self.questions.as_mut().unwrap().write_all(b"?").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap());
        [numbers.next().unwrap(), numbers.next().unwrap()]
    }

    /// CPU time of a call, in ns.
    fn per_call(&mut self) -> f64 {
        let before = self.ask();
        sleep(WATCHED);
        let after = self.ask();
        (after[1] - before[1]) / (after[0] - before[0])
    }
}

impl Drop for Paying {
    fn drop(&mut self) {
        drop(self.questions.take());
        self.program.wait().unwrap();
    }
}

/// A tool that watches `measured`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Rewritten,
    Probed,
    Bpftrace,
    Funclatency,
}

impl Tool {
    /// The command, and what it says when it begins to place its probes.
    fn command(self, program: &Path, pid: u32) -> (Command, &'static str) {
        let pid = pid.to_string();
        let ours = |ends: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
            command.args(["--backend", "uprobe", "-f", "measured", "-p", &pid, "-d", "60", "--verbose"]);
            command.args(["--max-probes", "0", "--no-sched", "--max-overhead", "1e9", ends]);
            (command, " placed")
        };
        match self {
            Self::Rewritten => ours("--uretprobe"),
            Self::Probed => ours("--no-uretprobe"),
            Self::Bpftrace => {
                let at = format!("{}:measured", program.display());
                let script = format!(
                    "uprobe:{at} {{ @start[tid] = nsecs; }} \
                     uretprobe:{at} /@start[tid]/ {{ @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
                );
                let mut command = Command::new("bpftrace");
                command.args(["-p", &pid, "-e", &script]);
                (command, "Attaching")
            }
            Self::Funclatency => {
                // Into a file it would say nothing before it ends.
                let mut command = Command::new("stdbuf");
                command.args(["-oL", "/usr/sbin/funclatency", "-p", &pid, ":measured"]);
                (command, "Tracing")
            }
        }
    }

    /// CPU time of a call while it watches, or why it cannot.
    fn per_call(self, paying: &mut Paying, program: &Path) -> Result<f64, String> {
        let said = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("paid-{self:?}"));
        let file = std::fs::File::create(&said).unwrap();
        let (mut command, ready) = self.command(program, paying.program.id());
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut tool = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let begun = Instant::now();
        let text = || std::fs::read_to_string(&said).unwrap();
        while !text().contains(ready) {
            if tool.try_wait().unwrap().is_some() || begun.elapsed() > Duration::from_secs(20) {
                end(&mut tool);
                return Err(format!("{command:?}: {}", text()));
            }
            sleep(Duration::from_millis(20));
        }
        // What begins to place probes has not placed them.
        sleep(Duration::from_millis(700));
        let per_call = paying.per_call();
        end(&mut tool);
        Ok(per_call)
    }
}

/// Some tools do not hear the first signal.
fn end(tool: &mut Child) {
    for _ in 0..50 {
        if tool.try_wait().unwrap().is_some() {
            return;
        }
        signal(tool.id(), "INT");
        sleep(Duration::from_millis(100));
    }
    tool.kill().unwrap();
    tool.wait().unwrap();
}

fn program(name: &str, more: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/uprobes/paid.c");
    let mut command = Command::new("gcc");
    command
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", source])
        .args(more)
        .arg("-o")
        .arg(&program);
    assert!(command.status().unwrap().success(), "gcc {source}");
    program
}

/// What our way of seeing ends and another one add to a call, in ns. They follow one another, as a machine is
/// faster and slower for seconds: the turn with the median of their ratios. An error is of the tool at fault.
fn added(program: &Path, other: Tool) -> Result<[f64; 2], (Tool, String)> {
    let mut paying = Paying::new(program);
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let bare = paying.per_call();
        let mut of = |tool: Tool| match tool.per_call(&mut paying, program) {
            Ok(per_call) => Ok(per_call - bare),
            Err(said) => Err((tool, said)),
        };
        turns.push([of(Tool::Rewritten)?, of(other)?]);
    }
    turns.sort_by(|one, next| (one[0] / one[1]).total_cmp(&(next[0] / next[1])));
    Ok(turns[TURNS / 2])
}

/// A change must pass the first program beside bpftrace; `cargo xtask ci --full` takes the other program and
/// tool, too, and the factor of a probed `ret`.
#[test]
fn a_call_costs_no_more_than_a_fifth_above_what_other_tools_make_it_cost() {
    let is_full = std::env::var_os("FUNC_LATENCY_FULL").is_some();
    let programs = [("paid-push", &[][..]), ("paid-mov", &["-DSTEPPED"])];
    let tools = [Tool::Bpftrace, Tool::Funclatency, Tool::Probed];
    for (name, more) in programs.into_iter().take(if is_full { 2 } else { 1 }) {
        let program = program(name, more);
        for tool in tools.into_iter().take(if is_full { 3 } else { 1 }) {
            match added(&program, tool) {
                Ok([ours, other]) => {
                    let ratio = ours / other;
                    println!(
                        "{name}: a rewritten return address costs {ours:.0} ns, {tool:?} {other:.0} ns: {ratio:.2} of it"
                    );
                    assert!(
                        tool == Tool::Probed || ratio <= 1.2,
                        "{name}: {ours:.0} ns, {tool:?} {other:.0} ns"
                    );
                }
                Err((Tool::Rewritten, said)) if not_permitted(&said) => return,
                Err((Tool::Rewritten | Tool::Probed, said)) => panic!("{said}"),
                Err((tool, why)) => println!("skipped: {tool:?}: {why}"),
            }
        }
    }
}
