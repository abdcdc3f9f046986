//! The `intel_pt` PMU, as the kernel describes it in sysfs.
//!
//! ```text
//! /sys/bus/event_source/devices/intel_pt/
//!   type               number of the PMU
//!   format/cyc         config:1             which bits of the config a term is
//!   caps/mtc_periods   249                  what the processor can do, hexadecimal
//!   nr_addr_filters    2                    how many IP ranges
//!   tsc_art_ratio      216:2                TSC ticks per crystal clock tick (older kernels do not tell)
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sys::tsc_ctc_ratio;

/// Which bits of `perf_event_attr.config` a term is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

impl Bits {
    /// The largest value that fits.
    #[must_use]
    pub fn max(self) -> u64 {
        u64::MAX >> (63 - (self.last - self.first))
    }

    /// The value at its place in the config.
    #[must_use]
    pub fn place(self, value: u64) -> u64 {
        (value & self.max()) << self.first
    }
}

/// What sysfs says of the PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// `attr.type` of its events.
    pub number: u32,
    /// Terms of the config.
    pub format: BTreeMap<String, Bits>,
    /// What the processor can do, by name; numbers, masks and flags.
    pub caps: BTreeMap<String, u64>,
    /// IP ranges that one event may have; 0: none.
    pub address_filters: usize,
    /// TSC ticks per crystal clock tick: numerator, denominator; 0, 0 if it does not tell.
    pub tsc_ctc_ratio: (u32, u32),
    /// Core:bus ratio at which the core clock equals the TSC's; 0 if it does not tell.
    pub max_nonturbo_ratio: u32,
}

/// Why there is no PMU.
#[derive(Debug, thiserror::Error)]
pub enum PmuError {
    /// The kernel has no such PMU.
    #[error("this machine has no Intel PT, or its kernel has no driver for it (no {path})")]
    Missing {
        /// Where it would be.
        path: PathBuf,
    },
    /// It is there, but does not say what it must.
    #[error("{path}: {what}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl Pmu {
    /// Its name, and that of its directory.
    pub const NAME: &'static str = "intel_pt";

    /// Reads the PMU's directory below `sysfs` (`/sys`).
    ///
    /// # Errors
    /// There is none, or it has no number.
    pub fn discover(sysfs: &Path) -> Result<Self, PmuError> {
        let directory = sysfs.join("bus/event_source/devices").join(Self::NAME);
        if !directory.is_dir() {
            return Err(PmuError::Missing { path: directory });
        }
        let path = directory.join("type");
        let number = match fs::read_to_string(&path).map(|text| text.trim().parse()) {
            Ok(Ok(number)) => number,
            Ok(Err(_)) => return Err(PmuError::Unreadable { path, what: "is no number".to_owned() }),
            Err(error) => return Err(PmuError::Unreadable { path, what: error.to_string() }),
        };
        let text = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let small = |name: &str| text(name).and_then(|text| text.trim().parse().ok());
        Ok(Self {
            number,
            format: named(&directory.join("format"), bits),
            caps: named(&directory.join("caps"), |text| u64::from_str_radix(text, 16).ok()),
            address_filters: small("nr_addr_filters").unwrap_or(0) as usize,
            tsc_ctc_ratio: text("tsc_art_ratio").and_then(|text| ratio(text.trim())).unwrap_or((0, 0)),
            max_nonturbo_ratio: small("max_nonturbo_ratio").unwrap_or(0),
        })
    }

    /// With the ratio of the clocks that the processor tells, if the kernel is too old to (or, in a virtual
    /// machine, knows none): perf takes that, too.
    #[must_use]
    pub fn with_processors_ratio(self) -> Self {
        let known = self.tsc_ctc_ratio != (0, 0);
        let tsc_ctc_ratio = if known { self.tsc_ctc_ratio } else { tsc_ctc_ratio().unwrap_or((0, 0)) };
        Self { tsc_ctc_ratio, ..self }
    }

    /// A capability; 0 if the kernel does not know it.
    #[must_use]
    pub fn cap(&self, name: &str) -> u64 {
        self.caps.get(name).copied().unwrap_or(0)
    }
}

