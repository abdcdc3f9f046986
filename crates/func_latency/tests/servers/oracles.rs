//! What counts and times the same: `perf stat` on probes of its own, the switches that perf records, and the
//! kernel's sums of each thread.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use crate::probing::{TICK_NS, signal, stolen_ns};
use crate::rows::Row;
use crate::server::{Missing, Running};

/// The C library of Debian.
pub(crate) const C_LIBRARY: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// What two clocks or roundings may differ by: a hundredth, or so much.
const AT_LEAST_NS: u64 = 100_000;

fn allowed_ns(of: u64) -> u64 {
    (of / 100).max(AT_LEAST_NS)
}

/// A perf that has been told to begin, and has said that it did.
struct Perf {
    perf: Running,
    directory: TempDir,
    /// It began in between, by `CLOCK_MONOTONIC`.
    began: (u64, u64),
}

/// What perf has said, and when it did: both by `CLOCK_MONOTONIC`.
struct Said {
    directory: TempDir,
    /// It began in between.
    began: (u64, u64),
    /// It ended in between.
    ended: (u64, u64),
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Perf {
    const OUTPUT: &'static str = "output";

    fn start(words: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let [control, answers] = ["control", "answers"].map(|name| fifo(&path(name)));
        let fifos = format!("--control=fifo:{},{}", path("control").display(), path("answers").display());
        let mut perf = Command::new("perf");
        perf.args(words).args(["-D", "-1", &fifos, "-o"]).arg(path(Self::OUTPUT));
        let perf =
            perf.stdout(Stdio::null()).stderr(File::create(path("messages")).unwrap()).spawn().unwrap();
        let began = enable(control, answers);
        Self { perf: Running(perf), directory, began }
    }

    /// It has ended.
    fn end(mut self) -> Said {
        let asked_at = now_ns();
        signal(self.perf.0.id(), "INT");
        self.perf.0.wait().unwrap();
        Said { directory: self.directory, began: self.began, ended: (asked_at, now_ns()) }
    }
}

/// Tells a perf to begin; it did in between.
fn enable(mut control: File, mut answers: File) -> (u64, u64) {
    let asked_at = now_ns();
    control.write_all(b"enable\n").unwrap();
    let mut answer = [0; 4];
    answers.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ack\n");
    (asked_at, now_ns())
}

fn fifo(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    // Open for both, so that neither end waits for the other one.
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// How often a function was entered in perf's window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) calls: u64,
    began: (u64, u64),
    ended: (u64, u64),
}

impl Count {
    /// perf's count is that of our calls that were entered in the same window: those that certainly were, and
    /// any of those at its two edges, where it began and ended in an instant that is not known exactly.
    pub(crate) fn agrees(&self, name: &str, rows: &[Row]) {
        let entered = |from_ns, to_ns| {
            rows.iter().filter(|row| row.is_entered && (from_ns..to_ns).contains(&row.start_ns)).count()
                as u64
        };
        let (least, most) = (entered(self.began.1, self.ended.0), entered(self.began.0, self.ended.1));
        println!("{name}: {least} to {most} calls, and {} by perf", self.calls);
        assert!(self.calls > 0, "{name}: no load");
        assert!((least..=most).contains(&self.calls), "{name}: {least} to {most}, not {}", self.calls);
    }
}

impl Count {
    /// Whether a span lies in perf's window, all of it, or any.
    pub(crate) const fn has(&self, (from_ns, to_ns): (u64, u64), all: bool) -> bool {
        if all {
            self.began.1 <= from_ns && to_ns <= self.ended.0
        } else {
            from_ns <= self.ended.1 && self.began.0 <= to_ns
        }
    }
}

/// Counts of functions' entries.
pub(crate) struct Counts {
    perf: Perf,
    events: Events,
}

impl Counts {
    /// Of functions, each by its file and its name there, in these processes and the threads that are born to
    /// them.
    pub(crate) fn start(functions: &[(&str, &str)], pids: &str) -> Result<Self, Missing> {
        let events = Events::place(functions)?;
        let mut words = vec!["stat", "-x,", "-p", pids];
        events.names.iter().for_each(|name| words.extend(["-e", name]));
        Ok(Self { perf: Perf::start(&words), events })
    }

