//! What calls are timed for: the figures of a report, or the hits of triggers of another backend.

use anyhow::Result;
use image::Image;

use super::turns::Rounds;
use crate::config::CallsConfig;
use crate::exit::{Exit, failure};
use crate::target::{self, Remarks, Wanted};

/// What calls are timed for.
#[derive(Clone, Copy)]
pub(crate) struct TimedFor<'a> {
    /// How often children are probed.
    pub(super) rounds: Rounds,
    /// Looked at all the time: true ends the window.
    pub(super) is_over: &'a (dyn Fn() -> bool + 'a),
    /// What follows them; `None`: figures do.
    pub(super) triggers: Option<ProbedTriggers<'a>>,
}

/// Triggers that probes look for. No children are probed, and nothing is reported.
#[derive(Clone, Copy)]
pub(crate) struct ProbedTriggers<'a> {
    /// Functions of which each entry is told, after those that are timed.
    pub(crate) on: &'a [String],
}

impl<'a> TimedFor<'a> {
    /// A report, and what is told on the way to it.
    pub(crate) fn figures(rounds: Rounds, is_over: &'a (dyn Fn() -> bool + 'a)) -> Self {
        Self { rounds, is_over, triggers: None }
    }

    /// Hits.
    pub(crate) fn triggers(triggers: ProbedTriggers<'a>, is_over: &'a (dyn Fn() -> bool + 'a)) -> Self {
        Self { rounds: Rounds::Always, is_over, triggers: Some(triggers) }
    }

    /// What it means that probes were removed because they cost too much.
    pub(super) const fn without(&self) -> &'static str {
        match self.triggers {
            Some(_) => "they were removed, and --over and --on see no more calls",
            None => "nothing more was recorded",
        }
    }
}

impl ProbedTriggers<'_> {
    /// The functions of which entries are told.
    ///
    /// # Errors
    /// One is not found, or is timed, too: its entries and its ends would need two probes at one place.
    pub(super) fn entered(
        &self,
        image: &Image,
        calls: &CallsConfig,
        timed: &[Wanted],
    ) -> Result<Vec<Wanted>> {
        let of = CallsConfig {
            functions: self.on.to_vec(),
            regions: Vec::new(),
            candidate: None,
            ancestor: None,
            ..calls.clone()
        };
        let on = target::wanted(image, &of, Remarks::Now)?;
        let is_timed = |on: &&Wanted| timed.iter().any(|timed| timed.function.id == on.function.id);
        match on.iter().find(is_timed) {
            None => Ok(on),
            Some(Wanted { function }) => {
                let message = format!(
                    "{}: its calls are timed for --over, and --on would capture each of them: leave out one of the two",
                    function.name
                );
                Err(failure(Exit::Usage, message))
            }
        }
    }
}
