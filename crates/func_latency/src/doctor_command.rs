//! `doctor`: what this machine lets us time and record, one line each.

use std::io::{BufWriter, Write, stdout};

use anyhow::{Context, Result};
use recorder::Proc;
use recorder::doctor::{Finding, Trouble, examine};

use crate::exit::Exit;

/// Examines this machine.
///
/// # Errors
/// stdout cannot be written.
pub(crate) fn run() -> Result<Exit> {
    let found = Examined { of_traces: examine(&Proc::host(), "/sys".as_ref()), of_probes: of_probes() };
    found.write(&mut BufWriter::new(stdout().lock())).context("cannot write to stdout")?;
    Ok(if found.can_trace() || found.can_probe() { Exit::Done } else { Exit::NotPossible })
}

#[cfg(feature = "bpf")]
fn of_probes() -> Vec<Finding> {
    crate::uprobe::doctor::examine("/sys".as_ref())
}

/// This command was built without them.
#[cfg(not(feature = "bpf"))]
fn of_probes() -> Vec<Finding> {
    Vec::new()
}

/// What was found.
struct Examined {
    of_traces: Vec<Finding>,
    of_probes: Vec<Finding>,
}

impl Examined {
    fn can_trace(&self) -> bool {
        !self.of_traces.iter().any(is_fatal)
    }

    fn can_probe(&self) -> bool {
        !self.of_probes.is_empty() && self.of_probes.iter().all(|finding| finding.trouble.is_none())
    }

    /// The verdict; then what is missing, with what that costs and how to get it; then what is there.
    /// Capabilities come last, and what stands in the way of traces after all else that is missing.
    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.verdict())?;
        let mut all: Vec<&Finding> = self.of_probes.iter().chain(&self.of_traces).collect();
        all.sort_by_key(|finding| (is_capability(finding), is_fatal(finding))); // stable
        let (missing, there): (Vec<&Finding>, Vec<&Finding>) =
            all.into_iter().partition(|finding| finding.trouble.is_some());
        let (for_traces, others): (Vec<&Finding>, Vec<&Finding>) =
            missing.into_iter().partition(|finding| is_fatal(finding));
        section(out, "", &others)?;
        section(out, "for Intel PT:\n", &for_traces)?;
        section(out, "", &there)?;
        out.flush()
    }

    /// `works here by uprobes; Intel PT: no, this CPU is AMD EPYC`
    fn verdict(&self) -> String {
        let no_trace =
            || format!("Intel PT: no, {}", why(&mut self.of_traces.iter().filter(|f| is_fatal(f))));
        let missing = |finding: &&Finding| finding.trouble.is_some();
        let no_probes = || match self.of_probes.is_empty() {
            true => "uprobes: no, this command was built without them".to_owned(),
            false => format!("uprobes: no, {}", why(&mut self.of_probes.iter().filter(missing))),
        };
        match (self.can_trace(), self.can_probe()) {
            (true, true) => "works here by Intel PT, and by uprobes (--backend uprobe)".to_owned(),
            (true, false) => format!("works here by Intel PT; {}", no_probes()),
            (false, true) => format!(
                "works here by uprobes: func_latency -f FUNC -p PID; {}\n\
                 (without it nothing is recorded: no call trees, `show`, `explain` of branches, or `top` of what runs)",
                no_trace()
            ),
            (false, false) => format!("does not work here; {}; {}", no_trace(), no_probes()),
        }
    }
}

/// The first of what is missing, in words.
fn why(missing: &mut dyn Iterator<Item = &Finding>) -> String {
    match missing.next() {
        Some(Finding { what: "processor", found, .. }) => format!("this CPU is {found}"),
        Some(Finding { what, found, .. }) => format!("{what}: {found}"),
        None => "see below".to_owned(),
    }
}

fn is_capability(finding: &Finding) -> bool {
    finding.what.starts_with("CAP_")
}

fn section(out: &mut dyn Write, title: &str, findings: &[&Finding]) -> std::io::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    write!(out, "\n{title}")?;
    findings.iter().try_for_each(|finding| write_finding(out, finding))
}

/// No trace can be recorded because of it.
fn is_fatal(finding: &Finding) -> bool {
    finding.trouble.as_ref().is_some_and(|trouble| trouble.fatal)
}

fn write_finding(out: &mut dyn Write, Finding { what, found, trouble }: &Finding) -> std::io::Result<()> {
    let verdict = if trouble.is_none() { "ok" } else { "not ok" };
    writeln!(out, "{verdict:<7} {what}: {found}")?;
    if let Some(Trouble { costs, fix, .. }) = trouble {
        writeln!(out, "{:8}costs: {costs}\n{:8}fix: {fix}", "", "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn finding(what: &'static str, fatal: Option<bool>) -> Finding {
        let trouble = fatal.map(|fatal| Trouble { fatal, costs: "less", fix: "more".to_owned() });
        Finding { what, found: "1".to_owned(), trouble }
    }

    fn text(of_traces: Vec<Finding>, of_probes: Vec<Finding>) -> String {
        let mut out = Vec::new();
        Examined { of_traces, of_probes }.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const TROUBLE: &str = "        costs: less\n        fix: more\n";

    #[test]
    fn trouble_comes_with_cost_and_fix_and_capabilities_last() {
        let of_traces = vec![
            finding("CAP_BPF", Some(false)),
            finding("CAP_PERFMON", None),
            finding("a", None),
            finding("b", Some(false)),
        ];
        let of_probes = vec![finding("programs", Some(false))];
        let expect = format!(
            "works here by Intel PT; uprobes: no, programs: 1\n\n\
             not ok  programs: 1\n{TROUBLE}not ok  b: 1\n{TROUBLE}not ok  CAP_BPF: 1\n{TROUBLE}\n\
             ok      a: 1\nok      CAP_PERFMON: 1\n"
        );
        assert_eq!(text(of_traces, of_probes), expect);
    }

    /// It opened with four `not ok`, each of which said that nothing can be recorded.
    #[test]
    fn the_verdict_comes_first() {
        let verdict = |of_traces: &[Finding], of_probes: &[Finding]| {
            text(of_traces.to_vec(), of_probes.to_vec()).lines().next().unwrap_or_default().to_owned()
        };
        let (unit, no_unit) = (finding("processor", None), finding("processor", Some(true)));
        let (probes, no_probes) = (finding("programs", None), finding("programs", Some(false)));
        let both = "works here by Intel PT, and by uprobes (--backend uprobe)";
        assert_eq!(verdict(slice::from_ref(&unit), slice::from_ref(&probes)), both);
        let not_built = "works here by Intel PT; uprobes: no, this command was built without them";
        assert_eq!(verdict(&[unit], &[]), not_built);
        let uprobes = "works here by uprobes: func_latency -f FUNC -p PID; Intel PT: no, this CPU is 1";
        assert_eq!(verdict(slice::from_ref(&no_unit), &[probes]), uprobes);
        let neither = "does not work here; Intel PT: no, this CPU is 1; uprobes: no, programs: 1";
        assert_eq!(verdict(&[no_unit], &[no_probes]), neither);
    }

    #[test]
    fn what_traces_lack_is_apart_where_probes_do_without() {
        let of_traces = vec![finding("processor", Some(true)), finding("kernel", None)];
        let said = text(of_traces, vec![finding("programs", None)]);
        let (_, findings) = said.split_once("\n\n").unwrap();
        let expect = format!(
            "for Intel PT:\nnot ok  processor: 1\n{TROUBLE}\nok      programs: 1\nok      kernel: 1\n"
        );
        assert_eq!(findings, expect);
    }
}
