//! How the trace unit is programmed: the `config` of the event.

use crate::pmu::Pmu;

/// The config, and how it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtSettings {
    /// `attr.config`.
    pub config: u64,
    /// The event as perf would take it: `intel_pt/branch,cyc,mtc,mtc_period=3,pt,tsc/u`.
    pub event: String,
}

/// Why a setting cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtConfigError {
    /// The PMU has no such term.
    #[error("--pt_config {term}: the trace unit here has no such setting; it has {known}")]
    Unknown {
        /// The term.
        term: String,
        /// All terms.
        known: String,
    },
    /// Not a number, or too large for its bits.
    #[error("--pt_config {term}={value}: not a number from 0 to {max}")]
    Value {
        /// The term.
        term: String,
        /// The value.
        value: String,
        /// The largest.
        max: u64,
    },
    /// One is of no use without the other.
    #[error("--pt_config {term}=1: only with {other}=1")]
    Without {
        /// The term.
        term: &'static str,
        /// The other.
        other: &'static str,
    },
    /// The processor cannot do that.
    #[error("--pt_config {term}={value}: this processor can do {can}")]
    NotHere {
        /// The term.
        term: String,
        /// The value.
        value: u64,
        /// What it can do.
        can: String,
    },
}

/// perf's own choice, and what most recordings have: MTC every 2^3 ticks of the crystal clock (a third of a
/// microsecond at 24 MHz), PSB every 2^(11+3) bytes.
const WANTED_PERIOD: u64 = 3;

// What the driver refuses with a bare EINVAL (pt_event_valid in arch/x86/events/intel/pt.c): it offers all
// terms, whatever the processor can do.

/// Settings that have values: the term, and the mask of possible values.
const PERIODS: [(&str, &str); 3] =
    [("mtc_period", "mtc_periods"), ("psb_period", "psb_periods"), ("cyc_thresh", "cycle_thresholds")];

/// The term, and what the processor must be able to do for it.
const NEEDS: [(&str, &str); 10] = [
    ("cyc", "psb_cyc"),
    ("cyc_thresh", "psb_cyc"),
    ("psb_period", "psb_cyc"),
    ("mtc", "mtc"),
    ("mtc_period", "mtc"),
    ("ptw", "ptwrite"),
    ("fup_on_ptw", "ptwrite"),
    ("pwr_evt", "power_event_trace"),
    ("event", "event_trace"),
    ("notnt", "tnt_disable"),
];

/// The term, and the one without which it is refused.  `pt` says that `branch` means what it says.
const PAIRS: [(&str, &str); 2] = [("branch", "pt"), ("fup_on_ptw", "ptw")];

impl PtSettings {
    /// What is best for latencies here, changed by what `terms` says (`cyc=1,mtc_period=0`; no value is 1).
    ///
    /// # Errors
    /// A term that this PMU does not have, or a value that it cannot have.
    pub fn new(pmu: &Pmu, terms: Option<&str>) -> Result<Self, PtConfigError> {
        let mut values = defaults(pmu);
        for term in terms.unwrap_or_default().split(',').map(str::trim).filter(|term| !term.is_empty()) {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            set(pmu, &mut values, name, value)?;
        }
        check(pmu, &values)?;
        let mut config = 0;
        let mut written = Vec::new();
        for (name, value) in values {
            let Some(bits) = pmu.format.get(&name) else { continue };
            config |= bits.place(value);
            match value {
                0 => (),
                1 => written.push(name),
                value => written.push(format!("{name}={value}")),
            }
        }
        Ok(Self { config, event: format!("{}/{}/u", Pmu::NAME, written.join(",")) })
    }
}

/// Terms and their values, in the order of their names.
type Values = std::collections::BTreeMap<String, u64>;

/// Branches; TSC, MTC and CYC packets, as far as there are such: CYC bounds each time to some cycles, MTC and
/// TSC keep that from drifting.
fn defaults(pmu: &Pmu) -> Values {
    let mut values: Values = ["pt", "branch", "tsc"].map(|name| (name.to_owned(), 1)).into();
    if pmu.cap("mtc") != 0 && pmu.cap("mtc_periods") != 0 {
        values.insert("mtc".to_owned(), 1);
        values.extend(nearest(pmu.cap("mtc_periods")).map(|period| ("mtc_period".to_owned(), period)));
    }
    if pmu.cap("psb_cyc") != 0 {
        values.insert("cyc".to_owned(), 1);
        values.extend(nearest(pmu.cap("psb_periods")).map(|period| ("psb_period".to_owned(), period)));
    }
    values.retain(|name, _| pmu.format.contains_key(name));
    values
}

/// The bit of a mask of possible values that is nearest to [`WANTED_PERIOD`].
fn nearest(mask: u64) -> Option<u64> {
    (0..64u64).filter(|value| mask >> value & 1 == 1).min_by_key(|value| value.abs_diff(WANTED_PERIOD))
}

fn set(pmu: &Pmu, values: &mut Values, name: &str, text: &str) -> Result<(), PtConfigError> {
    let term = name.to_owned();
    let Some(bits) = pmu.format.get(name) else {
        let known = pmu.format.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(PtConfigError::Unknown { term, known });
    };
    let value = match text.parse::<u64>() {
        Ok(value) if value <= bits.max() => value,
        _ => return Err(PtConfigError::Value { term, value: text.to_owned(), max: bits.max() }),
    };
    values.insert(term, value);
    Ok(())
}

