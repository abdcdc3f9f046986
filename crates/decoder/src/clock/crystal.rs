//! The crystal clock: what an MTC packet says about the TSC.
//!
//! MTC has eight bits of the crystal's counter, from bit `mtc_period` on; TMA has the low 16 bits at a TSC
//! packet, and the TSC ticks since the counter last changed. So MTC gives the TSC through the number of
//! crystal ticks since that TMA, and the ratio of the two clocks (SDM, "Tracking Time"):
//!
//! ```text
//!   TSC TMA ----- MTC ----- MTC ----- MTC        ticks = TMA's TSC - fast + crystal ticks * ratio
//! ```
//!
//! Processors skip MTC packets now and then, and make none while they sleep; then TSC and TMA follow the
//! wake-up.

use model::{AuxBuffer, AuxPiece};
use packet::Packet;

use super::anchor::{Anchor, Kind};
use super::ticks::FRACTION;
use crate::pieces::clip;
use crate::reader;
use crate::segment::AHEAD;

/// Ratios are in TSC ticks for a tick of the crystal, with this many fractional bits.
const RATIO_FRACTION: u32 = 32;
/// Where the ratio cannot be measured, the nominal one may be off by this part (1/256): a header's rounded
/// one, a TSC that a hypervisor scales.
const NOMINAL_TOLERANCE_SHIFT: u32 = 8;
/// Where it can, it is looked for in this part (1/64) around the nominal one.
const SEARCH_SHIFT: u32 = 6;
/// Without a nominal ratio: between these.  Crystals have 19.2 to 38.4 MHz, TSCs 0.8 to 6 GHz.
const PLAUSIBLE: CrystalRatio = CrystalRatio { low: 20 << RATIO_FRACTION, high: 400 << RATIO_FRACTION };
/// TSC ticks by which TSC - fast may be off the crystal's tick: both are rounded, `fast` to even numbers on
/// some processors.
const TMA_TICKS: u64 = 2;
/// Pairs of TSC and TMA that a buffer's ratio is measured by.
const SAMPLES: usize = 256;
/// Buffers that the ratio is measured by: a recording of many threads has thousands, and a few tell it.
const BUFFERS: usize = 16;
/// The most PSB+ that are searched for these pairs, where not each has one: opening one call must not read
/// all of the trace.
const PSBS: usize = 16 * SAMPLES;
/// What is read of a buffer where its PSB+ do not tell the ratio.
const SAMPLE_BYTES: u64 = 1 << 16;
/// Packets of a PSB+, with generous room for padding.
const PSB_PLUS_PACKETS: usize = 128;

/// TSC ticks for a tick of the crystal: from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrystalRatio {
    low: u64,
    high: u64,
}

/// What a TSC and its TMA say: the TSC at the crystal's last tick, and the counter's low 16 bits.
#[derive(Clone, Copy, Debug)]
struct Sample {
    tsc: u64,
    counter: u16,
}

impl CrystalRatio {
    /// CPUID 15H: EBX / EAX, and how far off that may be.
    pub(crate) fn nominal((n, d): (u32, u32)) -> Option<Self> {
        Self::around((n, d), NOMINAL_TOLERANCE_SHIFT)
    }

    fn around((n, d): (u32, u32), tolerance_shift: u32) -> Option<Self> {
        let ratio = (u64::from(n) << RATIO_FRACTION).checked_div(u64::from(d)).filter(|&ratio| ratio != 0)?;
        let tolerance = ratio >> tolerance_shift;
        Some(Self { low: ratio - tolerance, high: ratio.saturating_add(tolerance) })
    }

    /// Exactly `ticks` ticks.
    #[cfg(test)]
    pub(super) fn exact(ticks: u64) -> Option<Self> {
        Some(Self { low: ticks << RATIO_FRACTION, high: ticks << RATIO_FRACTION })
    }

