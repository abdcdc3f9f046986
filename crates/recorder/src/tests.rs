//! Recording without a trace unit: the trace's event is a dummy, too, so that buffers, sideband, drains and
//! file are those of a real recording and only the trace is missing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use model::{Pid, Sideband, Tid, TscClock};
use perfdata::Listed;
use perfdata::write::Features;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::attach::{OpenBuffer, Opener, Places};
use crate::clocks;
use crate::cpu_list::CpuList;
use crate::drain::{Drain, Shared};
use crate::events::{Attrs, Heirs, KernelCan, Purpose};
use crate::file_head::{self, Head};
use crate::new_file::NewFile;
use crate::newborns::Newborns;
use crate::output::Output;
use crate::plan::{Layout, Plan};
use crate::pmu::Pmu;
use crate::procfs::Proc;
use crate::pt_config::PtSettings;
use crate::rounds::Rounds;
use crate::snapshot::Snapshot;
use crate::workers::Workers;

/// The trace is that of an event that does nothing.
fn opener(layout: Layout) -> Opener {
    let records_bytes = 1 << 16;
    let plan =
        Plan { layout, buffers: 1, watched: 0, trace_bytes: 0, records_bytes, events: 2, sized: false };
    let purpose = Purpose { pmu: 1, config: 9, heirs: Heirs::Threads, on_exec: false };
    let can = KernelCan::probe();
    let attrs = Attrs::new(purpose, &plan, can);
    Opener { attrs, can, plan, overwrites: false, filter: None, proc: Proc::host(), workers: Workers::here() }
}

/// A recording of this process while `early` runs, before there is a file, and `act`; returns what is in the
/// file. `None`: perf is not permitted here.
fn recorded(
    layout: Layout,
    traced: CpuList,
    early: impl FnOnce(),
    act: impl FnOnce(),
) -> Option<Vec<Listed>> {
    let (proc, opener) = (Proc::host(), opener(layout));
    let attrs = opener.attrs;
    let pid = Pid(std::process::id() as i32);
    let mut list = || proc.tasks(pid).unwrap();
    let places = Places { watched: online().without(&traced), traced };
    let opened = match layout {
        Layout::TasksByCpu => opener.tasks_by_cpu(&places, &mut list),
        Layout::Threads => opener.threads(&mut list),
        Layout::WholeCpus => opener.whole_cpus(&places),
    };
    let mut buffers = match opened {
        Ok(buffers) => buffers,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    let settings = PtSettings { config: 9, event: "dummy".into() };
    let clock = buffers[0].ring.clock().unwrap_or(TscClock { shift: 0, mult: 1, zero: 0 });
    let pmu = Pmu::default();
    let head = Head {
        pmu: &pmu,
        settings: &settings,
        attrs,
        layout,
        clock,
        filter: "",
        has_sched: false,
        overwrites: false,
    };
    buffers.iter().for_each(|buffer| buffer.events.enable_sideband());
    early();
    buffers.iter_mut().for_each(OpenBuffer::read_early);
    let snapshots = [Snapshot::of(&proc, pid, &|_| None)];
    let (place, file) = NewFile::create(&path, 0o600).unwrap();
    let writer = file_head::write(file, &head, &buffers, &Features::default(), &snapshots).unwrap();
    place.take_place().unwrap();
    let output = Output::new(writer, None);
    let newborns = Newborns::new(&opener, &|_| None, false, &snapshots, &buffers);
    let shared = Shared {
        output: &output,
        newborns: (layout == Layout::Threads).then_some(&newborns),
        stop: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        events: Mutex::new(vec![]),
        clock,
        tick: Duration::from_millis(1),
        rounds: Rounds::new(clocks::now(clock)),
        ended_at: AtomicU64::new(u64::MAX),
        copies: None,
    };
    let drain = Drain::new(&shared, buffers);
    std::thread::scope(|scope| {
        let running = scope.spawn(move || drain.run());
        act();
        shared.all_events().iter().for_each(|events| events.disable_sideband());
        rustix::io::write(&shared.stop, &1u64.to_ne_bytes()).unwrap();
        assert!(running.join().unwrap().iter().all(|losses| !losses.any()));
    });
    drop(shared);
    output.finish(&Features::default()).unwrap();
    let mut listed = vec![];
    let damage =
        perfdata::File::open(&path).unwrap().list(&mut |record| listed.push(record.clone())).unwrap();
    assert_eq!(damage, None);
    Some(listed)
}

fn online() -> CpuList {
    CpuList::online(Path::new("/sys"))
}

/// A thread that is born, lives for ten naps, and dies; its number.
fn short_life() -> Tid {
    let nap = || {
        (0..10).for_each(|_| std::thread::sleep(Duration::from_millis(5)));
        own_tid()
    };
    std::thread::spawn(nap).join().unwrap()
}

/// This thread.
fn own_tid() -> Tid {
    // PID/task/TID
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    Tid(own.file_name().unwrap().to_str().unwrap().parse().unwrap())
}

/// What was recorded of a thread, by name of the record.
fn of_thread(listed: &[Listed], tid: Tid) -> BTreeSet<&'static str> {
    let named = |listed: &Listed| match &listed.record.body {
        Sideband::Switch { out: true, .. } | Sideband::SwitchCpuWide { out: true, .. }
            if listed.record.tid == Some(tid) =>
        {
            Some("out")
        }
        Sideband::Switch { .. } | Sideband::SwitchCpuWide { .. } if listed.record.tid == Some(tid) => {
            Some("in")
        }
        Sideband::Fork { tid: newborn, .. } if *newborn == tid => Some("born"),
        Sideband::Exit { tid: dead, .. } if *dead == tid => Some("died"),
        _ => None,
    };
    listed.iter().filter_map(named).collect()
}

