//! What makes a capture without being in the trace: SIGUSR2, and the exit of a command.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::{Context as _, Result};
use model::{Ns, TscClock};
use recorder::UserSignal;

/// Time between two looks, and so how exactly the time of an event is known.
const POLLED: Duration = Duration::from_millis(2);

/// SIGUSR2 has come, or a command has exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// What, in words.
    pub(super) trigger: String,
    /// Short, for the name of the capture.
    pub(super) name: &'static str,
    /// The watch ends with it.
    pub(super) ends: bool,
}

/// Hears of SIGUSR2 and of the exit of the command of `--until`.
pub(super) struct Listener {
    signal: UserSignal,
    /// The command of `--until` and, if it has begun, its process.
    command: Option<(String, Option<Child>)>,
}

impl Listener {
    /// From here on SIGUSR2 does not end this process. `until`: a command.
    ///
    /// # Errors
    /// The signal cannot be held back.
    pub(super) fn new(until: Option<&str>) -> Result<Self> {
        let signal = UserSignal::hold().context("cannot hold SIGUSR2 back")?;
        Ok(Self { signal, command: until.map(|text| (text.to_owned(), None)) })
    }

    /// The watch begins: starts the command, which has no terminal if a view has it.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn begin(&mut self, on_screen: bool) -> Result<()> {
        let Some((text, running)) = &mut self.command else { return Ok(()) };
        let mut child = Command::new("sh");
        child.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::null());
        if on_screen {
            child.stderr(Stdio::null());
        }
        *running = Some(child.spawn().with_context(|| format!("--until {text}: cannot start sh"))?);
        Ok(())
    }

    /// The events since the last call.
    pub(super) fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while self.signal.take() {
            events.push(Event { trigger: "SIGUSR2".to_owned(), name: "signal", ends: false });
        }
        if let Some((text, Some(child))) = &mut self.command
            && let Ok(Some(status)) = child.try_wait()
        {
            events.push(Event { trigger: format!("{text}: {status}"), name: "until", ends: true });
            self.command = None;
        }
        events
    }

    /// The events since the last call, and those up to the command's exit.
    pub(super) fn wait(&mut self) -> Vec<Event> {
        if let Some((_, Some(child))) = &mut self.command {
            // What cannot be waited for is polled.
            let _ = child.wait();
        }
        self.poll()
    }
}

/// How a watch learns of events outside of the trace.
pub(super) enum Outside {
    /// Looked for with each part.
    Polled(Listener),
    /// Heard of when it happens.
    Heard(Heard<Option<Ns>>),
}

impl Outside {
    /// The events since the last call; one of which the time is not known has `time`. `waits`: for the exit
    /// of the command of `--until`, too, unless it is heard of.
    pub(super) fn events(&mut self, time: Ns, waits: bool) -> Vec<(Ns, Event)> {
        match self {
            Self::Polled(listener) => {
                let events = if waits { listener.wait() } else { listener.poll() };
                events.into_iter().map(|event| (time, event)).collect()
            }
            Self::Heard(heard) => {
                heard.take().into_iter().map(|(at, event)| (at.unwrap_or(time), event)).collect()
            }
        }
    }
}

/// Events, each with a stamp of its moment, from a thread that listens until this is dropped.
pub(super) struct Heard<T> {
    events: Receiver<(T, Event)>,
    _until_dropped: Sender<()>,
}

impl Heard<Option<Ns>> {
    /// Times are those of `clock`, the recording's: when a piece of it comes says nothing, as it may have
    /// waited for the one before to be decoded.
    pub(super) fn by(listener: Listener, clock: Option<TscClock>) -> Self {
        Self::stamped(listener, move || clock.map(recorder::perf_clock_now))
    }
}

impl<T: Send + 'static> Heard<T> {
    /// `stamp` is asked when something happens.
    pub(super) fn stamped(mut listener: Listener, stamp: impl Fn() -> T + Send + 'static) -> Self {
        let (until_dropped, stop) = mpsc::channel();
        let (sender, events) = mpsc::channel();
        std::thread::spawn(move || {
            while stop.recv_timeout(POLLED) == Err(RecvTimeoutError::Timeout) {
                for event in listener.poll() {
                    // Nothing is captured any more.
                    let _ = sender.send((stamp(), event));
                }
            }
        });
        Self { events, _until_dropped: until_dropped }
    }

    /// The events since the last call.
    pub(super) fn take(&self) -> Vec<(T, Event)> {
        self.events.try_iter().collect()
    }
}
