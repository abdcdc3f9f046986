//! The simulation: which thread runs next, and the state that all share.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use model::{AuxOffset, AuxOwner, AuxRecord, Cpu, Ns, Pid, Tid};
use perfdata::write::AuxChunk;

use crate::aux_buffer::AuxBuffer;
use crate::clock::{Time, ticks};
use crate::fault::Fault;
use crate::filter::IpFilter;
use crate::kernel::{Kernel, KernelEntry, Mark, Plan};
use crate::options::Options;
use crate::program::Program;
use crate::pt_unit::Output;
use crate::rng::Rng;
use crate::schedule::{Schedule, Turn};
use crate::sideband::{FIRST_PLACE, RunsOn, Sideband};
use crate::slice::{Leave, Slice};
use crate::slow_calls::SlowCalls;
use crate::thread::ReplayedThread;
use crate::timeline::Timeline;
use crate::truth::{Flags, Kind};
use model::Avma;

/// When the kernel's records are made, after the thread has run its last instruction.
const EXIT_US: f64 = 0.3;
const SWITCH_OUT_US: f64 = 0.4;
/// Between the switch and the thread's first instruction.
const SWITCH_IN_US: f64 = 0.5;

/// The part of the simulation that is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: Time,
    pub(crate) end: Time,
}

/// What the recording starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// It has been written.
    Done,
    /// It will be when the simulation has passed the window's start.
    AtWindowStart,
}

/// What the options plant in calls of functions.
pub(crate) struct Disturbance {
    pub(crate) fault: Option<Fault>,
    pub(crate) slow_calls: SlowCalls,
}

/// What all threads and buffers share.
pub(crate) struct World<'p> {
    pub(crate) program: &'p Program,
    /// The kernel, if it is traced.
    pub(crate) kernel: Option<&'p Kernel>,
    pub(crate) options: &'p Options,
    pub(crate) filter: IpFilter,
    pub(crate) disturbance: Disturbance,
    pub(crate) rng: Rng,
    pub(crate) window: Window,
    pub(crate) sideband: Sideband,
    pub(crate) timeline: Timeline,
    pub(crate) truncated: u64,
    pub(crate) aux_bytes: u64,
    /// What the log has and the simulation cannot explain.
    pub(crate) oddities: BTreeMap<&'static str, u64>,
    opening: Opening,
    /// Newborn threads, and when they can run.
    newborn: Vec<(Tid, Time)>,
    /// Threads that lived, and mappings that were there, before the window.
    early_threads: BTreeSet<Tid>,
    early_mappings: Vec<usize>,
    /// Thread and place in its log of each later mapping.
    mapping_at: HashMap<(Tid, usize), usize>,
    /// Where ITRACE_START has been written: threads and the CPUs that have buffers of their own.
    itrace_started: HashSet<(Tid, Option<Cpu>)>,
}

impl<'p> World<'p> {
    pub(crate) fn new(
        program: &'p Program,
        kernel: Option<&'p Kernel>,
        options: &'p Options,
        (filter, disturbance): (IpFilter, Disturbance),
        sideband: Sideband,
        timeline: Timeline,
    ) -> Self {
        let start =
            if options.skip_ms > 0.0 { Time::START.plus_us(options.skip_ms * 1000.0) } else { Time::START };
        let end = if options.dur_ms > 0.0 { start.plus_us(options.dur_ms * 1000.0) } else { Time::NEVER };
        let late = program.maps.mappings.iter().enumerate();
        Self {
            program,
            kernel,
            options,
            filter,
            disturbance,
            rng: Rng::new(options.seed),
            window: Window { start, end },
            sideband,
            timeline,
            truncated: 0,
            aux_bytes: 0,
            oddities: BTreeMap::new(),
            opening: Opening::AtWindowStart,
            newborn: vec![],
            early_threads: FIRST_PLACE.copies(Tid(program.pid.0), options).map(|(tid, _)| tid).collect(),
            early_mappings: vec![],
            mapping_at: late.filter_map(|(i, mapping)| Some((mapping.mapped_at?, i))).collect(),
            itrace_started: HashSet::new(),
        }
    }

    pub(crate) fn oddity(&mut self, what: &'static str) {
        *self.oddities.entry(what).or_default() += 1;
    }

    fn is_late_start(&self) -> bool {
        self.window.start > Time::START
    }

