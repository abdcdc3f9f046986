//! Transactions of a load, by the second, as the load itself tells them.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::server::Running;

/// A load that runs, and tells each second's transactions at the second's end.
pub(crate) struct Rate {
    seconds: Arc<Mutex<Vec<(Instant, f64)>>>,
    _load: Running,
}

impl Rate {
    /// `tps` finds the figure in a line of what it says.
    pub(crate) fn of(load: Child, said: impl Read + Send + 'static, tps: fn(&str) -> Option<f64>) -> Self {
        let seconds = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&seconds);
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                keep.lock().unwrap().extend(tps(&line).map(|tps| (Instant::now(), tps)));
            }
        });
        Self { seconds, _load: Running(load) }
    }

    /// The mean of the seconds that were in between; `None`: none was.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Option<f64> {
        let seconds = self.seconds.lock().unwrap();
        let inside = |end: &Instant| *end >= from + Duration::from_secs(1) && *end <= to;
        let rates: Vec<f64> = seconds.iter().filter(|(end, _)| inside(end)).map(|(_, tps)| *tps).collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    }
}