    /// In the order of the functions.
    pub(crate) fn end(self) -> Vec<Count> {
        let Said { directory, began, ended } = self.perf.end();
        let text = std::fs::read_to_string(directory.path().join(Perf::OUTPUT)).unwrap();
        // COUNT,UNIT,EVENT,...
        let count = |name: &String| {
            let line = text.lines().find(|line| line.split(',').nth(2) == Some(name));
            let count = line.and_then(|line| line.split(',').next()?.parse().ok());
            assert!(count.is_some(), "{name}: {text}");
            Count { calls: count.unwrap(), began, ended }
        };
        self.events.names.iter().map(count).collect()
    }
}

/// Probes that perf has placed; they go with this.
struct Events {
    group: String,
    names: Vec<String>,
}

impl Events {
    fn place(functions: &[(&str, &str)]) -> Result<Self, Missing> {
        let server = Path::new(functions[0].0).file_name().unwrap().to_str().unwrap();
        let group = format!("test_{}_{server}", std::process::id());
        let mut events = Self { group, names: Vec::new() };
        for (index, (file, function)) in functions.iter().enumerate() {
            // perf wants other names in other groups, too.
            let name = format!("{0}:{0}_{index}", events.group);
            place(file, function, &name)?;
            events.names.push(name);
        }
        Ok(events)
    }
}

fn place(file: &str, function: &str, name: &str) -> Result<(), Missing> {
    /// Two at a time may refuse each other, and other processes may have one, too.
    static ALONE: Mutex<()> = Mutex::new(());
    const TRIES: usize = 5;
    let _alone = ALONE.lock();
    let mut said = String::new();
    for _ in 0..TRIES {
        let mut perf = Command::new("perf");
        perf.args(["probe", "-x", file, &format!("{name}={function}")]);
        let output = perf.output().map_err(|error| Missing(format!("perf: {error} (Debian: linux-perf)")))?;
        if output.status.success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(Missing(format!("perf places no probe at {function}: {said}")))
}

impl Drop for Events {
    fn drop(&mut self) {
        // All that had been placed.
        let _ = Command::new("perf").args(["probe", "-q", "-d", &format!("{}:*", self.group)]).status();
    }
}

/// The switches of all threads, as `perf sched record` has them.
pub(crate) struct Switches(Perf);

/// Times off the CPU by thread.
pub(crate) type OffCpu = BTreeMap<i32, Vec<Interval>>;

/// Once off the CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    from_ns: u64,
    /// `None`: it is not over, or there was no record of a switch: there are kernels that have none of one in
    /// 10,000, in which whole switches and the threads' own are missing, and `perf sched timehist` does not
    /// notice.
    to_ns: Option<u64>,
}

impl Switches {
    pub(crate) fn start() -> Self {
        Self(Perf::start(&[
            "record",
            "-q",
            "-a",
            "-k",
            "CLOCK_MONOTONIC",
            "-m",
            "16M",
            "-e",
            "sched:sched_switch",
        ]))
    }