    /// The first records, if the recording starts with the program.
    fn open(&mut self) {
        if self.is_late_start() {
            return;
        }
        self.opening = Opening::Done;
        self.synthesise_kernel();
        let (name, main) = (self.program.comm(), Tid(self.program.pid.0));
        if self.options.attach {
            self.early_mappings = (0..self.program.maps.mappings.len()).collect();
            self.synthesise(&name);
            return;
        }
        let exec_ns = Time::START.ns() - 1_000_000;
        self.timeline.add(self.sideband.exec(&name, exec_ns));
        for (copy, _) in FIRST_PLACE.copies(main, self.options).skip(1) {
            self.timeline.add(self.sideband.fork((self.program.pid, copy), main, exec_ns, FIRST_PLACE));
        }
        for (ns, mapping) in (exec_ns + 1000..).zip(&self.program.maps.mappings) {
            if mapping.mapped_at.is_none() {
                self.timeline.add(self.sideband.mmap(mapping, Some((main, ns, FIRST_PLACE))));
            }
        }
    }

    /// What perf makes up about the kernel.
    fn synthesise_kernel(&mut self) {
        if let Some(kernel) = self.kernel {
            self.timeline.add(self.sideband.kernel_text(kernel.range()));
        }
    }

    /// The first records, if the recording attaches to a running program.
    fn synthesise(&mut self, name: &str) {
        for &tid in &self.early_threads {
            self.timeline.add_all(self.sideband.existing_thread(tid, name));
        }
        for (i, mapping) in self.program.maps.mappings.iter().enumerate() {
            if mapping.mapped_at.is_none() || self.early_mappings.contains(&i) {
                self.timeline.add(self.sideband.mmap(mapping, None));
            }
        }
    }

    /// All before `horizon` has been simulated.
    fn release(&mut self, horizon: Option<Time>) -> std::io::Result<()> {
        if self.opening == Opening::AtWindowStart {
            if horizon.is_some_and(|horizon| horizon < self.window.start) {
                return Ok(());
            }
            self.synthesise_kernel();
            self.synthesise(&self.program.comm());
            self.opening = Opening::Done;
        }
        match horizon {
            Some(horizon) => self.timeline.release(Ns(horizon.ns())),
            None => Ok(()), // `Timeline::finish` writes the rest
        }
    }

    /// `parent` made a thread, or a process; no more is known of that.
    pub(crate) fn cloned(&mut self, parent: Tid, child: Tid, now: Time, place: RunsOn) {
        let is_thread = self.program.threads.iter().any(|thread| thread.tid == child);
        if is_thread {
            self.newborn.push((child, now.plus_us(12.0)));
        }
        if now >= self.window.start {
            let pid = if is_thread { self.program.pid } else { Pid(child.0) };
            self.timeline.add(self.sideband.fork((pid, child), parent, now.ns(), place));
        } else if is_thread {
            self.early_threads.insert(child);
        }
    }

    /// A system call returned to this place in a thread's log: perhaps it mapped something.
    pub(crate) fn returned(&mut self, tid: Tid, at: usize, now: Time, place: RunsOn) {
        let Some(&i) = self.mapping_at.get(&(tid, at)) else { return };
        if now < self.window.start {
            self.early_mappings.push(i);
        } else if !self.early_mappings.contains(&i)
            && let Some(mapping) = self.program.maps.mappings.get(i)
        {
            self.timeline.add(self.sideband.mmap(mapping, Some((tid, now.ns(), place))));
        }
    }

    /// The thread is being traced, from now on if it was not.
    pub(crate) fn recorded(&mut self, thread: &mut ReplayedThread<'_>, ns: u64, place: RunsOn) {
        thread.truth.set_paused(false);
        if self.itrace_started.insert((thread.tid, self.options.per_cpu.then_some(place.cpu))) {
            for (tid, place) in place.copies(thread.tid, self.options) {
                self.timeline.add(self.sideband.itrace_start(tid, ns, place));
            }
        }
    }

    /// The thread ended.
    fn exited(&mut self, tid: Tid, ns: u64, place: RunsOn) {
        for (tid, place) in place.copies(tid, self.options) {
            self.timeline.add(self.sideband.exit(tid, ns, place));
        }
    }