/// The driver will take them.
fn check(pmu: &Pmu, values: &Values) -> Result<(), PtConfigError> {
    let value_of = |name: &str| values.get(name).copied().unwrap_or(0);
    let not_here = |term: &str, can: String| {
        Err(PtConfigError::NotHere { term: term.to_owned(), value: value_of(term), can })
    };
    if let Some((term, _)) = NEEDS.iter().find(|(term, cap)| value_of(term) > 0 && pmu.cap(cap) == 0) {
        return not_here(term, "only 0".to_owned());
    }
    for (term, cap) in PERIODS {
        let (value, mask) = (value_of(term), pmu.cap(cap));
        // 0 is what the others have when nothing is said of them.
        let matters = value > 0 || term == "mtc_period" && value_of("mtc") > 0;
        if matters && mask >> value & 1 == 0 {
            let can = (0..64).filter(|value| mask >> value & 1 == 1).map(|value: u32| value.to_string());
            let can = can.collect::<Vec<_>>().join(", ");
            return not_here(term, if can.is_empty() { "none".to_owned() } else { can });
        }
    }
    // Kernels that do not know the other one have no such rule.
    let alone = PAIRS
        .iter()
        .find(|(term, other)| value_of(term) > 0 && value_of(other) == 0 && pmu.format.contains_key(*other));
    alone.map_or(Ok(()), |(term, other)| Err(PtConfigError::Without { term, other }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::Bits;
    use crate::pmu::tests::{SKYLAKE, sysfs};

    fn pmu(without: &[&str]) -> Pmu {
        let files: Vec<_> = SKYLAKE.into_iter().filter(|(name, _)| !without.contains(name)).collect();
        Pmu::discover(sysfs(&files).path()).unwrap()
    }

    #[test]
    fn defaults_are_what_the_processor_can_do() {
        let all = PtSettings::new(&pmu(&[]), None).unwrap();
        assert_eq!(all.event, "intel_pt/branch,cyc,mtc,mtc_period=3,psb_period=3,pt,tsc/u");
        assert_eq!(all.config, 1 | 1 << 1 | 1 << 9 | 1 << 10 | 1 << 13 | 3 << 14 | 3 << 24);
        let old = PtSettings::new(&pmu(&["caps/psb_cyc", "caps/mtc"]), None).unwrap();
        assert_eq!(old.event, "intel_pt/branch,pt,tsc/u");
    }

    #[test]
    fn the_nearest_period_that_there_is() {
        let mut pmu = pmu(&[]);
        pmu.caps.insert("mtc_periods".into(), 0x240);
        assert!(PtSettings::new(&pmu, None).unwrap().event.contains("mtc_period=6"));
    }

    #[test]
    fn terms_change_the_defaults() {
        let event = |terms: &str| PtSettings::new(&pmu(&[]), Some(terms)).unwrap().event;
        assert_eq!(event("cyc=0, mtc_period=9"), "intel_pt/branch,mtc,mtc_period=9,psb_period=3,pt,tsc/u");
        assert_eq!(
            event("noretcomp,mtc=0,"),
            "intel_pt/branch,cyc,mtc_period=3,noretcomp,psb_period=3,pt,tsc/u"
        );
    }

    /// The driver has all terms in its format, and refuses them with EINVAL.
    #[test]
    fn what_the_processor_cannot_do_is_refused_by_name() {
        let refused = |without: &[&str], terms: &str| {
            let mut pmu = pmu(without);
            let terms_of_driver =
                [("ptw", 12), ("fup_on_ptw", 5), ("pwr_evt", 4), ("event", 31), ("notnt", 55)];
            pmu.format
                .extend(terms_of_driver.map(|(term, at)| (term.to_owned(), Bits { first: at, last: at })));
            PtSettings::new(&pmu, Some(terms)).unwrap_err().to_string()
        };
        for term in ["ptw", "fup_on_ptw", "pwr_evt", "event", "notnt"] {
            let expect = format!("--pt_config {term}=1: this processor can do only 0");
            assert_eq!(refused(&[], term), expect);
        }
        let old = &["caps/psb_cyc", "caps/mtc", "caps/mtc_periods"];
        for term in ["cyc", "mtc", "psb_period"] {
            assert_eq!(refused(old, term), format!("--pt_config {term}=1: this processor can do only 0"));
        }
        let none = refused(&["caps/mtc_periods"], "mtc");
        assert_eq!(none, "--pt_config mtc_period=0: this processor can do none");
        let mut without_0 = pmu(&[]);
        without_0.caps.insert("mtc_periods".into(), 0x248);
        let error = PtSettings::new(&without_0, Some("mtc_period=0")).unwrap_err().to_string();
        assert_eq!(error, "--pt_config mtc_period=0: this processor can do 3, 6, 9");
        assert!(PtSettings::new(&without_0, Some("mtc_period=0,mtc=0")).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |terms: &str| PtSettings::new(&pmu(&[]), Some(terms)).unwrap_err().to_string();
        assert!(refused("speed=1").starts_with("--pt_config speed: the trace unit here has no such setting"));
        assert_eq!(refused("mtc_period=16"), "--pt_config mtc_period=16: not a number from 0 to 15");
        assert_eq!(refused("mtc_period=4"), "--pt_config mtc_period=4: this processor can do 0, 3, 6, 9");
        assert_eq!(refused("pt=0"), "--pt_config branch=1: only with pt=1");
        assert_eq!(refused("cyc=x"), "--pt_config cyc=x: not a number from 0 to 1");
    }
}
