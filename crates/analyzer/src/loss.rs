//! What was lost: by thread, by CPU and by cause, from one ledger, so that all of it adds up.

use std::collections::BTreeMap;

use model::{Cpu, Gap, GapCause, ObjectId, Tid};
use serde::{Deserialize, Serialize};

use crate::report::{CauseLoss, CpuLoss, GapPlace, Loss, ThreadLoss, Untimed};
use crate::sorted_pairs;
use crate::status::{Cut, CutCause};

/// A cause in the order of tables, and the object with the missing code, if that is the cause.
type Cause = (u8, Option<ObjectId>);

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct LossLedger {
    /// The gaps by thread (`None`: not known), CPU and cause.
    #[serde(with = "sorted_pairs")]
    sums: BTreeMap<(Option<Tid>, Option<Cpu>, Cause), CauseLoss>,
    untimed: Untimed,
    /// OVF packets: some are inside of gaps of other causes, and one may be a gap of several threads.
    pub(crate) overflows: u64,
}

impl LossLedger {
    /// Adds a gap; `lost_ns`: its time that no earlier gap of the thread covers.
    pub(crate) fn add(&mut self, tid: Tid, cpu: Option<Cpu>, gap: &Gap, lost_ns: u64) {
        self.add_many(1, tid, cpu, gap, lost_ns);
    }

    /// Adds `count` gaps; only the time of all together is known.
    pub(crate) fn add_many(&mut self, count: u64, tid: Tid, cpu: Option<Cpu>, gap: &Gap, lost_ns: u64) {
        let key = (Some(tid).filter(|tid| tid.0 > 0), cpu, key(gap.cause));
        if key.0.is_none() || gap.to.point <= gap.from.point {
            self.untimed.count += count;
            self.untimed.bytes = self.untimed.bytes.saturating_add(gap.bytes);
        }
        let loss = CauseLoss {
            cause: gap.cause,
            count,
            bytes: gap.bytes,
            lost_ns,
            calls: 0,
            first: GapPlace { time: gap.from.point, tid, at: gap.at },
        };
        self.sums.entry(key).and_modify(|sum| sum.add(&loss)).or_insert(loss);
    }

    /// A gap has cut a call that is reported.
    pub(crate) fn add_cut(&mut self, tid: Tid, cut: Cut) {
        if let CutCause::Gap(cause) = cut.cause
            && let Some(sum) = self.sums.get_mut(&(Some(tid), cut.cpu, key(cause)))
        {
            sum.calls += 1;
        }
    }

    /// The time that is lost, of all threads.
    pub(crate) fn lost_ns(&self) -> u64 {
        self.sums.values().map(|loss| loss.lost_ns).fold(0, u64::saturating_add)
    }

    /// Changes each loss, and joins those that are of one cause then.
    pub(crate) fn renumbered(self, change: impl Fn(&mut CauseLoss)) -> Self {
        let mut sums: BTreeMap<_, CauseLoss> = BTreeMap::new();
        for ((tid, cpu, _), mut loss) in self.sums {
            change(&mut loss);
            sums.entry((tid, cpu, key(loss.cause))).and_modify(|sum| sum.add(&loss)).or_insert(loss);
        }
        Self { sums, ..self }
    }

    pub(crate) fn finish(self, mut threads: Vec<ThreadLoss>) -> Loss {
        let count = |is_counted: fn(GapCause) -> bool| {
            let of = self.sums.values().filter(|sum| is_counted(sum.cause));
            of.map(|sum| sum.count).fold(0, u64::saturating_add)
        };
        let total = |of: fn(&ThreadLoss) -> u64| threads.iter().map(|t| u128::from(of(t))).sum::<u128>();
        let (window, observed, lost) =
            (total(|t| t.window_ns), total(|t| t.observed_ns), total(|t| t.lost_ns));
        let truncated = count(|cause| cause == GapCause::Truncated);
        let errors = count(GapCause::is_decoding_error);
        for thread in &mut threads {
            thread.by_cause = self.by_cause(|tid, _| tid == Some(thread.tid));
        }
        let mut cpus: Vec<Option<Cpu>> = self.sums.keys().map(|(_, cpu, _)| *cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let of_cpu = |cpu| CpuLoss { cpu, by_cause: self.by_cause(|_, on| on == cpu) };
        Loss {
            overflows: self.overflows,
            truncated,
            errors,
            lost_ns: u64::try_from(lost).unwrap_or(u64::MAX),
            coverage: coverage(window, observed, self.sums.is_empty()),
            by_cause: self.by_cause(|_, _| true),
            unowned: self.by_cause(|tid, _| tid.is_none()),
            cpus: cpus.into_iter().map(of_cpu).collect(),
            threads,
            untimed: self.untimed,
        }
    }

    /// The sums of what `of` takes.
    fn by_cause(&self, of: impl Fn(Option<Tid>, Option<Cpu>) -> bool) -> Vec<CauseLoss> {
        by_cause(self.sums.iter().filter(|((tid, cpu, _), _)| of(*tid, *cpu)).map(|(_, loss)| loss))
    }
}

/// Losses by cause, in order of causes.
fn by_cause<'l>(losses: impl Iterator<Item = &'l CauseLoss>) -> Vec<CauseLoss> {
    let mut sums: BTreeMap<Cause, CauseLoss> = BTreeMap::new();
    for loss in losses {
        sums.entry(key(loss.cause)).and_modify(|sum| sum.add(loss)).or_insert(*loss);
    }
    sums.into_values().collect()
}

