//! The figures of two sets of runs, side by side.
//!
//! ```text
//!   several runs of each   a sample is a figure of a run
//!   one run of each        a sample is a figure of a block of calls that follow one another
//! ```
//! Calls that follow one another are alike (caches, load, what the program is doing), so that single calls
//! are no samples. Blocks tell what differs within two runs; how much runs differ by themselves, only runs.

use super::{Change, Figure, LEVEL, RunsSummary, TooFew};

/// Blocks of each run: the number that [`crate::ledger::Shift`] has.
const BLOCKS: usize = 16;

/// What the figures are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplesOf {
    /// Runs of a program.
    Runs,
    /// Blocks of calls of one run.
    Blocks,
}

/// A figure in one of the sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureOfSet {
    /// The mean of its runs, or the figure of all calls of its one run, in ns.
    pub value_ns: f64,
    /// Standard deviation of the samples.  `None`: there are fewer than two.
    pub deviation_ns: Option<f64>,
    /// How many samples.
    pub samples: usize,
}

/// Why there is no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The number of runs of each that are needed.
    Runs(usize),
    /// The number of calls of each that are needed: in each run, where there are several.
    Calls(usize),
    /// Both have samples of 0 ns: their ratio says nothing, as times below their error may be 0.
    Ratio,
}

/// A figure in both sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureChange {
    /// Which.
    pub figure: Figure,
    /// A, the base of the comparison.  `None`, here and below: there are too few calls.
    pub base: Option<FigureOfSet>,
    /// B.
    pub these: Option<FigureOfSet>,
    /// By which factor it is larger in B; all intervals of a comparison hold together with [`LEVEL`].
    pub change: Result<Change, Missing>,
}

/// What is said of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureVerdict {
    /// B takes longer.
    Slower,
    /// B takes less time.
    Faster,
    /// It may be chance.
    MayBeChance,
    /// There are too few runs or calls to tell.
    TooFew,
    /// Both have times of 0 ns.
    NoRatio,
}

impl FigureChange {
    /// What is said of it.
    #[must_use]
    pub fn verdict(&self) -> FigureVerdict {
        match &self.change {
            Err(Missing::Ratio) => FigureVerdict::NoRatio,
            Err(Missing::Runs(_) | Missing::Calls(_)) => FigureVerdict::TooFew,
            Ok(change) if change.is_more() => FigureVerdict::Slower,
            Ok(change) if change.is_less() => FigureVerdict::Faster,
            Ok(_) => FigureVerdict::MayBeChance,
        }
    }

    /// B takes longer by more than `percent`, for certain.
    #[must_use]
    pub fn is_slower_by(&self, percent: f64) -> bool {
        self.change.is_ok_and(|change| change.low > 1.0 + percent / 100.0)
    }
}

/// Two sets of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunsComparison {
    /// What a sample is.
    pub samples: SamplesOf,
    /// Each of [`Figure::ALL`].
    pub figures: Vec<FigureChange>,
}

impl RunsComparison {
    /// Of runs, each the latencies of its calls in the order of their starts; without calls there are no
    /// figures.
    #[must_use]
    pub fn of(these: &[&[u64]], base: &[&[u64]]) -> Self {
        let (samples, sampled): (_, [&dyn Sampled; 2]) = match (these, base) {
            ([these], [base]) => (SamplesOf::Blocks, [these, base]),
            _ => (SamplesOf::Runs, [&these, &base]),
        };
        let figures = Figure::ALL.map(|figure| change(figure, sampled));
        Self { samples, figures: figures.to_vec() }
    }

    /// One of its figures.
    #[must_use]
    pub fn figure(&self, figure: Figure) -> Option<&FigureChange> {
        self.figures.iter().find(|change| change.figure == figure)
    }
}

/// A set of runs that gives samples of a figure.
trait Sampled {
    /// The samples.
    ///
    /// # Errors
    /// There are too few calls.
    fn samples(&self, figure: Figure) -> Result<Vec<f64>, Missing>;

    /// The figure of the set.
    fn value(&self, figure: Figure) -> Option<f64>;

