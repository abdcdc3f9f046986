//! The scheduler's events of what is recorded (`bpf/sched.bpf.c`): attached, filtered in the kernel, read in
//! batches.
//!
//! Nothing wakes the reader: a wake-up for each event would be another event.

use std::cell::RefCell;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use model::SchedEvent;

use crate::error::BpfError;
use crate::programs::{not_loaded, sum, types_are_there};
use crate::sched_wire::{self, By};
use crate::waker_stack::WakerStack;

/// `bpf/sched.bpf.c`, compiled: `cargo xtask bpf` makes it anew.
pub(crate) const OBJECT: &[u8] = include_bytes!("../objects/sched.bpf.o");

/// Bytes of the ring; what a busy machine switches in the time between two reads has room in it.
const RING_BYTES: u32 = 16 << 20;
/// Processes, threads or CPUs that are named, or followed.
const WANTED_MAX: u32 = 1 << 16;
/// What is read at a time: events that come as fast as they are read must not keep us from seeing the end.
const BATCH_MAX: usize = 1 << 16;
/// `COUNTER_LOST`.
const LOST: u32 = 0;

/// What is named by the numbers of [`SchedSession::start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedBy {
    /// Processes: all their threads, those that are born meanwhile, too.
    Processes {
        /// Those that they create, too.
        follow: bool,
    },
    /// Threads.
    Threads,
    /// CPUs: all threads that run there.
    Cpus,
}

/// Programs that run while this is there.
pub struct SchedSession {
    object: Object,
    links: Vec<Link>,
}

impl SchedSession {
    /// Loads the programs; nothing runs yet.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub fn open(by: SchedBy, stack: WakerStack) -> Result<Self, BpfError> {
        Ok(Self { object: load(by, stack)?, links: Vec::new() })
    }

    /// Starts to tell the events of `ids()`, which is called when the programs run already: they follow what
    /// is born from then on.
    ///
    /// # Errors
    /// There are too many, or the kernel does not let us attach.
    pub fn start(&mut self, ids: &dyn Fn() -> Vec<u32>) -> Result<(), BpfError> {
        for program in self.object.progs_mut() {
            let link = program.attach_trace().map_err(BpfError::other("cannot attach to the scheduler"))?;
            self.links.push(link);
        }
        for id in ids() {
            let added = self.map("wanted")?.update(&id.to_ne_bytes(), &[1], MapFlags::ANY);
            added.map_err(BpfError::other("cannot say whose events are wanted"))?;
        }
        Ok(())
    }

    /// Reads events and gives them to `take`, batch after batch, until that says that it was the last but
    /// one.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn read(&self, take: &mut dyn FnMut(&mut Vec<SchedEvent>) -> bool) -> Result<(), BpfError> {
        let failed = BpfError::other("cannot read the ring");
        let events = RefCell::new(Vec::new());
        let map = self.map("events")?;
        let mut builder = RingBufferBuilder::new();
        let add = |bytes: &[u8]| {
            events.borrow_mut().extend(sched_wire::event(bytes));
            0
        };
        builder.add(&map, add).map_err(&failed)?;
        let ring = builder.build().map_err(&failed)?;
        let mut goes_on = true;
        while goes_on {
            ring.consume_raw_n(BATCH_MAX);
            goes_on = take(&mut events.borrow_mut());
        }
        ring.consume().map_err(&failed)?;
        take(&mut events.borrow_mut());
        Ok(())
    }

    /// Takes the programs away.
    pub fn stop(&mut self) {
        self.links.clear();
    }

    /// Events that had no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.map("counters").map_or(0, |counters| sum(&counters, LOST))
    }

    fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| BpfError::Load(format!("there is no map {name}")))
    }
}

fn load(by: SchedBy, stack: WakerStack) -> Result<Object, BpfError> {
    types_are_there()?;
    let settings = match by {
        SchedBy::Processes { follow } => sched_wire::settings(By::Process, follow, stack),
        SchedBy::Threads => sched_wire::settings(By::Thread, false, stack),
        SchedBy::Cpus => sched_wire::settings(By::Cpu, false, stack),
    };
    let mut builder = ObjectBuilder::default();
    let mut open =
        builder.name("func_latency").and_then(|named| named.open_memory(OBJECT)).map_err(not_loaded)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let set = match name.as_str() {
            "wanted" => map.set_max_entries(WANTED_MAX),
            "events" => map.set_max_entries(RING_BYTES),
            name if name.ends_with(".rodata") => map.set_initial_value(&settings),
            _ => Ok(()),
        };
        set.map_err(not_loaded)?;
    }
    open.load().map_err(not_loaded)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{SchedBody, SchedTask, Tid};

    use super::*;

    /// A thread of ours sleeps, is woken by a timer, and waits for this one.
    #[test]
    fn what_a_thread_waits_for() {
        let mut session = match SchedSession::open(SchedBy::Processes { follow: false }, WakerStack::User) {
            Ok(session) => session,
            Err(why) => return println!("skipped: {why}"),
        };
        session.start(&|| vec![std::process::id()]).unwrap();
        let sleeper = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            rustix::thread::gettid().as_raw_pid()
        });
        let tid = Tid(sleeper.join().unwrap());
        session.stop();
        let mut events = Vec::new();
        session
            .read(&mut |batch| {
                events.append(batch);
                false
            })
            .unwrap();
        assert_eq!(session.lost(), 0);
        let is_it = |task: &SchedTask| task.tid == tid;
        let slept = events.iter().position(|event| {
            matches!(&event.body, SchedBody::Switch { prev, state: 1, syscall: Some(230), .. } if is_it(prev))
        });
        let slept = slept.expect("it leaves in clock_nanosleep");
        assert!(!events[slept].stack.is_empty());
        let waking =
            |event: &&SchedEvent| matches!(&event.body, SchedBody::Waking { woken, .. } if is_it(woken));
        let woken = events[slept..].iter().find(waking).expect("it is woken");
        assert!(woken.monotonic_ns - events[slept].monotonic_ns > 15_000_000);
        let comes =
            |event: &&SchedEvent| matches!(&event.body, SchedBody::Switch { next, .. } if is_it(next));
        let back = events[slept..].iter().find(comes).expect("it comes back");
        assert!(back.monotonic_ns >= woken.monotonic_ns);
    }
}
