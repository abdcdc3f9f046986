//! Plans for machines that are made up.

use super::*;
use crate::means::LockLimit;

const ROOT: Means = Means { locked: None, available_bytes: 16 << 30, descriptors: 1 << 20 };
/// Debian's defaults on four CPUs.
const USER: Means = Means {
    locked: Some(LockLimit { ulimit_bytes: 8 << 20, setting_kb: 516, cpus: 4 }),
    descriptors: 1024,
    ..ROOT
};

fn plan(asked: Asked, means: Means) -> Plan {
    Plan::new(asked, means).unwrap()
}

const ONE: Asked = Asked {
    threads: 1,
    cpus: 4,
    watched_cpus: 0,
    per_thread: false,
    only_these_cpus: false,
    trace_bytes: None,
};

#[test]
fn buffers_share_what_there_is() {
    let root = plan(ONE, ROOT);
    assert_eq!((root.layout, root.buffers, root.events), (Layout::TasksByCpu, 4, 8));
    assert_eq!((root.trace_bytes, root.records_bytes), (8 << 20, 512 << 10));
    let user = plan(ONE, USER);
    assert_eq!((user.trace_bytes, user.records_bytes), (2 << 20, 256 << 10));
    assert!(user.bytes() <= USER.locked_bytes());
    let small = plan(ONE, Means { available_bytes: 256 << 20, ..ROOT });
    assert_eq!(small.trace_bytes, 8 << 20);
}

#[test]
fn cpus_that_are_only_watched_have_buffers_for_records() {
    let asked = Asked { cpus: 1, watched_cpus: 63, only_these_cpus: true, ..ONE };
    let whole = Asked { threads: 0, ..asked };
    for (asked, means) in [(asked, USER), (asked, ROOT), (whole, ROOT)] {
        let plan = plan(asked, means);
        assert_eq!((plan.buffers, plan.watched, plan.events), (1, 63, 65));
        let all = means.locked_bytes().min(means.available_bytes / MEMORY_SHARE);
        assert!(plan.bytes() <= all, "{plan}");
    }
    assert_eq!(plan(Asked { threads: 9, ..asked }, ROOT).events, 9 * 65);
    assert!(plan(asked, USER).to_string().ends_with(", 63 more of records only; 65 events"));
    let locked = LockLimit { ulimit_bytes: 64 << 10, setting_kb: 0, cpus: 64 };
    let Err(PlanError::LockedMemory { setting_kb, .. }) =
        Plan::new(asked, Means { locked: Some(locked), ..USER })
    else {
        panic!("64 KB are too few for 64 buffers")
    };
    let enough = Means { locked: Some(LockLimit { setting_kb, ..locked }), ..USER };
    assert!(plan(asked, enough).trace_bytes >= TRACE_MIN_BYTES);
}

#[test]
fn too_many_descriptors_mean_one_buffer_a_thread() {
    let many = Asked { threads: 300, ..ONE };
    assert_eq!(plan(many, ROOT).layout, Layout::TasksByCpu);
    let few = plan(many, Means { descriptors: 1024, ..ROOT });
    assert_eq!((few.layout, few.buffers, few.events), (Layout::Threads, 300, 600));
    let pinned = Asked { only_these_cpus: true, ..many };
    assert_eq!(plan(pinned, ROOT).layout, Layout::TasksByCpu);
    assert!(Plan::new(pinned, Means { descriptors: 1024, ..ROOT }).is_err(), "-C was left out");
    assert_eq!(plan(Asked { threads: 9000, ..ONE }, ROOT).layout, Layout::Threads);
    let error = Plan::new(Asked { threads: 1000, ..ONE }, Means { descriptors: 1024, ..ROOT });
    assert_eq!(error, Err(PlanError::Descriptors { threads: 1000, needed: 2064, limit: 1024 }));
}

#[test]
fn what_was_asked_for_is_done() {
    let asked = Asked { per_thread: true, trace_bytes: Some(3 << 20), ..ONE };
    assert_eq!((plan(asked, USER).layout, plan(asked, USER).trace_bytes), (Layout::Threads, 4 << 20));
    assert_eq!(plan(Asked { threads: 0, ..ONE }, ROOT).layout, Layout::WholeCpus);
    assert_eq!(plan(Asked { trace_bytes: Some(1), ..ONE }, USER).trace_bytes, PAGE_BYTES);
    assert_eq!(plan(asked, USER).for_newborns().trace_bytes, 4 << 20);
    assert_eq!(plan(ONE, USER).for_newborns().trace_bytes, NEWBORN_TRACE_BYTES);
}

