//! Decoding a part of a recording: what one thread did in a time.
//!
//! ```text
//!   segments of a buffer   |----|----|----|----|----|----|
//!   the time asked for            <------->
//!   decoded                     |----|----|
//! ```
//! The segments are those that are decoded otherwise, so what they give is the same, to the last digit of a time.

use std::collections::BTreeMap;

use model::{AuxOwner, Cpu, Ns, Tid};

use crate::Context;
use crate::join::Timed;

/// What one thread did in a time, and some of what was around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The thread.
    pub tid: Tid,
    /// First instant.
    pub from: Ns,
    /// Last instant.
    pub to: Ns,
    /// So many segments more on either side: what happened before may tell what it means.
    pub around: usize,
}

impl Part {
    /// The segments of `group` that have it.
    pub(crate) fn of<'s>(&self, context: &Context<'_>, group: Vec<Timed<'s>>) -> Vec<Timed<'s>> {
        let cpus = self.cpus(context);
        let is_its = |owner: AuxOwner| match owner {
            AuxOwner::Thread(tid) => tid == self.tid,
            AuxOwner::Cpu(cpu) => cpus.is_empty() || cpus.contains(&cpu),
        };
        let mut starts: BTreeMap<usize, Vec<Ns>> = BTreeMap::new();
        for timed in &group {
            starts.entry(timed.segment.buffer).or_default().push(timed.start);
        }
        let wanted = |(buffer, starts): (usize, Vec<Ns>)| {
            let owner = context.recording.buffers.get(buffer).map(|buffer| buffer.owner);
            let first = starts.partition_point(|start| *start < self.from).saturating_sub(1 + self.around);
            let end = starts.partition_point(|start| *start <= self.to).saturating_add(self.around);
            (buffer, if owner.is_some_and(is_its) { first..end } else { 0..0 })
        };
        let wanted: BTreeMap<usize, _> = starts.into_iter().map(wanted).collect();
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        let has = |mut timed: Timed<'s>| {
            let wanted = wanted.get(&timed.segment.buffer)?;
            let number = seen.entry(timed.segment.buffer).or_default();
            // Nothing before it is there to say what runs where it begins.
            timed.segment.first |= *number == wanted.start;
            let is_wanted = wanted.contains(number);
            *number += 1;
            is_wanted.then_some(timed)
        };
        group.into_iter().filter_map(has).collect()
    }

    /// The CPUs that the thread ran on; none: it is not known.
    fn cpus(&self, context: &Context<'_>) -> Vec<Cpu> {
        let runs = context.schedule.thread(self.tid).map_or(&[][..], |life| &life.on_cpu);
        let first = runs.partition_point(|(from, _)| *from <= self.from).saturating_sub(1);
        let during = runs.get(first..).unwrap_or_default().iter().take_while(|(from, _)| *from <= self.to);
        during.map(|(_, cpu)| *cpu).collect()
    }
}