    pub(crate) fn end(self) -> OffCpu {
        let Said { directory, .. } = self.0.end();
        let mut script = Command::new("perf");
        script.args(["script", "--ns", "-F", "time,trace", "-i"]).arg(directory.path().join(Perf::OUTPUT));
        let output = script.stderr(Stdio::null()).output().unwrap();
        let mut off_cpu = OffCpu::new();
        for (at_ns, out, back) in String::from_utf8_lossy(&output.stdout).lines().filter_map(switch) {
            let of_thread = off_cpu.entry(back).or_default();
            match of_thread.last_mut().filter(|interval| interval.to_ns.is_none()) {
                Some(interval) => interval.to_ns = Some(at_ns),
                // It went off without a record.
                None => of_thread.push(Interval { from_ns: at_ns, to_ns: None }),
            }
            off_cpu.entry(out).or_default().push(Interval { from_ns: at_ns, to_ns: None });
        }
        off_cpu
    }
}

/// `48631.871277656: prev_comm=a name prev_pid=6644 prev_prio=.. ==> next_comm=.. next_pid=6902 ..`: the
/// time, the thread that left, and the one that came.
fn switch(line: &str) -> Option<(u64, i32, i32)> {
    let (time, rest) = line.trim_start().split_once(": ")?;
    let (seconds, ns) = time.split_once('.')?;
    let pid = |key| rest.rsplit_once(key)?.1.split(' ').next()?.parse().ok();
    let at_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + ns.parse::<u64>().ok()?;
    Some((at_ns, pid(" prev_pid=")?, pid(" next_pid=")?))
}

/// Each thread's calls have been off the CPU for as long as the switches say.
pub(crate) fn off_cpu_agrees(rows: &[Row], switches: &OffCpu) {
    let mut sums: BTreeMap<i32, (u64, u64)> = BTreeMap::new();
    let mut missed = 0;
    for row in rows.iter().filter(|row| row.is_complete) {
        let Some(off_cpu_ns) = off_cpu_ns(row, switches) else {
            missed += 1;
            continue;
        };
        let (ours, theirs) = sums.entry(row.tid).or_default();
        *ours += row.off_cpu_ns;
        *theirs += off_cpu_ns;
    }
    for (tid, (ours, theirs)) in sums {
        assert!(ours.abs_diff(theirs) <= allowed_ns(theirs), "thread {tid}: {ours} ns, and {theirs} ns");
    }
    // Some kernels leave switches out, of one call in 25 where CPUs are often idle; most must be there to be
    // compared with.
    assert!(missed <= 8 + rows.len() / 10, "perf has missed switches of {missed} calls of {}", rows.len());
}

/// Of a call: its intervals are in order, and either in it or not.  `None`: not all are known.
fn off_cpu_ns(row: &Row, switches: &OffCpu) -> Option<u64> {
    inside(row, switches).map(|interval| Some(interval.to_ns? - interval.from_ns)).sum()
}

fn inside<'s>(row: &Row, switches: &'s OffCpu) -> impl DoubleEndedIterator<Item = &'s Interval> {
    let intervals = switches.get(&row.tid).map_or(&[][..], Vec::as_slice);
    let before = |at_ns| intervals.partition_point(|interval| interval.from_ns < at_ns);
    intervals[before(row.start_ns)..before(row.start_ns + row.latency_ns)].iter()
}

/// What threads take on CPUs, as the kernel sums it up (`/proc/PID/task/TID/schedstat`).
pub(crate) struct OnCpu {
    /// Time that interrupts and other virtual machines took, which threads do not have.
    stolen_ns: u64,
}

/// On the CPU since their births, by thread.
pub(crate) struct OnCpuSums {
    threads: BTreeMap<i32, u64>,
    stolen_ns: u64,
}

impl OnCpu {
    pub(crate) fn start() -> Self {
        Self { stolen_ns: stolen_ns() }
    }

    /// Of the threads of a process.
    pub(crate) fn end(self, pid: u32) -> OnCpuSums {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map_while(Result::ok);
        let sum = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            let tid = task.file_name().to_str()?.parse().ok()?;
            Some((tid, text.split_whitespace().next()?.parse().ok()?))
        };
        OnCpuSums { threads: tasks.filter_map(sum).collect(), stolen_ns: stolen_ns() - self.stolen_ns }
    }
}

impl OnCpuSums {
    /// What a thread may take before its first function is entered.
    const BIRTH_NS: u64 = 2_000_000;

    /// Each of these calls is all of its thread's life, and goes on.
    pub(crate) fn agrees(&self, rows: &[Row], switches: &OffCpu) {
        // What it is in at its end is not over.
        let missed =
            |row: &&Row| inside(row, switches).rev().skip(1).any(|interval| interval.to_ns.is_none());
        let (lacking, whole): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(missed);
        assert!(!rows.is_empty());
        if lacking.len() == rows.len() {
            println!(
                "skipped: the kernel has left out switches of every thread, so that no sum of them is known"
            );
        }
        for row in whole {
            let (ours, theirs) = (row.latency_ns - row.off_cpu_ns, self.threads[&row.tid]);
            println!(
                "thread {}: {ours} ns on the CPU, and {theirs} ns; {} ns stolen",
                row.tid, self.stolen_ns
            );
            let least = theirs.saturating_sub(allowed_ns(theirs) + Self::BIRTH_NS);
            // What was stolen is told in ticks, rounded down.
            let most = theirs + allowed_ns(theirs) + self.stolen_ns + TICK_NS;
            assert!((least..=most).contains(&ours), "thread {}: {ours} ns, not {least} to {most}", row.tid);
        }
    }
}
