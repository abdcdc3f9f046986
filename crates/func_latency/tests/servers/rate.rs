//! Transactions of a load, by the second, as the load itself tells them, and the CPU time that the server
//! took for them.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::server::Running;

/// One second of a load.
#[derive(Clone, Copy, Debug)]
struct Second {
    end: Instant,
    transactions: f64,
    /// Of the server, so far.
    cpu_ns: u64,
}

/// A load that runs, and tells each second's transactions at the second's end.
pub(crate) struct Rate {
    seconds: Arc<Mutex<Vec<Second>>>,
    pids: Arc<Mutex<String>>,
    _load: Running,
}

/// Transactions of some seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// For each second.
    pub(crate) a_second: f64,
    /// For each second that the server was on a CPU: what others do on the machine changes it little.
    pub(crate) a_cpu_second: f64,
}

impl Rate {
    /// `tps` finds the figure in a line of what it says.
    pub(crate) fn of(load: Child, said: impl Read + Send + 'static, tps: fn(&str) -> Option<f64>) -> Self {
        let (seconds, pids) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(String::new())));
        let (keep, of) = (Arc::clone(&seconds), Arc::clone(&pids));
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let Some(transactions) = tps(&line) else { continue };
                let cpu_ns = cpu_ns(&of.lock().unwrap());
                keep.lock().unwrap().push(Second { end: Instant::now(), transactions, cpu_ns });
            }
        });
        Self { seconds, pids, _load: Running(load) }
    }

    /// These processes serve it.
    pub(crate) fn served_by(self, pids: &str) -> Self {
        pids.clone_into(&mut self.pids.lock().unwrap());
        self
    }

    /// What was done in the seconds that were in between; `None`: none was.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Option<Done> {
        let seconds = self.seconds.lock().unwrap();
        let inside: Vec<Second> =
            seconds.iter().filter(|second| (from..=to).contains(&second.end)).copied().collect();
        // The first tells where the others begin.
        let (first, rest) = inside.split_first()?;
        let cpu_ns = rest.last()?.cpu_ns - first.cpu_ns;
        let transactions: f64 = rest.iter().map(|second| second.transactions).sum();
        Some(Done {
            a_second: transactions / rest.len() as f64,
            a_cpu_second: transactions / Duration::from_nanos(cpu_ns).as_secs_f64(),
        })
    }
}

/// Time on the CPU of all threads of processes, in a list with commas.
fn cpu_ns(pids: &str) -> u64 {
    let of_thread = |task: std::fs::DirEntry| {
        let sums = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        sums.split(' ').next()?.parse::<u64>().ok()
    };
    let tasks = pids.split(',').filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
    tasks.flatten().map_while(Result::ok).filter_map(of_thread).sum()
}