fn coverage(window_ns: u128, observed_ns: u128, has_no_gap: bool) -> f64 {
    match (window_ns, has_no_gap) {
        (0, true) => 1.0,
        (0, false) => 0.0, // all trace there is, if any, is lost
        _ => observed_ns as f64 / window_ns as f64,
    }
}

/// The losses of several recordings: the sums of all, and threads and CPUs one beside the other, for those of
/// one number are not the same.
pub(crate) fn of_all(losses: Vec<Loss>) -> Loss {
    let number = |of: fn(&Loss) -> u64| losses.iter().map(of).fold(0, u64::saturating_add);
    let (overflows, truncated, errors) =
        (number(|l| l.overflows), number(|l| l.truncated), number(|l| l.errors));
    let untimed = Untimed { count: number(|l| l.untimed.count), bytes: number(|l| l.untimed.bytes) };
    let (lost_ns, all) = (number(|l| l.lost_ns), by_cause(losses.iter().flat_map(|l| &l.by_cause)));
    let unowned = by_cause(losses.iter().flat_map(|l| &l.unowned));
    let threads: Vec<ThreadLoss> = losses.iter().flat_map(|l| l.threads.iter().cloned()).collect();
    let sum = |of: fn(&ThreadLoss) -> u64| threads.iter().map(|thread| u128::from(of(thread))).sum();
    Loss {
        coverage: coverage(sum(|t| t.window_ns), sum(|t| t.observed_ns), all.is_empty()),
        cpus: losses.into_iter().flat_map(|loss| loss.cpus).collect(),
        overflows,
        truncated,
        errors,
        lost_ns,
        by_cause: all,
        threads,
        unowned,
        untimed,
    }
}

impl CauseLoss {
    /// `other` is of the same cause.
    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.lost_ns = self.lost_ns.saturating_add(other.lost_ns);
        self.calls = self.calls.saturating_add(other.calls);
        if other.first < self.first {
            (self.first, self.cause) = (other.first, other.cause);
        }
    }
}

fn key(cause: GapCause) -> Cause {
    let object = if let GapCause::MissingCode { object } = cause { Some(object) } else { None };
    (order(cause), object)
}