#[test]
fn buffers_that_cannot_be_had_are_halved_unless_their_size_was_asked_for() {
    let sizes: Vec<u64> = std::iter::successors(Some(plan(ONE, ROOT)), |plan| plan.smaller())
        .map(|plan| plan.trace_bytes)
        .collect();
    assert_eq!((sizes[0], sizes[1], sizes.last()), (8 << 20, 4 << 20, Some(&TRACE_MIN_BYTES)));
    assert_eq!(plan(Asked { trace_bytes: Some(8 << 20), ..ONE }, ROOT).smaller(), None);
}

/// Where one buffer a thread would not fit, one a CPU does.
#[test]
fn many_threads_of_an_ordinary_user_have_buffers_by_cpu() {
    let asked = Asked { threads: 1000, cpus: 64, ..ONE };
    let limit = LockLimit { ulimit_bytes: 8 << 20, setting_kb: 516, cpus: 64 };
    let means = Means { locked: Some(limit), descriptors: 1 << 19, ..ROOT };
    let many = plan(asked, means);
    assert_eq!((many.layout, many.buffers, many.trace_bytes), (Layout::TasksByCpu, 64, 512 << 10));
    let one = Plan::new(Asked { per_thread: true, ..asked }, means);
    assert!(matches!(one, Err(PlanError::LockedMemory { buffers: 1000, .. })), "-t was left out: {one:?}");
}

#[test]
fn what_is_missing_is_named() {
    let limit = LockLimit { ulimit_bytes: 64 << 10, setting_kb: 0, cpus: 4 };
    let text = |means| Plan::new(ONE, means).unwrap_err().to_string();
    let locked = text(Means { locked: Some(limit), ..USER });
    let expect = "4 buffers of trace need 112 KB of locked memory at least, and this process may have 64 KB \
                  (ulimit -l is 64 KB, kernel.perf_event_mlock_kb is 0 for each of 4 CPUs): \
                  sudo sysctl kernel.perf_event_mlock_kb=28, or ";
    assert!(locked.starts_with(expect), "{locked}");
    let free = text(Means { available_bytes: 256 << 10, ..ROOT });
    let expect = "4 buffers of trace need 112 KB at least, which is more than a quarter of the 256 KB that are free: \
                  end what has the memory, until 448 KB are, or ";
    assert!(free.starts_with(expect), "root was told of what may be locked: {free}");
}

/// Each kind of trouble is mended once, and then there is a plan.
#[test]
fn who_does_what_is_said_has_a_plan() {
    let mut refused = 0;
    for (asked, means) in all_of_it() {
        let mut mended = means;
        for advice in 0.. {
            match Plan::new(asked, mended) {
                Ok(_) => break,
                Err(error) => {
                    refused += 1;
                    assert!(advice < 3, "{asked:?} {means:?}: {error}");
                    mended = followed(error, mended);
                }
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

fn all_of_it() -> impl Iterator<Item = (Asked, Means)> {
    let threads = [0, 1, 7, 100, 1000, 9000].into_iter();
    let asked = threads.flat_map(|threads| {
        [1, 3, 64].into_iter().flat_map(move |cpus| {
            [(false, false), (true, false), (false, true)].map(|(per_thread, only_these_cpus)| Asked {
                threads,
                cpus,
                watched_cpus: if only_these_cpus { 3 } else { 0 },
                per_thread,
                only_these_cpus,
                trace_bytes: None,
            })
        })
    });
    asked.flat_map(|asked| {
        let locked =
            [(0, 0), (64 << 10, 0), (8 << 20, 516)].into_iter().flat_map(|(ulimit_bytes, setting_kb)| {
                // More CPUs may run than are asked for.
                [64, 96].map(|cpus| Some(LockLimit { ulimit_bytes, setting_kb, cpus }))
            });
        locked.chain([None]).flat_map(move |locked| {
            [1 << 16, 1 << 24, 1 << 34].into_iter().flat_map(move |available_bytes| {
                [64, 1024, 1 << 19].map(|descriptors| (asked, Means { locked, available_bytes, descriptors }))
            })
        })
    })
}

/// What there is when that has been done.
fn followed(error: PlanError, means: Means) -> Means {
    match error {
        PlanError::Descriptors { needed, .. } => Means { descriptors: needed, ..means },
        PlanError::LockedMemory { setting_kb, limit, .. } => {
            Means { locked: Some(LockLimit { setting_kb, ..limit }), ..means }
        }
        PlanError::Memory { enough_kb, .. } => Means { available_bytes: enough_kb * 1024, ..means },
    }
}
