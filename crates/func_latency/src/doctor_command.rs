//! `doctor`: what this machine lets us record, one line each.

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
    #[cfg_attr(not(feature = "bpf"), expect(unused_mut, reason = "nothing is added"))]
    let mut findings = examine(&Proc::host(), "/sys".as_ref());
    #[cfg(feature = "bpf")]
    findings.extend(crate::uprobe::doctor::examine("/sys".as_ref()));
    write(&mut BufWriter::new(stdout().lock()), &findings).context("cannot write to stdout")?;
    let fatal = findings.iter().any(|finding| finding.trouble.as_ref().is_some_and(|trouble| trouble.fatal));
    Ok(if fatal { Exit::NotPossible } else { Exit::Done })
}

/// `ok` or `not ok`, what was looked at, what was found; below, what that costs and what fixes it.
fn write(out: &mut dyn Write, findings: &[Finding]) -> std::io::Result<()> {
    for Finding { what, found, trouble } in findings {
        let verdict = if trouble.is_none() { "ok" } else { "not ok" };
        writeln!(out, "{verdict:<7} {what}: {found}")?;
        if let Some(Trouble { costs, fix, .. }) = trouble {
            writeln!(out, "{:8}costs: {costs}\n{:8}fix: {fix}", "", "")?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_comes_with_cost_and_fix() {
        let trouble = Trouble { fatal: false, costs: "less", fix: "more".to_owned() };
        let findings = [
            Finding { what: "a", found: "1".to_owned(), trouble: None },
            Finding { what: "b", found: "2".to_owned(), trouble: Some(trouble) },
        ];
        let mut out = Vec::new();
        write(&mut out, &findings).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "ok      a: 1\nnot ok  b: 2\n        costs: less\n        fix: more\n");
    }
}