/// The files of a directory that can be read, by name.
fn named<T>(directory: &Path, parse: impl Fn(&str) -> Option<T>) -> BTreeMap<String, T> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        Some((entry.file_name().into_string().ok()?, parse(text.trim())?))
    };
    entries.filter_map(read).collect()
}

/// `config:14-17` or `config:1`; only the first config word.
fn bits(text: &str) -> Option<Bits> {
    let range = text.strip_prefix("config:")?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let bits = Bits { first: first.parse().ok()?, last: last.parse().ok()? };
    (bits.first <= bits.last && bits.last < 64).then_some(bits)
}

/// `216:2`.
fn ratio(text: &str) -> Option<(u32, u32)> {
    let (numerator, denominator) = text.split_once(':')?;
    Some((numerator.parse().ok()?, denominator.parse().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A sysfs with these files in the PMU's directory.
    pub(crate) fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("bus/event_source/devices/intel_pt");
        for (name, text) in files {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    /// What a processor of the sixth generation says.
    pub(crate) const SKYLAKE: [(&str, &str); 19] = [
        ("type", "8\n"),
        ("caps/topa_multiple_entries", "1\n"),
        ("format/pt", "config:0\n"),
        ("format/cyc", "config:1\n"),
        ("format/mtc", "config:9\n"),
        ("format/tsc", "config:10\n"),
        ("format/noretcomp", "config:11\n"),
        ("format/branch", "config:13\n"),
        ("format/mtc_period", "config:14-17\n"),
        ("format/cyc_thresh", "config:19-22\n"),
        ("format/psb_period", "config:24-27\n"),
        ("caps/psb_cyc", "1\n"),
        ("caps/mtc", "1\n"),
        ("caps/mtc_periods", "249\n"),
        ("caps/cycle_thresholds", "3fff\n"),
        ("caps/psb_periods", "3f\n"),
        ("nr_addr_filters", "2\n"),
        ("tsc_art_ratio", "216:2\n"),
        ("max_nonturbo_ratio", "26\n"),
    ];

    #[test]
    fn a_pmu_is_what_sysfs_says() {
        let root = sysfs(&SKYLAKE);
        let pmu = Pmu::discover(root.path()).unwrap();
        assert_eq!((pmu.number, pmu.address_filters), (8, 2));
        assert_eq!((pmu.tsc_ctc_ratio, pmu.max_nonturbo_ratio), ((216, 2), 26));
        assert_eq!(pmu.format["mtc_period"], Bits { first: 14, last: 17 });
        assert_eq!((pmu.cap("mtc_periods"), pmu.cap("tnt_disable")), (0x249, 0));
    }

    #[test]
    fn what_the_kernel_tells_of_the_clocks_counts() {
        let ratio =
            |tsc_ctc_ratio| Pmu { tsc_ctc_ratio, ..Pmu::default() }.with_processors_ratio().tsc_ctc_ratio;
        assert_eq!(ratio((167, 1)), (167, 1));
        assert_eq!(ratio((0, 0)), tsc_ctc_ratio().unwrap_or((0, 0)));
    }

    #[test]
    fn what_is_missing_is_unknown_and_no_error() {
        let root = sysfs(&[("type", "8\n"), ("format/odd", "config1:0\n"), ("format/bad", "config:9-70\n")]);
        let pmu = Pmu::discover(root.path()).unwrap();
        assert_eq!(pmu, Pmu { number: 8, ..Pmu::default() });
    }

    #[test]
    fn no_pmu() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(Pmu::discover(root.path()), Err(PmuError::Missing { .. })));
        let root = sysfs(&[("type", "eight")]);
        assert!(matches!(Pmu::discover(root.path()), Err(PmuError::Unreadable { .. })));
        let root = sysfs(&[("format/pt", "config:0")]);
        assert!(matches!(Pmu::discover(root.path()), Err(PmuError::Unreadable { .. })));
    }

    #[test]
    fn values_at_their_place() {
        let bits = Bits { first: 14, last: 17 };
        assert_eq!((bits.max(), bits.place(3)), (15, 3 << 14));
        assert_eq!(Bits { first: 0, last: 63 }.max(), u64::MAX);
    }
}
