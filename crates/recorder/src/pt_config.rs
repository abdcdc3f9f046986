//! How the trace unit is programmed: the `config` of the event.

use crate::pmu::Pmu;

/// The config, and how it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtSettings {
    /// `attr.config`.
    pub config: u64,
    /// As perf would take it: `intel_pt/branch,cyc,mtc,mtc_period=3,pt,tsc/u`.
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

/// perf's own choice, and what most recordings have: MTC every 2^3 ticks of the crystal clock (a third of a microsecond
/// at 24 MHz), PSB every 2^(11+3) bytes.
const WANTED_PERIOD: u64 = 3;

/// Settings that have values: the term, the mask of possible values, and what switches them on.
const PERIODS: [(&str, &str); 3] =
    [("mtc_period", "mtc_periods"), ("psb_period", "psb_periods"), ("cyc_thresh", "cycle_thresholds")];

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

/// Branches; TSC, MTC and CYC packets, as far as there are such: CYC bounds each time to some cycles, MTC and TSC keep
/// that from drifting.
fn defaults(pmu: &Pmu) -> Values {
    let mut values: Values = ["pt", "branch", "tsc"].map(|name| (name.to_owned(), 1)).into();
    if pmu.cap("mtc") != 0 {
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
    if let Some((_, cap)) = PERIODS.iter().find(|(period, _)| *period == name) {
        let mask = pmu.cap(cap);
        if value > 0 && mask >> value & 1 == 0 {
            let can: Vec<String> =
                (0..64).filter(|value| mask >> value & 1 == 1).map(|value| value.to_string()).collect();
            let can = if can.is_empty() { "only 0".to_owned() } else { can.join(", ") };
            return Err(PtConfigError::NotHere { term, value, can });
        }
    }
    values.insert(term, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |terms: &str| PtSettings::new(&pmu(&[]), Some(terms)).unwrap_err().to_string();
        assert!(refused("speed=1").starts_with("--pt_config speed: the trace unit here has no such setting"));
        assert_eq!(refused("mtc_period=16"), "--pt_config mtc_period=16: not a number from 0 to 15");
        assert_eq!(refused("mtc_period=4"), "--pt_config mtc_period=4: this processor can do 0, 3, 6, 9");
        assert_eq!(refused("cyc=x"), "--pt_config cyc=x: not a number from 0 to 1");
    }
}
