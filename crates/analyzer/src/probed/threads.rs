//! Threads that were probed, and what was lost of them.

use std::collections::BTreeMap;

use model::schedule::ThreadLife;
use model::{AuxOffset, EventTime, Gap, GapCause, LostCalls, Ns, ProbedThread, Tid};

use crate::loss::LossLedger;
use crate::report::ThreadLoss;
use crate::row_sink::RowGap;
use crate::window::ThreadWindow;

/// Losses of a thread that are kept apart; of more, those are joined with the least time between them.
pub(super) const LOSSES_MAX: usize = 1 << 12;

#[derive(Default)]
pub(super) struct ProbedThreads {
    /// When each was born and died, if that was seen.
    lives: BTreeMap<Tid, (Option<Ns>, Option<Ns>)>,
    pub(super) lost: BTreeMap<Tid, Vec<LostCalls>>,
    /// Of the time that was lost, what [`Self::take_lost_ns`] has not told.
    newly_lost_ns: u64,
}

impl ProbedThreads {
    /// These are known to have lived at the begin.
    pub(super) fn of(threads: &[Tid]) -> Self {
        Self { lives: threads.iter().map(|tid| (*tid, (None, None))).collect(), ..Self::default() }
    }

    /// The thread was seen.
    pub(super) fn meet(&mut self, tid: Tid) {
        self.lives.entry(tid).or_default();
    }

    pub(super) fn lives(&mut self, thread: &ProbedThread) {
        self.lives.insert(thread.tid, (Some(thread.born), thread.died));
    }

    pub(super) fn lose(&mut self, lost: &LostCalls) {
        self.meet(lost.tid);
        self.newly_lost_ns = self.newly_lost_ns.saturating_add(lost.to.since(lost.from));
        let of_thread = self.lost.entry(lost.tid).or_default();
        of_thread.push(*lost);
        if of_thread.len() > LOSSES_MAX {
            join_nearest(of_thread);
        }
    }

    /// Time in which calls were lost since it was asked last, added up over threads.
    pub(super) fn take_lost_ns(&mut self) -> u64 {
        std::mem::take(&mut self.newly_lost_ns)
    }

    /// What was lost in a window of each thread, in their order, and the gaps.
    pub(super) fn losses(&self, window: (Ns, Ns), ledger: &mut LossLedger) -> (Vec<ThreadLoss>, Vec<RowGap>) {
        let mut gaps = Vec::new();
        let threads = self.lives.iter().map(|(tid, &(born, died))| {
            let life = ThreadLife { born, died, ..ThreadLife::default() };
            let mut thread = ThreadWindow::new(Some(&life), window, false);
            for lost in self.lost.get(tid).into_iter().flatten() {
                let gap = Gap {
                    from: EventTime::exact(lost.from.max(window.0)),
                    to: EventTime::exact(lost.to.max(window.0)),
                    bytes: 0,
                    at: AuxOffset(0),
                    cause: GapCause::FullRing,
                };
                let lost_ns = thread.gap(&gap);
                ledger.add_many(lost.count, *tid, None, &gap, lost_ns);
                gaps.push(RowGap { tid: Some(*tid), cpu: None, gap, lost_ns });
            }
            thread.finish(*tid)
        });
        (threads.collect(), gaps)
    }
}

/// Joins the two losses with the least time between them, which counts as lost then.
fn join_nearest(losses: &mut Vec<LostCalls>) {
    let between = |at: &usize| match losses.get(*at..at + 2) {
        Some([one, next]) => next.from.since(one.to),
        _ => u64::MAX,
    };
    let Some(at) = (0..losses.len().saturating_sub(1)).min_by_key(between) else { return };
    let next = losses.remove(at + 1);
    losses.get_mut(at).into_iter().for_each(|one| *one = one.joined(&next));
}
