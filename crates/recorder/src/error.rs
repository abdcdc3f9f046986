//! Why a recording cannot be made, and what helps.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use model::{Cpu, Pid, Tid};

use crate::cpu_list::CpuList;
use crate::means::LockLimit;
use crate::permission::{self, CAP_PERFMON, CAP_SYS_ADMIN, SETCAP, capabilities};
use crate::plan::{Plan, PlanError};
use crate::pmu::PmuError;
use crate::procfs::Proc;
use crate::pt_config::PtConfigError;

/// Why there is no recording.  Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No PMU.
    #[error("{0}; `func_latency doctor` says more")]
    Pmu(#[from] PmuError),
    /// A setting that cannot be.
    #[error(transparent)]
    Config(#[from] PtConfigError),
    /// More than this process may have.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There is no such process.
    #[error("-p {}: there is no such process", .0.0)]
    NoProcess(Pid),
    /// A thread was named as a process.
    #[error("-p {}: a thread of process {}: -p {} for all of that, -T {} for the thread alone", tid.0, process.0, process.0, tid.0)]
    NoLeader {
        /// The thread.
        tid: Tid,
        /// Its process.
        process: Pid,
    },
    /// There is no such thread.
    #[error("-T {}: there is no such thread", .0.0)]
    NoThread(Tid),
    /// There is no such CPU, or it is switched off.
    #[error("-C {}: there is no such CPU; those that run are {online}", cpu.0)]
    NoCpu {
        /// Which.
        cpu: Cpu,
        /// Those that there are.
        online: CpuList,
    },
    /// All that was to be traced ended before it could be.
    #[error("all threads ended before they could be traced")]
    AllGone,
    /// The program cannot be executed.
    #[error("cannot execute {program}: {error}")]
    Program {
        /// Its name.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The kernel does not open an event.
    #[error("cannot trace {whom}: {}", why_not_opened(*.errno, *.paranoid, *.capabilities))]
    Open {
        /// The thread or CPU.
        whom: String,
        /// What the kernel says.
        errno: i32,
        /// `kernel.perf_event_paranoid`.
        paranoid: Option<i64>,
        /// What this process may (`CapEff`).
        capabilities: u64,
    },
    /// What a process has mapped cannot be read: nothing of its code would be known.
    #[error("cannot read what process {} has mapped (/proc/{}/maps): run as root, or: {SETCAP}", .0.0, .0.0)]
    NotReadable(Pid),
    /// The kernel does not map a buffer.
    #[error("cannot map {}: {}", buffers(.plan), why_not_mapped(*.errno, .plan, *.limit, *.available_bytes))]
    Map {
        /// All of them.
        plan: Plan,
        /// What the kernel says.
        errno: i32,
        /// What may be locked; `None`: as much as there is.
        limit: Option<LockLimit>,
        /// Memory that is free.
        available_bytes: Option<u64>,
    },
    /// The kernel does not take an IP filter.
    #[error("-i: the kernel refuses the filter `{filter}`: {}", why_not_filtered(*.errno))]
    Filter {
        /// The filter.
        filter: String,
        /// What the kernel says.
        errno: i32,
    },
    /// Times of the trace cannot be told in perf's clock.
    #[error("the kernel's clock here is not the TSC, so nothing in a trace has a time; {remedy}")]
    NoClock {
        /// What helps.
        remedy: &'static str,
    },
    /// The file cannot be written.
    #[error("cannot write {path}: {error}")]
    Output {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Anything else that the system refuses.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl RecordError {
    /// It is the command line that is wrong, not the machine.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Config(_)
                | Self::NoProcess(_)
                | Self::NoLeader { .. }
                | Self::NoThread(_)
                | Self::NoCpu { .. }
                | Self::Program { .. }
                | Self::AllGone
        )
    }

    /// Smaller buffers may be mapped.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::Map { errno: libc::EPERM | libc::ENOMEM, .. })
    }

    pub(crate) fn open(whom: String, error: &io::Error, proc: &Proc) -> Self {
        let paranoid = proc.setting("kernel/perf_event_paranoid");
        Self::Open {
            whom,
            errno: error.raw_os_error().unwrap_or(0),
            paranoid,
            capabilities: capabilities(proc),
        }
    }

    pub(crate) fn program(words: &[OsString], error: io::Error) -> Self {
        let program = words.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned());
        Self::Program { program, error }
    }

    pub(crate) fn map(plan: Plan, error: &io::Error, proc: &Proc) -> Self {
        let cpus = CpuList::online(Path::new("/sys")).0.len();
        let (limit, available_bytes) = (LockLimit::here(proc, cpus), proc.memory_available_bytes());
        Self::Map { plan, errno: error.raw_os_error().unwrap_or(0), limit, available_bytes }
    }
}

