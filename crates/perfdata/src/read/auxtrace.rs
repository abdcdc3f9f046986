//! AUXTRACE_INFO: how Intel PT was set up.  A list of words, as tools/perf/util/intel-pt.h numbers them;
//! older versions of perf wrote fewer.

use model::{PtConfig, TscClock};

use super::attr::EventAttr;
use super::bytes::{Cursor, text};

/// `PERF_AUXTRACE_INTEL_PT`.
const KIND_INTEL_PT: u32 = 1;

const PMU_TYPE: usize = 0;
const TIME_SHIFT: usize = 1;
const TIME_MULT: usize = 2;
const TIME_ZERO: usize = 3;
const CAP_USER_TIME_ZERO: usize = 4;
const TSC_BIT: usize = 5;
const NORETCOMP_BIT: usize = 6;
const SNAPSHOT_MODE: usize = 8;
const MTC_BIT: usize = 10;
const MTC_FREQ_BITS: usize = 11;
const TSC_CTC_N: usize = 12;
const TSC_CTC_D: usize = 13;
const CYC_BIT: usize = 14;
const MAX_NONTURBO_RATIO: usize = 15;
const FILTER_STR_LEN: usize = 16;
const WORDS: usize = 17;

/// `config` bits that have no word of their own.
const CONFIG_PT: u64 = 1;
const CONFIG_BRANCH: u64 = 1 << 13;
const CONFIG_NO_TNT: u64 = 1 << 55;
const CONFIG_CYC_THRESH_SHIFT: u32 = 19;
const CONFIG_CYC_THRESH_MASK: u64 = 15;

/// An AUXTRACE_INFO record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceInfo {
    /// Where in the file.
    pub(super) offset: u64,
    kind: u32,
    words: Vec<u64>,
    /// IP filters, empty if none.
    pub(super) filter: String,
}

impl TraceInfo {
    /// Reads the body; `None` if it does not even name a PMU.
    pub(super) fn read(offset: u64, body: &[u8]) -> Option<Self> {
        let mut c = Cursor::new(body);
        let kind = c.u32()?;
        let _reserved = c.u32()?;
        let words: Vec<u64> = std::iter::from_fn(|| c.u64()).take(WORDS).collect();
        words.first()?;
        let filter_len = words.get(FILTER_STR_LEN).copied().unwrap_or(0);
        let filter = usize::try_from(filter_len).ok().and_then(|len| c.take(len)).unwrap_or_default();
        Some(Self { offset, kind, words, filter: text(filter) })
    }