    /// Takes the trace out of a buffer; `full_until`: it was full, and the reader comes then.
    pub(crate) fn drain(
        &mut self,
        buffer: &mut AuxBuffer,
        place: RunsOn,
        tid: Tid,
        now: Time,
        full_until: Option<Time>,
    ) {
        let (offset, bytes) = buffer.unit.take();
        let bytes: Rc<[u8]> = bytes.into();
        self.truncated += u64::from(full_until.is_some());
        if bytes.is_empty() {
            return;
        }
        let size = bytes.len() as u64;
        self.aux_bytes += size;
        let flags = if full_until.is_some() { AuxRecord::TRUNCATED } else { 0 };
        let taken = full_until.unwrap_or(now);
        for (tid, place) in place.copies(tid, self.options) {
            self.timeline.add(self.sideband.aux((offset, size), flags, tid, now.ns(), place));
            let chunk = AuxChunk {
                index: place.buffer,
                owner: if self.options.per_cpu { AuxOwner::Cpu(place.cpu) } else { AuxOwner::Thread(tid) },
                offset: AuxOffset(offset),
                reference: taken.tsc().0,
            };
            self.timeline.add_aux(Ns(taken.ns() + 1), chunk, Rc::clone(&bytes));
        }
    }
}

/// The simulation.
pub(crate) struct Simulation<'p> {
    pub(crate) world: World<'p>,
    pub(crate) threads: Vec<ReplayedThread<'p>>,
    pub(crate) buffers: Vec<AuxBuffer>,
    schedule: Schedule,
    /// When the last thread left its CPU.
    pub(crate) end: Time,
    /// Threads that end with the process.
    end_with_process: Vec<(Tid, RunsOn)>,
}

impl<'p> Simulation<'p> {
    pub(crate) fn new(world: World<'p>, buffers: Vec<AuxBuffer>) -> Self {
        let main = Tid(world.program.pid.0);
        let mut threads: Vec<ReplayedThread<'p>> =
            world.program.threads.iter().map(|log| ReplayedThread::new(log, log.tid == main)).collect();
        let mut buffers = buffers;
        if world.is_late_start() {
            threads.iter_mut().for_each(|thread| thread.truth.set_paused(true));
            buffers.iter_mut().for_each(|buffer| buffer.switch_off(world.window.start));
        }
        let schedule = Schedule::new(usize::from(world.options.ncpu));
        Self { world, threads, buffers, schedule, end: Time::START, end_with_process: vec![] }
    }

    /// Runs all threads to their end, or to that of the recording.
    pub(crate) fn run(&mut self) -> std::io::Result<()> {
        self.world.open();
        let max_aux_mb = self.world.options.max_aux_mb;
        let max_aux = if max_aux_mb > 0.0 { (max_aux_mb * (1 << 20) as f64) as u64 } else { u64::MAX };
        while self.world.aux_bytes < max_aux
            && let Some(turn) = self.schedule.next(&self.threads)
        {
            self.turn(turn);
            for (tid, ready) in std::mem::take(&mut self.world.newborn) {
                if let Some(thread) = self.threads.iter_mut().find(|t| t.tid == tid && !t.runnable) {
                    thread.runnable = true;
                    thread.ready = ready;
                }
            }
            self.world.release(Schedule::horizon(&self.threads))?;
        }
        self.world.release(None)?;
        if self.world.window.end == Time::NEVER && self.world.aux_bytes < max_aux {
            for (tid, place) in std::mem::take(&mut self.end_with_process) {
                self.world.exited(tid, self.end.ns(), place);
            }
        }
        Ok(())
    }

    /// A thread's time on a CPU.
    fn turn(&mut self, turn: Turn) {
        let Turn { cpu, start, .. } = turn;
        let index = if self.world.options.per_cpu { cpu } else { turn.thread };
        let (Some(thread), Some(buffer)) = (self.threads.get_mut(turn.thread), self.buffers.get_mut(index))
        else {
            return; // cannot be: there is one for each
        };
        thread.cpu = Some(cpu);
        if start >= self.world.window.end {
            thread.done = true;
            return;
        }
        let place = RunsOn { buffer: index as u32, cpu: Cpu(cpu as u32) };
        let mut slice = Slice { world: &mut self.world, thread, buffer, place };
        slice.switch_in(start, turn.first_on_cpu);
        let until = slice.thread.now.plus(ticks(slice.world.options.slice_ms * 1000.0));
        let leave = slice.run(until);
        slice.end_slow_call();
        slice.switch_out(leave);
        let thread = &self.threads[turn.thread];
        if leave == Leave::Asleep {
            self.end_with_process.push((thread.tid, place));
        }
        let free = thread.now.plus_us(SWITCH_IN_US);
        self.schedule.occupy(cpu, free);
        self.end = self.end.max(free);
    }
}