/// Prints the descriptors of all events that are open.
const WHO_HAS_EVENTS: &str = "find /proc/[0-9]*/fd -lname '*perf_event*'";

fn why_not_opened(errno: i32, paranoid: Option<i64>, capabilities: u64) -> String {
    let setting = paranoid.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    match errno {
        libc::EACCES | libc::EPERM if permission::is_for_root_only(paranoid, capabilities) => format!(
            "not permitted (kernel.perf_event_paranoid is {setting}; beyond 2 the kernels of Debian and Ubuntu permit perf to \
             CAP_SYS_ADMIN alone): run as root, or: sudo sysctl kernel.perf_event_paranoid=2, and for programs of others \
             and whole CPUs: {SETCAP}"
        ),
        libc::EACCES | libc::EPERM if capabilities & (CAP_PERFMON | CAP_SYS_ADMIN) != 0 => {
            "not permitted, although this process has CAP_PERFMON: a container's seccomp profile forbids it \
             (docker run --security-opt seccomp=unconfined, or record on the host)"
                .to_owned()
        }
        libc::EACCES | libc::EPERM => format!(
            "not permitted (kernel.perf_event_paranoid is {setting}, and this user has no CAP_PERFMON): run as root, or: \
             {SETCAP}; without that only programs of one's own can be traced, and no whole CPUs"
        ),
        libc::EBUSY => {
            format!(
                "another tracer has it: end that one first (sudo {WHO_HAS_EVENTS} shows by /proc/PID/fd/N who has events)"
            )
        }
        libc::EMFILE | libc::ENFILE => {
            "too many open files: ulimit -n $(cat /proc/sys/fs/nr_open), or one buffer a thread (-t)"
                .to_owned()
        }
        libc::ENODEV | libc::ENOENT | libc::EOPNOTSUPP => {
            "this processor or kernel cannot: `func_latency doctor` says more".to_owned()
        }
        libc::EINVAL => {
            "the kernel refuses these settings: leave out --pt_config, and see `func_latency doctor`"
                .to_owned()
        }
        errno => io::Error::from_raw_os_error(errno).to_string(),
    }
}

/// `8 buffers of 64 MB`; each is a power of two.
fn buffers(plan: &Plan) -> String {
    let size = match plan.trace_bytes >> 20 {
        0 => format!("{} KB", plan.trace_bytes >> 10),
        megabytes => format!("{megabytes} MB"),
    };
    match plan.buffers {
        1 => format!("a buffer of {size}"),
        count => format!("{count} buffers of {size}"),
    }
}

