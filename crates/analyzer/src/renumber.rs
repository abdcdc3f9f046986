//! Gives the functions and objects of a summary other numbers: each recording numbers its own.

use model::{FunctionId, GapCause, ObjectId, Tid};
use rustc_hash::FxHashMap;

use crate::aggregate::FunctionSums;
use crate::call_row::CallRow;
use crate::children::{ChildKey, ChildSums};
use crate::figures::{CallerSums, FigureSums};
use crate::loss::LossLedger;
use crate::off_cpu_causes::CauseSums;
use crate::open_calls::OpenSums;
use crate::place::{CalledFrom, Caller, Place};
use crate::report::CauseLoss;
use crate::status::CutCause;
use crate::summary::{Summary, SummedFunction, SummedRecording};
use crate::total::RunningTotal;

/// Numbers of functions and objects in the place of others.
pub trait NewIds {
    /// The number of a function.
    fn function(&self, id: FunctionId) -> FunctionId;

    /// The number of an object.
    fn object(&self, id: ObjectId) -> ObjectId;

    /// A place, in its object's number.
    fn place(&self, place: Place) -> Place {
        Place { object: self.object(place.object), ..place }
    }

    /// Meets a thread; its number stays.
    fn thread(&self, _: Tid) {}
}

/// The sums by caller and site.
type ByCaller<T> = FxHashMap<CalledFrom, T>;

/// Numbers all that a summary has.
struct Renumbering<'i>(&'i dyn NewIds);

impl Renumbering<'_> {
    fn called_from(&self, from: CalledFrom) -> CalledFrom {
        let caller = match from.caller {
            Caller::Function { function, tail } => {
                Caller::Function { function: self.0.function(function), tail }
            }
            other @ (Caller::Signal | Caller::Interrupt | Caller::Unknown) => other,
        };
        CalledFrom { caller, site: from.site.map(|site| self.0.place(site)) }
    }

    fn key(&self, key: ChildKey) -> ChildKey {
        let site = key.site.map(|site| self.0.place(site));
        ChildKey { function: self.0.function(key.function), site, ..key }
    }

    fn cause(&self, cause: GapCause) -> GapCause {
        match cause {
            GapCause::MissingCode { object } => GapCause::MissingCode { object: self.0.object(object) },
            other => other,
        }
    }

    fn row(&self, row: &mut CallRow) {
        [Some(row.id.tid), row.pid.map(|pid| Tid(pid.0))]
            .into_iter()
            .flatten()
            .for_each(|tid| self.0.thread(tid));
        row.function = self.0.function(row.function);
        row.from = self.called_from(row.from);
        if let Some(cut) = &mut row.end.cut_by
            && let CutCause::Gap(cause) = &mut cut.cause
        {
            *cause = self.cause(*cause);
        }
    }

    fn by_caller<T: Default>(&self, all: ByCaller<T>, merge: impl Fn(&mut T, T)) -> ByCaller<T> {
        let mut renumbered = ByCaller::default();
        for (from, sums) in all {
            merge(renumbered.entry(self.called_from(from)).or_default(), sums);
        }
        renumbered
    }

    fn children(&self, children: &ChildSums<ChildKey>) -> ChildSums<ChildKey> {
        children.named(&mut |key| self.key(key))
    }

    fn figures(&self, figures: FigureSums<ChildKey>) -> FigureSums<ChildKey> {
        let renumber = |mut sums: CallerSums<ChildKey>| {
            sums.children = self.children(&sums.children);
            sums
        };
        let callers = self.by_caller(figures.callers, |all, sums| all.merge(&renumber(sums)));
        FigureSums { callers, ..figures }
    }

    fn open(&self, open: OpenSums<ChildKey>) -> OpenSums<ChildKey> {
        let mut open = open;
        open.children = self.children(&open.children);
        open.callers = self.by_caller(open.callers, |all: &mut RunningTotal, more| all.add(more));
        open.overfull.iter_mut().chain(&mut open.longest).for_each(|row| self.row(row));
        open
    }

    fn calls(&self, calls: FunctionSums<ChildKey>) -> FunctionSums<ChildKey> {
        let mut calls = calls;
        calls.alone = self.figures(calls.alone);
        calls.with_children = self.figures(calls.with_children);
        calls.open = self.open(calls.open);
        calls.overfull.iter_mut().for_each(|row| self.row(row));
        calls
    }

    fn loss(&self, loss: &mut CauseLoss) {
        loss.cause = self.cause(loss.cause);
    }
}

impl Summary {
    /// Gives functions and objects other numbers.
    #[must_use]
    pub fn renumbered(self, ids: &dyn NewIds) -> Self {
        let numbers = Renumbering(ids);
        self.map(
            |(id, function)| {
                let SummedFunction { calls, causes, .. } = function;
                let (calls, causes) =
                    (numbers.calls(calls), CauseSums::renumbered(causes, |id| ids.function(id)));
                (ids.function(id), SummedFunction { calls, causes, ..function })
            },
            |recording| {
                let SummedRecording { ledger, mut threads, .. } = recording;
                threads
                    .iter_mut()
                    .flat_map(|thread| &mut thread.by_cause)
                    .for_each(|loss| numbers.loss(loss));
                SummedRecording {
                    ledger: LossLedger::renumbered(ledger, |loss| numbers.loss(loss)),
                    threads,
                    ..recording
                }
            },
        )
    }
}
