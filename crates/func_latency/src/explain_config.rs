//! What `explain`, `modes`, `annotate` and `diff` do, resolved and checked.

use std::path::PathBuf;

use analyzer::LatencyRange;
use analyzer::ledger::{Groups, Slow};
use anyhow::Result;

use crate::args::{AnnotateArgs, CallsArgs, ExplainArgs, Format, ModesArgs};
use crate::config::{CallsConfig, NO_FUNCTION, input_path};
use crate::exit::{Exit, failure};
use crate::filter::{CallNumber, NsRange, Percentile};
use crate::render::compare::FailAbove;
use crate::render::units::grouped;

/// What `explain` does.
#[derive(Clone, Debug)]
pub(crate) struct ExplainConfig {
    /// Which function, of which recording.
    pub(crate) calls: CallsConfig,
    /// Which of its calls are slow.
    pub(crate) slow: SlowCalls,
    /// Form of the explanation.
    pub(crate) format: Format,
}

/// Which calls are to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowCalls {
    /// From this percentile on.
    From(Percentile),
    /// Of this latency.
    Of(NsRange),
    /// One.
    One(CallNumber),
}

impl ExplainConfig {
    /// Of `explain`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: ExplainArgs) -> Result<Self> {
        let ExplainArgs { id, input, slow, calls, format } = args;
        let slow = match (id, calls.li) {
            (Some(id), _) => SlowCalls::One(id),
            (None, Some(latency_ns)) => SlowCalls::Of(latency_ns),
            (None, None) => slow.map_or(SlowCalls::USUAL, SlowCalls::From),
        };
        // It says which calls are slow, not which are looked at.
        let calls = CallsArgs { li: None, ..calls };
        let input = input.unwrap_or_else(|| PathBuf::from("perf.data"));
        Ok(Self { calls: of_function(input, calls)?, slow, format })
    }
}

impl SlowCalls {
    /// One call is to be explained, whatever the others are.
    pub(crate) fn is_one_call(self) -> bool {
        matches!(self, Self::One(_))
    }

    /// The choice that divides calls.
    pub(crate) fn choice(self) -> Slow {
        match self {
            Self::From(percentile) => Slow::Percentile(percentile.0),
            Self::Of(range) => Slow::Latency(LatencyRange { min_ns: range.min, max_ns: range.max }),
            Self::One(call) => Slow::Call(call.0),
        }
    }

    /// What makes these calls the slow ones, in words.
    pub(crate) fn in_words(self, groups: &Groups) -> String {
        match self {
            Self::From(percentile) => {
                let least = groups.slow.last().map_or(0, |row| row.latency_ns);
                format!("{percentile}: {} ns or more", grouped(least))
            }
            Self::Of(range) => format!("of {range}"),
            Self::One(call) => format!("id {}", call.0),
        }
    }

    /// Those that are explained if nothing is said.
    pub(crate) const USUAL: Self = Self::From(Percentile(990));
}

/// What `modes` does.
#[derive(Clone, Debug)]
pub(crate) struct ModesConfig {
    /// Which function, of which recording.
    pub(crate) calls: CallsConfig,
    /// Form of the list.
    pub(crate) format: Format,
}

impl ModesConfig {
    /// Of `modes`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: ModesArgs) -> Result<Self> {
        Ok(Self { calls: of_function(input_path(args.input), args.calls)?, format: args.format })
    }
}

/// What `annotate` does.
#[derive(Clone, Debug)]
pub(crate) struct AnnotateConfig {
    /// Which function, of which recording.
    pub(crate) calls: CallsConfig,
    /// The slow calls, which are set beside typical ones.
    pub(crate) slow: Option<Percentile>,
    /// Where source files are.
    pub(crate) source: Option<PathBuf>,
    /// List instructions, not lines.
    pub(crate) instructions: bool,
    /// Form of the listing.
    pub(crate) format: Format,
}

impl AnnotateConfig {
    /// Of `annotate`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: AnnotateArgs) -> Result<Self> {
        let AnnotateArgs { input, slow, source, instructions, calls, format } = args;
        if let Some(missing) = source.as_ref().filter(|source| !source.is_dir()) {
            let message = format!("--source {}: no such directory", missing.display());
            return Err(failure(Exit::Usage, message));
        }
        Ok(Self { calls: of_function(input_path(input), calls)?, slow, source, instructions, format })
    }
}

/// What `diff` does with two recordings.
#[derive(Clone, Debug)]
pub(crate) struct DiffConfig {
    /// Which function, of the recording that the other one is compared with.
    pub(crate) base: CallsConfig,
    /// Which function, of the other recording.
    pub(crate) these: CallsConfig,
    /// Form of the comparison.
    pub(crate) format: Format,
    /// What makes it fail.
    pub(crate) fail_above: Option<FailAbove>,
}

impl DiffConfig {
    /// Of `diff`'s arguments: A and B.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(
        [base, these]: [PathBuf; 2],
        calls: &CallsArgs,
        format: Format,
        fail_above: Option<FailAbove>,
    ) -> Result<Self> {
        let (base, these) = (of_function(base, calls.clone())?, of_function(these, calls.clone())?);
        Ok(Self { base, these, format, fail_above })
    }
}

/// A function must be named.
fn of_function(input: PathBuf, calls: CallsArgs) -> Result<CallsConfig> {
    if calls.names_nothing() {
        return Err(failure(Exit::Usage, NO_FUNCTION));
    }
    CallsConfig::new(input, calls)
}