fn why_not_mapped(errno: i32, plan: &Plan, limit: Option<LockLimit>, available_bytes: Option<u64>) -> String {
    let needed_bytes = plan.bytes();
    let needed_kb = needed_bytes / 1024;
    match errno {
        libc::EPERM => {
            let (value, setting) = limit.map_or_else(Default::default, |limit| {
                let setting_kb = limit.setting_for(needed_bytes);
                (limit.to_string(), format!("sudo sysctl kernel.perf_event_mlock_kb={setting_kb}, or "))
            });
            format!(
                "{needed_kb} KB in all are more than may be locked ({value}; other recordings of this user count, too): a \
                 smaller -m, or {setting}ulimit -l unlimited (as root), or: {SETCAP}"
            )
        }
        libc::ENOMEM => {
            let free =
                available_bytes.map_or_else(String::new, |bytes| format!(" ({} KB are free)", bytes / 1024));
            format!("{needed_kb} KB in all are more memory than there is{free}: a smaller -m")
        }
        libc::EINVAL => "the kernel wants a smaller one: a smaller -m".to_owned(),
        errno => io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn why_not_filtered(errno: i32) -> String {
    match errno {
        libc::EOPNOTSUPP => {
            "more ranges than the processor has, or whole CPUs: name fewer functions, or record without -i"
                .to_owned()
        }
        libc::ENOENT => "the file is not there any more: record without -i".to_owned(),
        libc::EINVAL => "a range of the filter is empty or no code: record without -i".to_owned(),
        errno => format!("{}: record without -i", io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use perfdata::write::Attr;

    use super::*;
    use crate::events::dummy;
    use crate::plan::Layout;
    use crate::sys::{EventFd, Scope};

    #[test]
    fn refusals_name_setting_value_and_remedy() {
        let text = |errno, paranoid, capabilities| {
            RecordError::Open { whom: "thread 7".into(), errno, paranoid, capabilities }.to_string()
        };
        let denied = text(libc::EACCES, Some(2), 0);
        assert!(denied.starts_with("cannot trace thread 7: not permitted (kernel.perf_event_paranoid is 2"));
        assert!(denied.contains("setcap cap_bpf,cap_perfmon"));
        for capabilities in [0, CAP_PERFMON] {
            let denied = text(libc::EACCES, Some(4), capabilities);
            assert!(denied.contains("sysctl kernel.perf_event_paranoid=2"), "{denied}");
        }
        for (paranoid, capabilities) in
            [(None, CAP_PERFMON), (Some(2), CAP_PERFMON), (Some(4), CAP_SYS_ADMIN)]
        {
            let denied = text(libc::EPERM, paranoid, capabilities);
            assert!(denied.contains("seccomp"), "root in a container was told to be root: {denied}");
        }
        assert!(text(libc::EBUSY, None, 0).contains("another tracer"));
        let filter = RecordError::Filter { filter: "filter 0x1/0x2@/x".into(), errno: libc::EOPNOTSUPP };
        assert!(filter.to_string().contains("`filter 0x1/0x2@/x`: more ranges"));
    }

    #[test]
    fn buffers_that_cannot_be_mapped_are_told_with_what_there_is() {
        let plan = Plan {
            watched: 0,
            layout: Layout::TasksByCpu,
            buffers: 8,
            trace_bytes: 64 << 20,
            records_bytes: 508 << 10,
            events: 16,
            sized: true,
        };
        let limit = Some(LockLimit { ulimit_bytes: 64 << 10, setting_kb: 516, cpus: 8 });
        let text =
            |errno| RecordError::Map { plan, errno, limit, available_bytes: Some(1 << 28) }.to_string();
        let locked = text(libc::EPERM);
        for part in [
            "cannot map 8 buffers of 64 MB: 528384 KB in all are more than may be locked (",
            "ulimit -l is 64 KB, kernel.perf_event_mlock_kb is 516 for each of 8 CPUs",
            "a smaller -m, or sudo sysctl kernel.perf_event_mlock_kb=66048, or ",
        ] {
            assert!(locked.contains(part), "{part}: {locked}");
        }
        let expect = "cannot map 8 buffers of 64 MB: 528384 KB in all are more memory than there is (262144 KB are free): a smaller -m";
        assert_eq!(text(libc::ENOMEM), expect);
    }

    /// What it printed had no process in it.
    #[test]
    fn the_command_that_finds_other_tracers_names_processes() {
        let attr = dummy(Attr::DISABLED | Attr::EXCLUDE_KERNEL);
        let event = match EventFd::open(&attr, Scope::Thread(Tid(0))) {
            Ok(event) => event,
            Err(why) => return println!("skipped: no events here: {why}"),
        };
        let found = std::process::Command::new("sh").args(["-c", WHO_HAS_EVENTS]).output().unwrap();
        let own = format!("/proc/{}/fd/{}\n", std::process::id(), event.as_fd().as_raw_fd());
        let found = String::from_utf8_lossy(&found.stdout);
        assert!(found.contains(&own), "{own}: {found}");
    }

    #[test]
    fn usage_is_told_from_the_machine() {
        assert!(RecordError::NoProcess(Pid(7)).is_usage());
        assert!(!RecordError::NoClock { remedy: "" }.is_usage());
        let leader = RecordError::NoLeader { tid: Tid(8), process: Pid(7) }.to_string();
        assert_eq!(leader, "-p 8: a thread of process 7: -p 7 for all of that, -T 8 for the thread alone");
        assert_eq!(RecordError::NoThread(Tid(7)).to_string(), "-T 7: there is no such thread");
    }
}
