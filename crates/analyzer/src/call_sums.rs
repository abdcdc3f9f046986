//! The sums of the calls of one interval: those of all intervals add up to those of the recording.

use std::collections::BTreeMap;

use model::FunctionId;

use crate::off_cpu_causes::ToldBy;
use crate::report::FunctionReport;
use crate::summary::{Summary, SummedFunction};
use crate::total::OffCpuKnown;

/// The sums of calls, by function.
#[derive(Clone, Default)]
pub struct CallSums(pub(crate) BTreeMap<FunctionId, SummedFunction>);

impl CallSums {
    pub(crate) fn new(functions: BTreeMap<FunctionId, SummedFunction>) -> Self {
        Self(functions)
    }

    /// Adds those of another interval, in any order.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.0, &other.0);
    }

    /// Adds them to the summary of what came after them in their recording.
    pub fn add_to(&self, summary: &mut Summary) {
        add(&mut summary.functions, &self.0);
    }

    /// The figures of each function, in the order in which they were asked for. Shares of a core are 0.
    /// `told_by`: the records that tell why calls were off the CPU.
    #[must_use]
    pub fn figures(&self, off_cpu_known: bool, told_by: Option<ToldBy>) -> Vec<FunctionReport> {
        let mut in_order: Vec<(&FunctionId, &SummedFunction)> = self.0.iter().collect();
        in_order.sort_by_key(|(id, function)| (function.position, **id));
        let off_cpu = OffCpuKnown(off_cpu_known);
        let figures = |(id, function): (&FunctionId, &SummedFunction)| {
            let figures = function.calls.clone().finish(*id, off_cpu, &mut |key| key, &|_| 0.0, None);
            let off_cpu_causes = told_by.map(|told_by| function.causes.clone().finish(told_by));
            FunctionReport { off_cpu_causes, ..figures }
        };
        in_order.into_iter().map(figures).collect()
    }
}

fn add(sums: &mut BTreeMap<FunctionId, SummedFunction>, others: &BTreeMap<FunctionId, SummedFunction>) {
    for (id, other) in others {
        match sums.get_mut(id) {
            Some(known) => known.merge(other),
            None => _ = sums.insert(*id, other.clone()),
        }
    }
}