    /// What is missing where there are too few samples.
    fn missing(&self, figure: Figure, samples: usize) -> Missing;
}

/// Runs.
impl Sampled for &[&[u64]] {
    fn samples(&self, figure: Figure) -> Result<Vec<f64>, Missing> {
        let samples = self.iter().map(|run| figure.of_latencies(run));
        samples.collect::<Option<_>>().ok_or(Missing::Calls(figure.least_calls()))
    }

    fn value(&self, figure: Figure) -> Option<f64> {
        RunsSummary::of(&self.samples(figure).ok()?).map(|summary| summary.mean)
    }

    fn missing(&self, _: Figure, samples: usize) -> Missing {
        Missing::Runs(samples)
    }
}

/// One run, which is cut into blocks that have enough calls for the figure.
impl Sampled for &[u64] {
    fn samples(&self, figure: Figure) -> Result<Vec<f64>, Missing> {
        let blocks = (self.len() / figure.least_calls()).min(BLOCKS);
        let start = |block: usize| block * self.len() / blocks.max(1);
        let block = |block: usize| self.get(start(block)..start(block + 1)).unwrap_or_default();
        Ok((0..blocks).filter_map(|number| figure.of_latencies(block(number))).collect())
    }

    fn value(&self, figure: Figure) -> Option<f64> {
        figure.of_latencies(self)
    }

    fn missing(&self, figure: Figure, samples: usize) -> Missing {
        Missing::Calls(samples * figure.least_calls())
    }
}

