//! How the ends of each function's calls are seen: by rewritten return addresses, where that is safe, or by
//! probed instructions.

use std::ops::Range;
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use bpf::{BpfError, EndCosts, Ends, ProbePoints, Removal};

use super::functions::Candidate;
use super::unwinding::{Calls, Decision};
use crate::exit::{Exit, failure};
use crate::messages;
use crate::render::units::{counted, duration};

/// `10.2 us`, of a call of a function with such an entry.
fn call_cost(costs: &EndCosts, points: &ProbePoints, ends: Ends) -> String {
    duration(costs.with_ends(points, ends).call_ns)
}

/// Costs that are being measured.
pub(super) struct MeasuredCosts(JoinHandle<Result<(EndCosts, Removal), BpfError>>);

impl MeasuredCosts {
    /// Begins to measure what may be needed: it takes half a second, most of it waiting.
    pub(super) fn begin(ends: Option<Ends>) -> Self {
        Self(thread::spawn(move || EndCosts::measure(ends)))
    }

    /// The costs; the probes that measured them are being removed.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub(super) fn wait(self) -> Result<(EndCosts, Removal)> {
        let measured = self.0.join().map_err(|_| anyhow!("what a probe costs was not measured: a defect"))?;
        Ok(measured?)
    }
}

/// Decides for candidates, and says what of those that were asked for.
///
/// # Errors The code of one that was asked for cannot be divided into instructions, and its return address
/// may not be rewritten.
pub(super) fn settle(
    candidates: &mut [Candidate],
    of: Range<usize>,
    calls: &Calls<'_>,
    costs: &EndCosts,
    name: &dyn Fn(&Candidate) -> String,
) -> Result<()> {
    // Functions with the same message are named together.
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for index in of {
        let Some(candidate) = candidates.get_mut(index) else { continue };
        let Some(at_instructions) = candidate.at_instructions.take() else { continue };
        let decision = calls.decide(index, candidate);
        if let Decision::Probed(danger) = &decision {
            candidate.probed.points = at_instructions.map_err(|why| {
                let (name, danger, outcome) = (name(candidate), danger.why(), danger.outcome());
                let message = format!(
                    "{name} cannot be probed: {why}; its return address is not rewritten, as {danger} (--uretprobe does it: \
                     {outcome})"
                );
                failure(Exit::NotPossible, message)
            })?;
        }
        if !candidate.probed.is_child {
            let text = decision.text(&candidate.probed.points, costs);
            match said.iter_mut().find(|(other, _)| *other == text) {
                Some((_, names)) => names.push(name(candidate)),
                None => said.push((text, vec![name(candidate)])),
            }
        }
    }
    for (text, names) in said {
        messages::note(format!("{}: {text}", messages::list(&names)));
    }
    Ok(())
}

impl Decision {
    /// What is done, what it costs, and why.
    fn text(&self, points: &ProbePoints, costs: &EndCosts) -> String {
        let dear = call_cost(costs, points, Ends::AtInstructions);
        let cheap = call_cost(costs, points, Ends::ByReturnAddress);
        match self {
            Self::Rewritten { stacks } => {
                let why = match *stacks as u64 {
                    0 => "nothing that the process has mapped handles exceptions".to_owned(),
                    seen => format!(
                        "on {} nothing above handles exceptions (--no-uretprobe does without)",
                        counted(seen, "stack")
                    ),
                };
                format!("its return address is rewritten, {cheap} a call instead of {dear}: {why}")
            }
            Self::Probed(danger) => {
                let (why, outcome) = (danger.why(), danger.outcome());
                format!(
                    "`ret` is probed, {dear} a call, as {why}; --uretprobe would cost {cheap}, but {outcome}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bpf::{CodePart, Cost, Costs, FunctionCode};
    use model::{FileOffset, Svma};

    use super::super::unwinding::Danger;
    use super::*;

    #[test]
    fn what_is_done_is_said_with_what_the_other_way_costs() {
        let costs = |call_ns| {
            let cost = Cost { call_ns, ..Cost::default() };
            Costs { emulated: cost, stepped: cost }
        };
        let costs = EndCosts { at_instructions: costs(10_200), by_return_address: costs(1_700) };
        let part = CodePart { start: Svma(0), file_offset: FileOffset(0), bytes: &[0x55, 0x5d, 0xc3] };
        let code = FunctionCode { entry: Svma(0), parts: vec![part] };
        let points = ProbePoints::new(&code, Ends::AtInstructions).unwrap();
        let text = |decision: Decision| decision.text(&points, &costs);
        assert_eq!(
            text(Decision::Rewritten { stacks: 3 }),
            "its return address is rewritten, 1.70 us a call instead of 10.2 us: on 3 stacks nothing above handles exceptions \
             (--no-uretprobe does without)"
        );
        assert_eq!(
            text(Decision::Rewritten { stacks: 0 }),
            "its return address is rewritten, 1.70 us a call instead of 10.2 us: nothing that the process has mapped handles \
             exceptions"
        );
        assert_eq!(
            text(Decision::Probed(Danger::HandlersAbove("server".to_owned()))),
            "`ret` is probed, 10.2 us a call, as server, which stands above its calls, has exception handlers; --uretprobe would \
             cost 1.70 us, but an exception that is thrown through it ends the program"
        );
    }
}
