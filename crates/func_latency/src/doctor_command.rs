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

    /// What can be done here; then each finding: `ok` or `not ok`, what was looked at, what was found; below,
    /// what that costs and what fixes it.  What stands in the way of traces comes last where probes do
    /// without.
    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let opening = match (self.can_trace(), self.can_probe()) {
            (true, true) => "calls can be traced here (Intel PT), and timed by probes (--backend uprobe)",
            (true, false) => "calls can be traced here (Intel PT)",
            (false, true) => {
                "calls can be timed here, by probes: func_latency -f FUNC -p PID; not recorded (`record`, `show`, call trees), \
                 for which Intel PT is missing: see the end"
            }
            (false, false) => "calls can be neither traced (Intel PT) nor timed by probes here",
        };
        writeln!(out, "{opening}\n")?;
        let is_last = |finding: &&Finding| self.can_probe() && is_fatal(finding);
        let first = self.of_traces.iter().filter(|finding| !is_last(finding));
        first.chain(&self.of_probes).try_for_each(|finding| write_finding(out, finding))?;
        let last: Vec<&Finding> = self.of_traces.iter().filter(is_last).collect();
        if !last.is_empty() {
            writeln!(out, "\nfor Intel PT:")?;
        }
        last.into_iter().try_for_each(|finding| write_finding(out, finding))?;
        out.flush()
    }
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

    #[test]
    fn trouble_comes_with_cost_and_fix() {
        let text = text(vec![finding("a", None), finding("b", Some(false))], vec![]);
        let (opening, findings) = text.split_once("\n\n").unwrap();
        assert_eq!(opening, "calls can be traced here (Intel PT)");
        assert_eq!(findings, "ok      a: 1\nnot ok  b: 1\n        costs: less\n        fix: more\n");
    }

    /// It opened with four `not ok`, each of which said that nothing can be recorded.
    #[test]
    fn where_probes_work_the_doctor_opens_with_what_can_be_done() {
        let trouble = "        costs: less\n        fix: more\n";
        let of_traces = vec![finding("unit", Some(true)), finding("kernel", None)];
        let said = text(of_traces.clone(), vec![finding("programs", None)]);
        assert!(
            said.starts_with("calls can be timed here, by probes: func_latency -f FUNC -p PID; "),
            "{said}"
        );
        let (_, findings) = said.split_once("\n\n").unwrap();
        let expect =
            format!("ok      kernel: 1\nok      programs: 1\n\nfor Intel PT:\nnot ok  unit: 1\n{trouble}");
        assert_eq!(findings, expect);
        let neither = text(of_traces, vec![finding("programs", Some(false))]);
        assert!(neither.starts_with("calls can be neither traced (Intel PT) nor timed"), "{neither}");
        assert!(neither.contains(&format!("\n\nnot ok  unit: 1\n{trouble}ok      kernel: 1\n")), "{neither}");
    }
}