fn change(figure: Figure, [these, base]: [&dyn Sampled; 2]) -> FigureChange {
    let samples = [these, base].map(|set| set.samples(figure));
    let of_set = |set: &dyn Sampled, samples: &Result<Vec<f64>, Missing>| {
        let samples = samples.as_deref().unwrap_or_default();
        let deviation_ns = RunsSummary::of(samples).and_then(|summary| summary.deviation);
        let value_ns = set.value(figure)?;
        Some(FigureOfSet { value_ns, deviation_ns, samples: samples.len() })
    };
    let [of_these, of_base] = [(these, &samples[0]), (base, &samples[1])].map(|(set, s)| of_set(set, s));
    let change = match samples {
        [Ok(these_samples), Ok(base_samples)] => {
            let each = LEVEL / Figure::ALL.len() as f64;
            let change = Change::of(&these_samples, &base_samples, each);
            let have_zeros = [&these_samples, &base_samples].map(|samples| samples.contains(&0.0));
            match change {
                Err(TooFew { needed }) => Err(these.missing(figure, needed)),
                Ok(_) if have_zeros == [true; 2] => Err(Missing::Ratio),
                Ok(change) => Ok(change),
            }
        }
        [Err(missing), _] | [_, Err(missing)] => Err(missing),
    };
    FigureChange { figure, base: of_base, these: of_these, change }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::Dice;
    use super::*;

    /// Calls around a median, of which one in fifty takes up to a hundred times as long.
    fn calls(dice: &mut Dice, count: usize, median: f64) -> Vec<u64> {
        let mut call = || {
            let rare = if dice.uniform() < 0.02 { 1.0 + 100.0 * dice.uniform() } else { 1.0 };
            (median * rare * (1.0 + 0.1 * dice.normal())).max(1.0) as u64
        };
        (0..count).map(|_| call()).collect()
    }

    fn verdicts(comparison: &RunsComparison) -> Vec<FigureVerdict> {
        comparison.figures.iter().map(FigureChange::verdict).collect()
    }

    /// Outliers rule the mean: it tells nothing of 20 ns.
    #[test]
    fn a_median_of_133_and_one_of_153_are_told_apart() {
        let mut dice = Dice(1);
        for _ in 0..20 {
            let (a, b) = (calls(&mut dice, 2000, 133.0), calls(&mut dice, 2000, 153.0));
            let comparison = RunsComparison::of(&[&b], &[&a]);
            let median = comparison.figure(Figure::P50).unwrap();
            assert_eq!((comparison.samples, median.verdict()), (SamplesOf::Blocks, FigureVerdict::Slower));
            let change = median.change.unwrap();
            assert!(change.low > 1.12 && change.high < 1.18, "{change:?}");
            assert!(median.is_slower_by(10.0) && !median.is_slower_by(16.0));
            assert_eq!(comparison.figures[0].verdict(), FigureVerdict::MayBeChance, "{comparison:?}");
            let p999 = comparison.figure(Figure::P999).unwrap();
            assert_eq!(p999.change, Err(Missing::Calls(7000)));
        }
    }

    #[test]
    fn the_same_program_twice_differs_in_nothing() {
        let mut dice = Dice(2);
        let differs = |_: &u32| {
            let (a, b) = (calls(&mut dice, 2000, 133.0), calls(&mut dice, 2000, 133.0));
            let verdicts = verdicts(&RunsComparison::of(&[&b], &[&a]));
            verdicts.iter().any(|verdict| matches!(verdict, FigureVerdict::Slower | FigureVerdict::Faster))
        };
        assert!((0..200).filter(differs).count() <= 2, "1 % is the level");
    }

    fn runs(dice: &mut Dice, median: f64) -> Vec<Vec<u64>> {
        let medians = dice.runs(10, median, 0.015);
        medians.into_iter().map(|median| calls(dice, 300, median)).collect()
    }

    fn of_runs(these: &[Vec<u64>], base: &[Vec<u64>]) -> RunsComparison {
        let [these, base] = [these, base].map(|runs| runs.iter().map(Vec::as_slice).collect::<Vec<&[u64]>>());
        RunsComparison::of(&these, &base)
    }

    /// What must hold of `compare -r 10`: runs differ by 1.5 % by themselves, calls by 10 %, with outliers.
    #[test]
    fn ten_runs_find_five_percent_and_nothing_in_the_same() {
        let mut dice = Dice(4);
        let mut compared = |slower: f64| {
            let (a, b) = (runs(&mut dice, 1000.0), runs(&mut dice, 1000.0 * slower));
            verdicts(&of_runs(&b, &a))
        };
        let is_alarm =
            |verdict: &FigureVerdict| matches!(verdict, FigureVerdict::Slower | FigureVerdict::Faster);
        let alarms = (0..100).filter(|_| compared(1.0).iter().any(is_alarm)).count();
        let found = (0..100).filter(|_| compared(1.05)[1] == FigureVerdict::Slower).count();
        assert!(alarms <= 1 && found >= 90, "{alarms} false alarms, {found} found");
    }

    /// Probes that cost more than a call leave times of 0 ns: two of them are no proof that nothing changed.
    #[test]
    fn times_of_zero_have_no_ratio() {
        let zeros = vec![vec![0; 100]; 10];
        let comparison = of_runs(&zeros, &zeros);
        let median = comparison.figure(Figure::P50).unwrap();
        assert_eq!((median.change, median.verdict()), (Err(Missing::Ratio), FigureVerdict::NoRatio));
        let slower = of_runs(&vec![vec![500; 100]; 10], &zeros);
        assert_eq!(
            slower.figure(Figure::P50).unwrap().verdict(),
            FigureVerdict::Slower,
            "no order is by chance"
        );
    }

    #[test]
    fn what_there_is_too_little_of_is_said() {
        let run = |calls: u64| (0..calls).map(|ns| 1000 + ns % 10).collect::<Vec<u64>>();
        let (few, many) = (vec![run(500); 3], vec![run(500); 10]);
        let comparison = of_runs(&few, &many);
        let change = |figure| comparison.figure(figure).unwrap().change;
        assert_eq!(comparison.samples, SamplesOf::Runs);
        assert_eq!(change(Figure::P50), Err(Missing::Runs(4)), "3 of 13: 286 ways; 4 of 14: 1001");
        assert_eq!(change(Figure::P999), Err(Missing::Calls(1000)));
        let none = RunsComparison::of(&[&[]], &[&[1]]);
        let of_none = none.figure(Figure::P50).unwrap();
        assert_eq!((of_none.these, of_none.change), (None, Err(Missing::Calls(7))));
        assert_eq!(of_none.base.map(|base| (base.value_ns, base.samples)), Some((1.0, 1)));
    }
}