    /// The ratio, measured by the first buffers that have several pairs of TSC and TMA: both clocks are
    /// constant. `nominal` is what the recording says (zeros if it does not); `None` if it does not and there
    /// is nothing to measure.
    ///
    /// Each PSB+ has a pair, and a recording many PSB+. Where they are too far apart to tell how often the
    /// counter's 16 bits went round, the pairs between them do: one stands wherever the trace unit was
    /// started again.
    pub(crate) fn measure(buffers: &[AuxBuffer<'_>], nominal: (u32, u32)) -> Option<Self> {
        let by = |samples: fn(&[AuxPiece<'_>]) -> Vec<Sample>| Self::measure_by(buffers, nominal, samples);
        by(samples_of_psbs).or_else(|| by(first_samples)).or_else(|| Self::nominal(nominal))
    }

    /// The ratio by these samples of each buffer; `None` where most of them say nothing.
    fn measure_by(
        buffers: &[AuxBuffer<'_>],
        nominal: (u32, u32),
        samples: fn(&[AuxPiece<'_>]) -> Vec<Sample>,
    ) -> Option<Self> {
        let mut range = Self::around(nominal, SEARCH_SHIFT).unwrap_or(PLAUSIBLE);
        let (mut fit, mut misfit) = (0u32, 0u32);
        let samples = buffers.iter().map(|buffer| samples(&buffer.pieces));
        for samples in samples.filter(|samples| samples.len() > 1).take(BUFFERS) {
            let (mut first, mut crystal_ticks) = (samples.first().copied(), 0u64);
            for pair in samples.windows(2) {
                let (Some(base), &[before, sample]) = (first, pair) else { break };
                match range.crystal_ticks(before, sample) {
                    Some(passed) => {
                        crystal_ticks += passed;
                        let better = Self::of(sample.tsc.saturating_sub(base.tsc), crystal_ticks);
                        match range.intersect(better) {
                            Some(both) => (range, fit) = (both, fit + 1),
                            None => (first, crystal_ticks, misfit) = (Some(sample), 0, misfit + 1),
                        }
                    }
                    None => (first, crystal_ticks) = (Some(sample), 0),
                }
            }
        }
        (fit > misfit).then_some(range)
    }

    fn of(tsc_ticks: u64, crystal_ticks: u64) -> Self {
        let ratio = |ticks: u64| {
            let ratio = (u128::from(ticks) << RATIO_FRACTION) / u128::from(crystal_ticks.max(1));
            u64::try_from(ratio).unwrap_or(u64::MAX)
        };
        let (least, most) =
            (tsc_ticks.saturating_sub(2 * TMA_TICKS), tsc_ticks.saturating_add(2 * TMA_TICKS));
        Self { low: ratio(least), high: ratio(most).saturating_add(1) }
    }

    /// What two measurements of the same clocks say together; the first one, if they contradict each other.
    pub(crate) fn refine(self, other: Self) -> Self {
        self.intersect(other).unwrap_or(self)
    }

    fn intersect(self, other: Self) -> Option<Self> {
        let both = Self { low: self.low.max(other.low), high: self.high.min(other.high) };
        (both.low <= both.high).then_some(both)
    }

    /// Crystal ticks from one sample to another: the counter's low bits say, if the time between leaves but
    /// one number.
    fn crystal_ticks(self, from: Sample, to: Sample) -> Option<u64> {
        let tsc_ticks = to.tsc.checked_sub(from.tsc).filter(|&ticks| ticks < 1 << 40)?;
        let count = |ticks: u64, ratio: u64| {
            u64::try_from((u128::from(ticks) << RATIO_FRACTION) / u128::from(ratio.max(1)))
        };
        let least = count(tsc_ticks.saturating_sub(2 * TMA_TICKS), self.high).ok()?;
        let most = count(tsc_ticks + 2 * TMA_TICKS, self.low).ok()? + 1;
        let low_bits = u64::from(to.counter.wrapping_sub(from.counter));
        let candidate = least + (low_bits.wrapping_sub(least) & 0xffff);
        (candidate > 0 && candidate <= most && candidate + 0x1_0000 > most).then_some(candidate)
    }
}

/// The pairs of TSC and TMA of the first PSB+ packets of a stream.
fn samples_of_psbs(pieces: &[AuxPiece<'_>]) -> Vec<Sample> {
    let mut samples = vec![];
    let mut psbs = 0;
    for piece in pieces {
        let mut at = 0;
        while let Some(psb) = packet::find_psb(piece.bytes, at) {
            let start = piece.offset.plus(psb as u64);
            samples.extend(sample(&clip(pieces, start, start.plus(AHEAD))));
            psbs += 1;
            if samples.len() == SAMPLES || psbs == PSBS {
                return samples;
            }
            at = psb + packet::PSB.len();
        }
    }
    samples
}

/// What the PSB+ at the start says, if it is whole.
fn sample(pieces: &[AuxPiece<'_>]) -> Option<Sample> {
    let packets = reader::packets(pieces).take(PSB_PLUS_PACKETS).map_while(|(_, packet)| packet.ok());
    let psb_plus = packets.take_while(|packet| !matches!(packet, Packet::PsbEnd | Packet::Ovf));
    pairs(psb_plus).next().flatten()
}

/// All pairs of TSC and TMA at the start of a stream.
fn first_samples(pieces: &[AuxPiece<'_>]) -> Vec<Sample> {
    let Some(first) = pieces.first() else { return vec![] };
    let start = clip(pieces, first.offset, first.offset.plus(SAMPLE_BYTES));
    let packets = reader::packets(&start).filter_map(|(_, packet)| packet.ok());
    pairs(packets).flatten().take(SAMPLES).collect()
}

/// What each TMA says with the TSC before it; `None`: it has none.
fn pairs(packets: impl Iterator<Item = Packet>) -> impl Iterator<Item = Option<Sample>> {
    let mut tsc = None;
    packets.filter_map(move |packet| match packet {
        Packet::Tsc(ticks) => {
            tsc = Some(ticks);
            None
        }
        Packet::Tma { ctc, fast } => {
            let tick = tsc.take().and_then(|ticks: u64| ticks.checked_sub(fast.into()));
            Some(tick.map(|tsc| Sample { tsc, counter: ctc }))
        }
        _ => None,
    })
}

/// Follows the crystal's counter.
pub(super) struct Crystal {
    period: u32,
    ratio: Option<CrystalRatio>,
    base: Option<Base>,
}

/// The last TMA, and what MTC packets have said since.
#[derive(Clone, Copy, Debug)]
struct Base {
    /// TSC at the counter's last change before the TMA.
    tsc: u64,
    /// The TSC that the TMA belongs to.
    tma: model::Tsc,
    /// Crystal ticks since.
    passed: u64,
    /// Counter at the last MTC or TMA; low bits only.
    counter: u64,
    /// How many low bits of `counter` are known.
    known_bits: u32,
}

impl Crystal {
    pub(super) fn new(mtc_period: Option<u8>, ratio: Option<CrystalRatio>) -> Self {
        let ratio = ratio.filter(|_| mtc_period.is_some());
        Self { period: mtc_period.map_or(0, u32::from).min(32), ratio, base: None }
    }

    /// The counter's relation to the TSC is not known any more.
    pub(super) fn forget(&mut self) {
        self.base = None;
    }

    /// A TMA packet that follows a TSC packet.
    pub(super) fn tma(&mut self, tsc: model::Tsc, ctc: u16, fast: u16) {
        let tick = tsc.0.saturating_sub(u64::from(fast));
        self.base = Some(Base { tsc: tick, tma: tsc, passed: 0, counter: u64::from(ctc), known_bits: 16 });
    }

    /// An MTC packet repeats a known count, though it is not earlier than `now`, when the counter had
    /// changed.
    pub(super) fn is_stale(&self, payload: u8, now: u128) -> bool {
        let Some((base, ratio)) = self.base.as_ref().zip(self.ratio) else { return false };
        let known = base.counter >> self.period;
        let is_known = base.known_bits >= self.period + 8 && known & 0xff == payload.into();
        is_known && base.anchor(ratio, ((known + 1) << self.period) - base.counter).hi < now
    }

    /// The counter's bits in MTC packets have gone round in so many ticks (with fraction), once or more,
    /// as far as such a packet is on time.
    pub(super) fn goes_round(&self, passed: u128) -> bool {
        let Some((base, ratio)) = self.base.as_ref().zip(self.ratio) else { return false };
        let [period, round] = [1, 256].map(|counts| base.ticks(counts << self.period, ratio.low));
        let is_round = |rest: u128| rest <= period + period / 2;
        round > 0 && passed + period / 2 >= round && is_round((passed + period / 2) % round)
    }

    /// An MTC packet, when it is not earlier than `now` (ticks with fraction); `None` if it says nothing.
    /// `lag`: how old TSC and TMA may be, in such ticks.
    pub(super) fn mtc(&mut self, payload: u8, now: u128, lag: u128) -> Option<Mtc> {
        let (ratio, base, period) = (self.ratio?, self.base.as_mut()?, self.period);
        // The payload's bits that the known counter covers: fewer than 8 right after a TMA with a long
        // period.
        let bits = base.known_bits.saturating_sub(period).min(8);
        if bits == 0 {
            return None;
        }
        let mask = (1u64 << bits) - 1;
        let before = base.counter >> period;
        let steps = match u64::from(payload).wrapping_sub(before) & mask {
            0 if bits == 8 => return None, // said already, by TMA or MTC
            0 => mask + 1,
            steps => steps,
        };
        // TSC and TMA give the clocks of some core cycles ago: the first count after them may stand in an
        // MTC before them.
        let first = ((before + 1) << period).saturating_sub(base.counter);
        let is_said = base.passed == 0 && base.is_soon(first, ratio, lag);
        let skips = steps > if is_said { 2 } else { 1 };
        base.passed = base.passed.saturating_add(((before + steps) << period).saturating_sub(base.counter));
        (base.counter, base.known_bits) = (u64::from(payload) << period, period + 8);
        let on_time = base.anchor(ratio, 0);
        let late = |base: &Base| skips.then(|| base.anchor(ratio, 1 << period));
        if now <= on_time.hi {
            return Some(Mtc { on_time, late: late(base) });
        }
        // If cycles say that much more time passed, more than 255 packets were skipped and the counter went
        // round.
        let round = 256u64 << period;
        let round_ticks = base.ticks(round, ratio.high).max(1);
        let rounds = (now - on_time.hi + round_ticks / 2) / round_ticks;
        if rounds == 0 {
            return Some(Mtc { on_time, late: late(base) });
        }
        base.passed = base.passed.saturating_add(round.saturating_mul(u64::try_from(rounds).ok()?));
        Some(Mtc { on_time: base.anchor(ratio, 0), late: Some(base.anchor(ratio, round)) })
    }
}

/// What an MTC packet says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mtc {
    /// When the counter changed to what it is now.
    pub(super) on_time: Anchor,
    /// Others were skipped before it: on wake-up a packet comes for the counter as it is then, and may stand
    /// anywhere in this range.
    pub(super) late: Option<Anchor>,
}

impl Base {
    fn ticks(&self, crystal_ticks: u64, ratio: u64) -> u128 {
        (u128::from(crystal_ticks) * u128::from(ratio)) >> (RATIO_FRACTION - FRACTION)
    }

    /// When the counter changed to what it is now, and up to `late` crystal ticks after that.
    fn anchor(&self, ratio: CrystalRatio, late: u64) -> Anchor {
        let tick = 1u128 << FRACTION;
        let base = u128::from(self.tsc) << FRACTION;
        let lo = (base + self.ticks(self.passed, ratio.low)).saturating_sub(tick);
        let hi = base + self.ticks(self.passed.saturating_add(late), ratio.high) + tick;
        Anchor::mtc(lo, hi, if late == 0 { Kind::Final } else { Kind::LateMtc })
    }

    /// `crystal_ticks` after the TMA, the TSC exceeds that of the TMA by at most `lag`.
    fn is_soon(&self, crystal_ticks: u64, ratio: CrystalRatio, lag: u128) -> bool {
        let at = (u128::from(self.tsc) << FRACTION) + self.ticks(crystal_ticks, ratio.low);
        at <= ((u128::from(self.tma.0) + 1) << FRACTION) + lag
    }
}

#[cfg(test)]
mod tests {
    use model::{AuxOffset, AuxOwner, Cpu};

    use super::*;

    /// A buffer of PSB+ packets, at TSCs and counters.
    fn bytes(samples: &[(u64, u64, u64)]) -> Vec<u8> {
        let mut out = vec![];
        for &(tsc, ctc, fast) in samples {
            let tma = Packet::Tma { ctc: ctc as u16, fast: fast as u16 };
            [Packet::Psb, Packet::Tsc(tsc), tma, Packet::PsbEnd]
                .iter()
                .for_each(|p| packet::encode(p, &mut out));
        }
        out
    }

    fn measure(samples: &[(u64, u64, u64)], nominal: (u32, u32)) -> Option<(f64, f64)> {
        measure_of(&[samples], nominal)
    }

    /// Of several buffers.
    fn measure_of(buffers: &[&[(u64, u64, u64)]], nominal: (u32, u32)) -> Option<(f64, f64)> {
        let bytes: Vec<Vec<u8>> = buffers.iter().map(|samples| bytes(samples)).collect();
        let buffer = |bytes| {
            let piece = AuxPiece { offset: AuxOffset(0), bytes, file_offset: 0 };
            AuxBuffer { index: 0, owner: AuxOwner::Cpu(Cpu(0)), pieces: vec![piece], records: vec![] }
        };
        let buffers: Vec<AuxBuffer<'_>> = bytes.iter().map(|bytes| buffer(bytes)).collect();
        let ratio = CrystalRatio::measure(&buffers, nominal)?;
        let float = |ratio: u64| ratio as f64 / (1u64 << RATIO_FRACTION) as f64;
        Some((float(ratio.low), float(ratio.high)))
    }

    /// A PSB+ every 10,000 crystal ticks of 125.375 TSC ticks: the counter goes round in between.
    fn skewed(count: u64) -> Vec<(u64, u64, u64)> {
        (0..count).map(|i| 777_777 + i * 10_000).map(|ctc| (ctc * 125_375 / 1000 + 7, ctc, 7)).collect()
    }

    #[test]
    fn a_ratio_off_the_nominal_one_is_measured() {
        let (low, high) = measure(&skewed(100), (250, 2)).unwrap();
        assert!(low <= 125.375 && 125.375 <= high && high - low < 0.0001, "{low} {high}");
    }

    #[test]
    fn without_a_nominal_ratio_it_is_measured() {
        let (low, high) = measure(&skewed(100), (0, 0)).unwrap();
        assert!(low <= 125.375 && 125.375 <= high && high - low < 0.0001, "{low} {high}");
    }

    /// A part of a recording of 50 threads read 50 MB of trace for it.
    #[test]
    fn a_few_buffers_tell_it() {
        let (few, many) = (skewed(3), skewed(100));
        let of = |buffers: &[&[(u64, u64, u64)]]| measure_of(buffers, (250, 2));
        let mut buffers: Vec<&[_]> = vec![&many[..1]; 100];
        buffers.extend(vec![&few[..]; BUFFERS]);
        assert_eq!(of(&[&buffers[..], &[&many]].concat()), of(&[&few]));
        assert_eq!(of(&[&buffers[..99 + BUFFERS], &[&many]].concat()), of(&[&many]));
    }

    /// PSB+ a second apart, as where a thread runs little: each stay on the CPU begins with TSC and TMA.
    #[test]
    fn pairs_between_psbs_tell_it_where_these_are_far_apart() {
        let mut far_apart = vec![];
        for &(psb, ..) in &skewed(3) {
            let stays = (0..20).map(|stay| (psb * 1000 + stay * 10_000) * 125_375 / 1000);
            for (stay, tsc) in stays.enumerate() {
                let ctc = tsc * 1000 / 125_375;
                let pair = [Packet::Tsc(tsc), Packet::Tma { ctc: ctc as u16, fast: 0 }];
                let around: (&[_], &[_]) =
                    if stay == 0 { (&[Packet::Psb], &[Packet::PsbEnd]) } else { (&[], &[]) };
                let packets = around.0.iter().chain(&pair).chain(around.1);
                packets.for_each(|packet| packet::encode(packet, &mut far_apart));
            }
        }
        let piece = AuxPiece { offset: AuxOffset(0), bytes: &far_apart, file_offset: 0 };
        let owner = AuxOwner::Cpu(Cpu(0));
        let buffer = AuxBuffer { index: 0, owner, pieces: vec![piece], records: vec![] };
        assert_eq!(CrystalRatio::measure_by(std::slice::from_ref(&buffer), (0, 0), samples_of_psbs), None);
        let ratio = CrystalRatio::measure(&[buffer], (0, 0)).unwrap();
        let truth = (125_375 << RATIO_FRACTION) / 1000;
        assert!(ratio.low <= truth && truth <= ratio.high && ratio.high - ratio.low < truth >> 10);
    }

    #[test]
    fn one_sample_leaves_the_nominal_ratio_and_its_tolerance() {
        assert_eq!(measure(&skewed(1), (250, 2)), Some((125.0 * 255.0 / 256.0, 125.0 * 257.0 / 256.0)));
        assert_eq!(measure(&skewed(1), (0, 0)), None);
    }

    #[test]
    fn a_damaged_sample_changes_nothing() {
        let mut samples = skewed(100);
        samples[40].0 ^= 1 << 33;
        samples[60].1 ^= 1 << 9;
        let (low, high) = measure(&samples, (250, 2)).unwrap();
        assert!(low <= 125.375 && 125.375 <= high && high - low < 0.0001, "{low} {high}");
    }

    #[test]
    fn a_real_recordings_ratio() {
        // Core m7-6Y75: the first PSB+ packets of a recording.
        let samples = [
            (808_741_677_872, 0x5f95, 22),
            (808_741_693_362, 0x60cb, 12),
            (808_741_824_682, 0x6b0d, 32),
            (808_742_000_440, 0x78c8, 40),
        ];
        let (low, high) = measure(&samples, (0, 0)).unwrap();
        assert!(low <= 50.0 && 50.0 <= high && high - low < 0.01, "{low} {high}");
    }
}
