//! Where libipt's expectations and our output differ, by form.

use std::collections::BTreeMap;

/// A form of difference, and the files that have it.
pub(crate) struct Form {
    pub(crate) name: &'static str,
    /// Why the difference is no error of ours.
    pub(crate) reason: &'static str,
    pub(crate) files: &'static [&'static str],
}

/// What a file is to give, and gives.
pub(crate) struct Outcome {
    pub(crate) file: String,
    pub(crate) libipt: Vec<String>,
    pub(crate) ours: Vec<String>,
}

/// Of the packets, with libipt 2.1.2.
pub(crate) const PACKETS: &[Form] = &[
    Form {
        name: "TRIG",
        reason: "trigger tracing is younger than this libipt, to which d9 begins no packet",
        files: &["ptdump-bad_opc-resync"],
    },
    Form {
        name: "reserved bits of TMA",
        reason: "libipt takes a TMA for damage where they are set (SKZ84: in a virtual machine whose TSC is offset); we \
                 ignore them, as perf does",
        files: &["skz84", "tma-reserved_ctc", "tma-reserved_fc"],
    },
    Form {
        name: "erratum SKD007",
        reason: "ptdump lists packets as they should be, we as they are; our flow decoder knows the erratum",
        files: &["skd007"],
    },
    Form {
        name: "a PSB swallowed by damage",
        reason: "libipt looks for it inside of the packet before the damage, we after it: the loss is longer, and is told",
        files: &["ptdump-trunc-resync"],
    },
];

/// Of the flow, with libipt 2.1.2.
pub(crate) const FLOW: &[Form] = &[
    Form {
        name: "code of 16 and 32 bits",
        reason: "we decode 64-bit code alone: the rest is a gap, of which an overflow in it is part",
        files: &[
            "call_direct-ret_compressed-pic",
            "mode_exec-tip",
            "ovf-mnt-tip_pge",
            "ovf-timing-tip_pge",
            "ovf-tip_pge",
        ],
    },
    Form {
        name: "packets that are no flow",
        reason: "an EVD without its event and a PIP without its MOV CR3 are errors to libipt; we use neither",
        files: &[
            "pip-pip_mov_cr3-fail",
            "ptet-evd_cr2-cfe_iret",
            "ptet-evd_cr2-evd_vmxq",
            "ptet-evd_vmxq-cfe_intr",
            "ptet-evd_vmxr-cfe_rsm",
            "ptet-evd_vmxr-evd-cr2",
        ],
    },
    Form {
        name: "erratum BDM64",
        reason: "libipt lists no instruction after the branch before the abort; our transfers, which are the same, name \
                 the abort's address, to which this test lists them",
        files: &["bdm64-tnt-cond-xabort", "bdm64-tnt-ind_call-xabort"],
    },
    Form {
        name: "an address without code",
        reason: "PSB+ says that execution is there: a gap to us, an error to libipt only when it goes on from there",
        files: &["psb-fup-psbend", "psb-mnt-fup-psbend"],
    },
    Form {
        name: "a TIP.PGD without address at a near branch",
        reason: "a near branch does not leave the context, which alone leaves the address out: an asynchronous end to us; \
                 libipt takes the branch for its cause",
        files: &["ptxed-end_on_call-tip_pgd"],
    },
    Form {
        name: "CR3 filter",
        reason: "with one a MOV CR3 ends tracing; perf sets none, and we decode none",
        files: &["tip_pgd_noip-mov_cr3"],
    },
    Form {
        name: "a branch that is not taken at the end",
        reason: "libipt lists it; it is no transfer",
        files: &["tnt_n-eos"],
    },
];

/// Prints how many files are equal, and how many differ in which form.
///
/// # Panics
/// If a file differs and is not listed, or is listed and does not differ.
#[track_caller]
pub(crate) fn judge(what: &str, forms: &[Form], outcomes: Vec<Outcome>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = vec![];
    let files = outcomes.len();
    let mut equal = 0;
    for outcome in outcomes {
        let form = forms.iter().find(|form| form.files.contains(&&*outcome.file));
        match (form, outcome.libipt == outcome.ours) {
            (None, true) => equal += 1,
            (Some(form), false) => *counts.entry(form.name).or_default() += 1,
            (Some(form), true) => wrong.push(format!("{}: no longer differs: {}", outcome.file, form.name)),
            (None, false) => wrong.push(outcome.difference()),
        }
    }
    assert!(wrong.is_empty(), "{what}: {} files are not as listed\n{}", wrong.len(), wrong.join("\n"));
    let differ: usize = counts.values().sum();
    println!("{what} of {files} files: {equal} equal to libipt's, {differ} differ");
    for form in forms.iter().filter(|form| counts.contains_key(form.name)) {
        println!("  {} {}: {}", counts[form.name], form.name, form.reason);
    }
}

/// Lines of each side that a difference shows.
const SHOWN: usize = 20;

impl Outcome {
    /// Both, as far as they agree, then what libipt expects and what we have.
    fn difference(&self) -> String {
        let Self { file, libipt, ours } = self;
        let same = libipt.iter().zip(ours).take_while(|(a, b)| a == b).count();
        let mut lines = vec![format!("{file}:")];
        lines.extend(libipt[..same].iter().map(|line| format!("    {line}")));
        lines.extend(libipt[same..].iter().take(SHOWN).map(|line| format!("  - {line}")));
        lines.extend(ours[same..].iter().take(SHOWN).map(|line| format!("  + {line}")));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMS: &[Form] = &[Form { name: "form", reason: "reason", files: &["listed"] }];

    fn outcome(file: &str, ours: &str) -> Outcome {
        Outcome { file: file.to_owned(), libipt: vec!["a".to_owned()], ours: vec![ours.to_owned()] }
    }

    #[test]
    fn a_difference_must_be_listed() {
        judge("test", FORMS, vec![outcome("equal", "a"), outcome("listed", "b")]);
    }

    #[test]
    #[should_panic = "new:\n  - a\n  + b"]
    fn one_that_is_not_listed_is_shown() {
        judge("test", FORMS, vec![outcome("new", "b")]);
    }

    #[test]
    #[should_panic = "listed: no longer differs: form"]
    fn one_that_is_gone_must_not_be_listed() {
        judge("test", FORMS, vec![outcome("listed", "a")]);
    }
}