#[test]
fn threads_inherit_events_of_cpus() {
    let mut tid = Tid(0);
    let mut early = Tid(0);
    let Some(listed) = recorded(Layout::TasksByCpu, online(), || early = short_life(), || tid = short_life())
    else {
        return;
    };
    assert_eq!(of_thread(&listed, tid), ["born", "died", "in", "out"].into());
    assert_eq!(of_thread(&listed, early), ["born", "died", "in", "out"].into());
    // The threads that there were before are told of without a time.
    let main = Tid(std::process::id() as i32);
    let named = |l: &Listed| matches!(&l.record.body, Sideband::Comm { tid, .. } if *tid == main);
    assert!(listed.iter().any(|l| named(l) && l.record.time.is_none()));
}

/// Without the others' records it would look as if it had slept.
#[test]
fn who_runs_on_another_cpu_than_the_traced_one_is_told_of() {
    let (Some(first), Some(last)) = (online().0.first().copied(), online().0.last().copied()) else { return };
    if first == last {
        return println!("skipped: one CPU only");
    }
    for layout in [Layout::TasksByCpu, Layout::WholeCpus] {
        let mut tid = Tid(0);
        let there = || {
            let mut cpus = CpuSet::new();
            cpus.set(last.0 as usize);
            let before = sched_getaffinity(None).unwrap();
            sched_setaffinity(None, &cpus).unwrap(); // what it creates runs there, too
            tid = short_life();
            sched_setaffinity(None, &before).unwrap();
        };
        let Some(listed) = recorded(layout, CpuList(vec![first]), || (), there) else { return };
        assert_eq!(of_thread(&listed, tid), ["born", "died", "in", "out"].into(), "{layout:?}");
        let switches = listed
            .iter()
            .filter(|l| matches!(l.record.body, Sideband::Switch { .. } | Sideband::SwitchCpuWide { .. }));
        let cpus: BTreeSet<_> =
            switches.filter(|l| l.record.tid == Some(tid)).map(|l| l.record.cpu).collect();
        assert_eq!(cpus, [Some(last)].into(), "{layout:?}");
    }
}

/// Only its first instants may be missing.
#[test]
fn newborn_threads_get_a_buffer_of_their_own() {
    let mut tid = Tid(0);
    let Some(listed) = recorded(Layout::Threads, online(), || (), || tid = short_life()) else { return };
    assert_eq!(of_thread(&listed, tid), ["born", "died", "in", "out"].into());
}

/// A thread that ended before it had events may have created one that has none, either: it was listed no
/// more.
#[test]
fn after_a_thread_that_has_gone_they_are_listed_again() {
    let dead = std::thread::spawn(own_tid).join().unwrap();
    let (first, last) = (own_tid(), Tid(std::process::id() as i32));
    let mut lists = [vec![first], vec![first, dead], vec![first, last]].into_iter();
    let mut list = || lists.next().unwrap_or_default();
    let places = Places { traced: CpuList(vec![model::Cpu(0)]), watched: CpuList::default() };
    match opener(Layout::TasksByCpu).tasks_by_cpu(&places, &mut list) {
        Ok(buffers) => assert_eq!(buffers[0].events.trace.len(), 2),
        Err(why) => println!("skipped: {why}"),
    }
}