    /// perf's name of a trace that is not Intel PT.
    pub(super) fn other_kind(&self) -> Option<String> {
        // enum auxtrace_type
        let name = match self.kind {
            KIND_INTEL_PT => return None,
            2 => "Intel BTS",
            3 => "CoreSight ETM",
            4 => "Arm SPE",
            5 => "s390 CPU measurement",
            6 => "HiSilicon PTT",
            kind => return Some(format!("unknown kind {kind}")),
        };
        Some(name.to_owned())
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// A small number; 0 (unknown) if it is not.
    fn small(&self, index: usize) -> u32 {
        u32::try_from(self.word(index)).unwrap_or(0)
    }

    /// The `type` of the Intel PT event.
    pub(super) fn pmu_type(&self) -> u64 {
        self.word(PMU_TYPE)
    }

    /// TSC to perf's clock, if the kernel could say.
    pub(super) fn clock(&self) -> Option<TscClock> {
        let valid = self.word(CAP_USER_TIME_ZERO) != 0;
        clock(self.word(TIME_SHIFT), self.word(TIME_MULT), self.word(TIME_ZERO)).filter(|_| valid)
    }

    /// How the trace unit was programmed.
    pub(super) fn pt_config(&self, event: &EventAttr) -> PtConfig {
        let config = event.config;
        let is_on = |word| config & self.word(word) != 0;
        let cyc_threshold = config >> CONFIG_CYC_THRESH_SHIFT & CONFIG_CYC_THRESH_MASK;
        let mtc_period = field(config, self.word(MTC_FREQ_BITS));
        PtConfig {
            cyc: is_on(CYC_BIT),
            // Encoded as in IA32_RTIT_CTL.CycThresh.
            cyc_threshold: if cyc_threshold == 0 { 0 } else { 1 << (cyc_threshold - 1) },
            mtc_period: u8::try_from(mtc_period).ok().filter(|_| is_on(MTC_BIT)),
            tsc: is_on(TSC_BIT),
            // Before Linux 4.11 the config had neither bit and branches were always on.
            branch: (config & CONFIG_PT == 0 || config & CONFIG_BRANCH != 0) && config & CONFIG_NO_TNT == 0,
            return_compression: !is_on(NORETCOMP_BIT),
            kernel: !event.exclude_kernel(),
            user: !event.exclude_user(),
            tsc_ctc_ratio: (self.small(TSC_CTC_N), self.small(TSC_CTC_D)),
            max_nonturbo_ratio: self.small(MAX_NONTURBO_RATIO),
            has_ip_filter: !self.filter.is_empty(),
            snapshot: self.word(SNAPSHOT_MODE) != 0,
        }
    }
}

/// The value of the bits of `config` that `mask` names.
fn field(config: u64, mask: u64) -> u64 {
    (config & mask).checked_shr(mask.trailing_zeros()).unwrap_or(0)
}

fn clock(shift: u64, mult: u64, zero: u64) -> Option<TscClock> {
    // More than 63 is no shift of 64 bits, and with factor 0 time would stand still.
    let shift = u16::try_from(shift).ok().filter(|shift| *shift < 64)?;
    let mult = u32::try_from(mult).ok().filter(|mult| *mult != 0)?;
    Some(TscClock { shift, mult, zero })
}

/// What our recorder writes after perf's six words of TIME_CONV; see [`crate::write::ClockSample`].
pub(super) fn clock_sample(body: &[u8]) -> Option<[u64; 3]> {
    const PERF_WORDS: usize = 6;
    let mut c = Cursor::new(body.get(8 * PERF_WORDS..)?);
    Some([c.u64()?, c.u64()?, c.u64()?])
}

/// The body of TIME_CONV: the clock, for recordings with an AUXTRACE_INFO that lacks it.
pub(super) fn time_conv(body: &[u8]) -> Option<TscClock> {
    let mut c = Cursor::new(body);
    let clock = clock(c.u64()?, c.u64()?, c.u64()?)?;
    // Later versions add `time_cycles`, `time_mask` and then whether the conversion holds.
    match c.take(16).and_then(|_| c.take(1)) {
        Some([0]) => None,
        _ => Some(clock),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a recording on a Skylake, and one bit more for a filter.
    const REAL: [u64; WORDS] = [
        6,
        31,
        1_789_569_706,
        18_446_744_041_015_200_657,
        1,
        0x400,
        0x800,
        3,
        0,
        1,
        0x200,
        0x3c000,
        100,
        2,
        2,
        12,
        9,
    ];

    fn info(words: &[u64]) -> TraceInfo {
        let mut body = 1u64.to_le_bytes().to_vec();
        body.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        body.extend(b"filter f,padding");
        TraceInfo::read(99, &body).unwrap()
    }

    fn event(config: u64) -> EventAttr {
        let mut event = EventAttr::default();
        event.config = config;
        event
    }

    #[test]
    fn config_of_a_real_recording() {
        let info = info(&REAL);
        assert_eq!(info.filter, "filter f,");
        assert_eq!((info.pmu_type(), info.other_kind()), (6, None));
        assert_eq!(
            info.pt_config(&event(0x300_e601)),
            PtConfig {
                cyc: false,
                cyc_threshold: 0,
                mtc_period: Some(3),
                tsc: true,
                branch: true,
                return_compression: true,
                kernel: true,
                user: true,
                tsc_ctc_ratio: (100, 2),
                max_nonturbo_ratio: 12,
                has_ip_filter: true,
                snapshot: false,
            }
        );
    }

    #[test]
    fn bits_of_the_config() {
        let pt = |config| info(&REAL).pt_config(&event(config));
        assert_eq!(pt(0x400).mtc_period, None);
        assert!(pt(0x400).branch);
        assert!(!pt(0x401).branch);
        assert!(pt(0x2401).branch);
        assert!(!pt(0x2401 | 1 << 55).branch);
        assert!(!pt(0x800).return_compression);
        assert!(pt(2).cyc);
        let thresholds: Vec<u32> =
            [0, 1, 2, 5, 15].iter().map(|n: &u64| pt(n << 19 | 2).cyc_threshold).collect();
        assert_eq!(thresholds, [0, 1, 2, 16, 16384]);
    }

    #[test]
    fn older_and_damaged_words() {
        let short = info(&REAL[..9]);
        // The text that follows is taken for words; none of it may be believed to be more than it is.
        assert!(short.pt_config(&event(0)).branch);
        assert_eq!(TraceInfo::read(0, &1u64.to_le_bytes()), None);
        let mut words = REAL;
        (words[TIME_SHIFT], words[FILTER_STR_LEN]) = (64, u64::MAX);
        assert_eq!((info(&words).clock(), info(&words).filter.as_str()), (None, ""));
        assert_eq!(
            info(&REAL).clock(),
            Some(TscClock { shift: 31, mult: 1_789_569_706, zero: 18_446_744_041_015_200_657 })
        );
        words = REAL;
        words[CAP_USER_TIME_ZERO] = 0;
        assert_eq!(info(&words).clock(), None);
    }

    #[test]
    fn time_conv_of_both_lengths() {
        let mut body: Vec<u8> = [31u64, 5, 7].iter().flat_map(|w| w.to_le_bytes()).collect();
        let clock = Some(TscClock { shift: 31, mult: 5, zero: 7 });
        assert_eq!(time_conv(&body), clock);
        body.extend([0; 24]);
        assert_eq!(time_conv(&body), None);
        body[40] = 1;
        assert_eq!(time_conv(&body), clock);
    }
}