impl Slice<'_, '_> {
    fn switch_in(&mut self, start: Time, first_on_cpu: bool) {
        self.thread.now = start;
        if self.thread.next_tick.is_none() {
            self.thread.next_tick = Some(start.plus_us(self.world.options.tick_us));
        }
        if self.buffer.enable_due(start) {
            self.buffer.unit.switch_on();
        }
        let force_psb = first_on_cpu && self.world.options.per_cpu;
        if self.world.kernel.is_some() {
            if self.thread.stay.is_none() {
                self.begin_untraced_stay(KernelEntry::Fork);
            }
            // Linux switches the PMUs on before it writes the record (`__perf_event_task_sched_in`).
            if start >= self.world.window.start {
                self.world.recorded(self.thread, start.ns(), self.place);
            }
            self.start_tracing(force_psb);
            self.run_to(Mark::SwitchIn);
            self.record_switch_in();
        } else {
            self.record_switch_in();
            self.buffer.unit.trace_on(force_psb, start.plus_us(0.1));
        }
        self.pass_us(SWITCH_IN_US);
        self.buffer.unit.timer(self.thread.now);
    }

    fn record_switch_in(&mut self) {
        let (tid, now, place) = (self.thread.tid, self.thread.now, self.place);
        if now >= self.world.window.start {
            let ns = now.ns();
            for (tid, place) in place.copies(tid, self.world.options) {
                self.world.timeline.add_all(self.world.sideband.switch_in(tid, ns, place));
            }
            self.world.recorded(self.thread, ns + 1, place);
        }
        self.event(Kind::SwitchIn, Flags::NONE, Avma(0), Avma(0));
    }

    fn switch_out(&mut self, leave: Leave) {
        self.buffer.unit.timer(self.thread.now);
        if self.buffer.unit.output() == Output::Overflow {
            self.buffer.hurry_overflow();
            self.end_overflow(None);
        }
        let leaves_cpu = matches!(leave, Leave::Preempted | Leave::Blocked | Leave::Asleep);
        let out = self.stop_at_switch_out(leave, leaves_cpu);
        let (tid, now, place) = (self.thread.tid, self.thread.now, self.place);
        self.world.drain(self.buffer, place, tid, now.plus_us(0.2), None);
        self.thread.done = matches!(leave, Leave::Asleep | Leave::Exited | Leave::WindowEnd);
        if now < self.world.window.start {
            if leave == Leave::Exited {
                self.world.early_threads.remove(&tid);
            }
            return;
        }
        if leave == Leave::Exited {
            self.world.exited(tid, now.plus_us(EXIT_US).ns(), place);
        }
        let switches = match leave {
            Leave::WindowEnd => false,
            Leave::Exited => self.world.sideband.switches_after_exit(),
            _ => true,
        };
        if switches {
            let preempted = leave == Leave::Preempted;
            for (tid, place) in place.copies(tid, self.world.options) {
                let switches = self.world.sideband.switch_out(tid, preempted, out.ns(), place);
                self.world.timeline.add_all(switches);
            }
        }
    }

    /// Switches tracing off.  Returns the time of the record.
    fn stop_at_switch_out(&mut self, leave: Leave, leaves_cpu: bool) -> Time {
        let traced_kernel = self.world.kernel.is_some();
        let mut out = self.thread.now.plus_us(SWITCH_OUT_US);
        if traced_kernel && leave != Leave::WindowEnd {
            self.plan_stay(Plan::GiveWay);
        }
        if traced_kernel && leaves_cpu {
            // Linux writes the record before it switches the PMUs off (`__perf_event_task_sched_out`).
            self.run_to(Mark::SwitchOut);
            out = self.thread.now;
        }
        if leaves_cpu {
            self.thread.truth.event(Kind::SwitchOut, Flags::NONE, out.tsc(), Avma(0), Avma(0));
        }
        self.stop_tracing();
        if traced_kernel {
            self.thread.ready = self.thread.ready.max(self.thread.now);
        }
        out
    }
}