/// Order of causes in tables: as they are declared.
const fn order(cause: GapCause) -> u8 {
    match cause {
        GapCause::Overflow => 0,
        GapCause::Truncated => 1,
        GapCause::DamagedPacket => 2,
        GapCause::Desync { .. } => 3,
        GapCause::MissingCode { .. } => 4,
        GapCause::UnmappedCode { .. } => 5,
        GapCause::NarrowCode { .. } => 6,
        GapCause::UnknownInstruction { .. } => 7,
        GapCause::Guest => 8,
        GapCause::UnknownThread => 9,
        GapCause::NoSync => 10,
        GapCause::NotYetAttached => 11,
        GapCause::UntracedCpu => 12,
        GapCause::BetweenSnapshots => 13,
        GapCause::NotDecoded => 14,
        GapCause::FullRing => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{AuxOffset, EventTime, Ns};

    fn gap(from: u64, cause: GapCause) -> Gap {
        let time = |ns| EventTime::exact(Ns(ns));
        Gap { from: time(from), to: time(from + 5), bytes: 3, at: AuxOffset(from), cause }
    }

    fn thread(tid: i32, lost_ns: u64) -> ThreadLoss {
        let (window_ns, observed_ns) = (100, 100 - lost_ns);
        ThreadLoss { tid: Tid(tid), window_ns, observed_ns, lost_ns, outside_ns: None, by_cause: vec![] }
    }

    #[test]
    fn one_ledger_has_the_sums_by_cause_by_thread_and_by_cpu() {
        let mut ledger = LossLedger { overflows: 3, ..LossLedger::default() };
        let missing = |object| GapCause::MissingCode { object: ObjectId(object) };
        let desync = |ip| GapCause::Desync { ip: model::Avma(ip) };
        let gaps = [
            (1, Some(Cpu(0)), 40, missing(2)),
            (1, Some(Cpu(0)), 20, GapCause::Overflow),
            (2, Some(Cpu(1)), 10, missing(1)),
            (2, Some(Cpu(0)), 30, missing(2)),
            (1, None, 50, desync(7)),
            (1, None, 60, desync(8)),
            (-1, None, 70, GapCause::NoSync),
            (2, Some(Cpu(1)), 80, GapCause::NarrowCode { ip: model::Avma(9) }),
        ];
        for (tid, cpu, from, cause) in gaps {
            ledger.add(Tid(tid), cpu, &gap(from, cause), if tid > 0 { 5 } else { 0 });
        }
        ledger.add_cut(Tid(2), Cut { cause: CutCause::Gap(missing(2)), cpu: Some(Cpu(0)) });
        ledger.add_cut(Tid(2), Cut { cause: CutCause::StackSwitch, cpu: Some(Cpu(0)) });
        let loss = ledger.finish(vec![thread(1, 20), thread(2, 15)]);
        assert_eq!((loss.overflows, loss.truncated, loss.errors, loss.lost_ns), (3, 0, 6, 35));
        assert_eq!(loss.coverage, 0.825);
        assert_eq!(loss.percent(), 17.5);
        let one_percent = LossLedger::default().finish(vec![thread(1, 1)]);
        assert_eq!((one_percent.percent(), 100.0 * (1.0 - one_percent.coverage) > 1.0), (1.0, true));
        assert_eq!(loss.untimed, Untimed { count: 1, bytes: 3 });
        let text = |rows: &[CauseLoss]| {
            let row = |c: &CauseLoss| {
                let object = c.object().map_or(String::new(), |object| format!(" {}", object.0));
                let first = (c.first.time.0, c.first.tid.0, c.first.at.0);
                format!(
                    "{}{object} x{} {} B {} ns {} calls {first:?}",
                    c.cause.name(),
                    c.count,
                    c.bytes,
                    c.lost_ns,
                    c.calls
                )
            };
            rows.iter().map(row).collect::<Vec<_>>()
        };
        let expect = [
            "overflow x1 3 B 5 ns 0 calls (20, 1, 20)",
            "desync x2 6 B 10 ns 0 calls (50, 1, 50)",
            "missing code 1 x1 3 B 5 ns 0 calls (10, 2, 10)",
            "missing code 2 x2 6 B 10 ns 1 calls (30, 2, 30)",
            "32-bit code x1 3 B 5 ns 0 calls (80, 2, 80)",
            "no sync x1 3 B 0 ns 0 calls (70, -1, 70)",
        ];
        assert_eq!(text(&loss.by_cause), expect);
        assert_eq!(text(&loss.unowned), expect[5..]);
        let of_two = [
            "missing code 1 x1 3 B 5 ns 0 calls (10, 2, 10)",
            "missing code 2 x1 3 B 5 ns 1 calls (30, 2, 30)",
            "32-bit code x1 3 B 5 ns 0 calls (80, 2, 80)",
        ];
        assert_eq!(text(&loss.threads[1].by_cause), of_two);
        let cpus: Vec<_> =
            loss.cpus.iter().map(|c| (c.cpu.map(|cpu| cpu.0), text(&c.by_cause).len())).collect();
        assert_eq!(cpus, [(None, 2), (Some(0), 2), (Some(1), 2)]);
    }

    /// Coverage was 100 %, and nothing told of what could not be decoded.
    #[test]
    fn gaps_of_nobody_and_of_no_time_are_told_apart() {
        let mut ledger = LossLedger::default();
        let instant = Gap { to: EventTime::exact(Ns(40)), ..gap(40, GapCause::DamagedPacket) };
        ledger.add(Tid(1), None, &instant, 0);
        ledger.add(Tid(0), None, &gap(50, GapCause::UnknownThread), 0);
        // An earlier gap covers it: its time is known, and lost already.
        ledger.add(Tid(1), None, &gap(60, GapCause::Overflow), 0);
        let loss = ledger.finish(vec![thread(1, 0)]);
        assert_eq!((loss.coverage, loss.percent()), (1.0, 0.0));
        assert_eq!(loss.untimed, Untimed { count: 2, bytes: 6 });
    }

    /// A recording of a virtual machine alone had a coverage of 100 %.
    #[test]
    fn where_all_trace_is_lost_nothing_is_covered() {
        let mut ledger = LossLedger::default();
        ledger.add(Tid(-1), None, &gap(40, GapCause::Guest), 0);
        let loss = ledger.finish(vec![]);
        assert_eq!((loss.coverage, loss.percent(), loss.errors), (0.0, 100.0, 0));
        let nothing = LossLedger::default().finish(vec![]);
        assert_eq!((nothing.coverage, nothing.percent()), (1.0, 0.0));
    }
}
