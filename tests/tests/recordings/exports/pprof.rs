//! By `go tool pprof`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use analyzer::ChildKind;

use super::cases;

/// Go compiles the tool at its first run: once, however many tests wait for it.
static HAS_PPROF: LazyLock<bool> = LazyLock::new(|| {
    let help = Command::new("go").args(["tool", "-n", "pprof"]).stdout(Stdio::null()).status();
    help.is_ok_and(|status| status.success())
});

pub(super) fn has_go() -> bool {
    if !*HAS_PPROF {
        println!("skipped: go is not installed");
    }
    *HAS_PPROF
}

#[test]
fn pprof_reads_its_profile() {
    if !has_go() {
        return;
    }
    for case in cases() {
        let profile = case.export("pprof", &[]);
        for (index, expect) in [
            ("latency", case.report.outermost.total.sum_ns),
            ("cpu", case.report.outermost.total.on_cpu_ns().unwrap()),
        ] {
            let output = Command::new("go")
                .args([
                    "tool",
                    "pprof",
                    "-top",
                    "-unit=ns",
                    "-nodecount=5000",
                    "-nodefraction=0",
                    &format!("-sample_index={index}"),
                ])
                .arg(&profile)
                .output()
                .unwrap();
            let top = String::from_utf8(output.stdout).unwrap();
            let total =
                top.split("Total samples = ").nth(1).and_then(|rest| rest.split("ns").next()).unwrap_or("0");
            assert_eq!(total, expect.to_string(), "{}: {index}\n{top}", case.name);
            let of_root = top.lines().find(|line| line.ends_with(&format!(" {}", case.symbol))).unwrap();
            assert!(of_root.contains(&format!(" {expect}ns ")), "{}: {of_root}", case.name);
        }
    }
}

/// `-list`: what a function took itself is at its first line, and what a callee took at the line that calls
/// it. Interrupts and signals, which come where the recording has them, are called by no line.
#[test]
fn pprof_lists_source_lines() {
    if !has_go() {
        return;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/programs");
    for case in cases().into_iter().filter(|case| case.symbol == "round_cc") {
        let output = Command::new("go")
            .args(["tool", "pprof", "-list=^round_cc$", "-unit=ns", "-sample_index=latency", "-source_path"])
            .args([&programs, &case.export("pprof", &[])])
            .output()
            .unwrap();
        let list = String::from_utf8(output.stdout).unwrap();
        // `flat cum number:text`, with a dot for nothing.
        let ns = |word: &str| word.strip_suffix("ns").and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        let line = |line: &str| {
            let (times, text) = line.split_once(':')?;
            let [flat, cum, number] = times.split_whitespace().collect::<Vec<_>>()[..] else { return None };
            number.parse::<u64>().ok().map(|_| (ns(flat), ns(cum), text.trim().to_owned()))
        };
        let lines: Vec<(u64, u64, String)> = list.lines().filter_map(line).collect();
        let children = case.report.figures.children.iter();
        let uncalled = children.filter(|row| row.kind != ChildKind::Own && row.site.is_none());
        let of_lines_ns =
            case.report.outermost.total.sum_ns - uncalled.map(|row| row.total.sum_ns).sum::<u64>();
        assert_eq!(lines.iter().map(|line| line.1).sum::<u64>(), of_lines_ns, "{list}");
        let of = |text: &str| lines.iter().filter(|line| line.2.contains(text)).collect::<Vec<_>>();
        let [(0, calls_ns, _)] = of("= simple_fn(i) + fact_rec(")[..] else { panic!("{list}") };
        assert!(*calls_ns > 0, "{list}");
        let own: Vec<_> = lines.iter().filter(|line| line.0 > 0).collect();
        let [(own_ns, all_ns, first)] = own[..] else { panic!("{list}") };
        assert!(own_ns == all_ns && (first.starts_with('{') || first.contains(" round_cc(")), "{list}");
    }
}
