//! A number belongs to one thread after the other: how the life of one ends, and that of the next begins.

use model::schedule::{DeadTime, ThreadLife};
use model::{AuxOffset, EventTime, Gap, GapCause, Ns};

use crate::certainty::Certainty;
use crate::control::{Control, StackBase};
use crate::entered::Entered;
use crate::finished::FinishedThreads;
use crate::frames::Frames as _;
use crate::session::Session;
use crate::status::Status;
use crate::thread::Thread;
use crate::tree::Trees;

impl<'a> Thread<'a> {
    /// The thread after those with its number that are finished.
    pub(crate) fn after(mut self, finished: &FinishedThreads) -> Self {
        self.entered = Entered::after(finished.numbers(self.tid));
        if finished.has(self.tid) {
            self.window.is_seen_from(Ns(0));
        }
        self
    }

    /// The next event is at `time`.
    pub(crate) fn meet(&mut self, session: &mut Session<'a>, time: EventTime) {
        self.pass_deaths_before(session, time);
        self.window.is_seen_from(time.point);
    }

    /// No event from before `until` will come: the next thread with this number has begun if it was born by
    /// then, and times off the CPU that ended earlier are passed, even if the next event is far away. Events
    /// that wait for a landing to be decided have their own times.
    pub(crate) fn pass_time(&mut self, session: &mut Session<'a>, until: Ns) {
        self.pass_deaths(session, |_, reborn| reborn <= until);
        self.decide_overdue(session, until.min(self.life_end(session)));
        if self.undecided.is_none() {
            self.clock.off_cpu.pass_without_event(until);
        }
    }

    /// When the thread dies; [`Ns::MAX`] if that is not known.
    pub(crate) fn life_end(&self, session: &Session<'a>) -> Ns {
        let last = session.around.schedule.thread(self.tid).and_then(ThreadLife::ended);
        self.window.dead.first().map(|dead| dead.died).or(last).unwrap_or(Ns::MAX)
    }

    /// The stream has ended.  `end`: of the recording.
    pub(crate) fn finish(&mut self, session: &mut Session<'a>, end: Ns) {
        self.pass_deaths(session, |_, _| true);
        let ended = session.around.schedule.thread(self.tid).and_then(ThreadLife::ended);
        self.end_life(session, ended.unwrap_or(end));
        if let Some((sink, Trees::Threads)) = &mut session.trees {
            sink.thread(self.tid, self.trees.finish());
        }
    }

    /// Ends the frames of a thread that has died, or of one that lives as the recording ends.
    fn end_life(&mut self, session: &mut Session<'a>, end: Ns) {
        self.decide_rest(session, end);
        self.finish_in_kernel(session, end);
        self.window.seen(self.clock.now.point);
        if let Some(until) = self.clock.off_cpu.finish(self.clock.now, end) {
            self.clock.now = EventTime::exact(until.max(self.clock.now.point));
        }
        self.close_to(session, 0, Status::OpenEnd);
    }

    /// Passes the deaths before an event: one that cannot be before a death is of the next thread, even where
    /// its estimate is before that thread's birth.
    #[inline(always)]
    pub(crate) fn pass_deaths_before(&mut self, session: &mut Session<'a>, event: EventTime) {
        self.pass_deaths(session, |died, reborn| event.point >= reborn || event.lo > died);
    }

    /// Passes the deaths that are over, and the births after them.
    #[inline(always)]
    fn pass_deaths(&mut self, session: &mut Session<'a>, is_over: impl Fn(Ns, Ns) -> bool) {
        while let Some((&DeadTime { died, reborn, .. }, later)) = self.window.dead.split_first()
            && is_over(died, reborn)
        {
            self.window.dead = later;
            self.begin_new_life(session, died, reborn);
        }
    }

    /// Adds a gap from the thread's birth until it was attached to, once that is known: what it did, and its
    /// frames, are not.
    pub(crate) fn add_late(&mut self, session: &mut Session<'a>) {
        let late = match self.window.dead.first() {
            Some(dead) => dead.not_yet_attached,
            None => session.around.schedule.thread(self.tid).and_then(ThreadLife::not_yet_attached),
        };
        let Some((born, attached)) = late.filter(|_| !self.window.has_late) else { return };
        self.window.has_late = true;
        self.window.is_seen_from(born);
        let (from, to) = (EventTime::exact(born), EventTime::exact(attached));
        self.gap(session, &Gap { from, to, bytes: 0, at: AuxOffset(0), cause: GapCause::NotYetAttached });
    }

    /// The next event is of another thread with the same number, which has seen nothing yet.
    fn begin_new_life(&mut self, session: &mut Session<'a>, died: Ns, reborn: Ns) {
        let later = self.clock.off_cpu.split_off(reborn);
        self.end_life(session, died);
        self.kernel.forget();
        self.clock.off_cpu.leave_kernel();
        self.clock.off_cpu.count_to(0);
        self.clock.off_cpu.go_on(later);
        self.window.pass_death(died, reborn);
        let executed = self.control.executed.filter(|executed| *executed >= reborn);
        self.control = Control::new(StackBase::Seen, executed);
        self.certainty = Certainty::default();
        self.entered = Entered::after(self.entered.numbers());
        self.window.has_late = false;
        self.add_late(session);
    }
}
