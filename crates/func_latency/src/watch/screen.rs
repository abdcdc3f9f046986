//! The terminal, as long as the view of a watch has it: keys come in, the view goes out, in a thread of its
//! own.
//!
//! ```text
//!   watch  --updates-->  screen  --wishes-->  watch
//!                          \ func_latency show, report --html   of a capture: in a process each
//! ```

use std::env;
use std::fs;
use std::io::{self, IsTerminal, stdin, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType};
use recorder::Interrupts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use crate::bundle_dir::CALL_TEXT;
use crate::messages::{self, HeldMessages};
use crate::render::screen::draw;
use crate::render::screen::figures::{FunctionFigures, IntervalFigures};
use crate::render::screen::state::{KnownCapture, ScreenKey, State, Wish};
use crate::terminal;

/// A key waits for no longer than what came from the watch.
const TICK: Duration = Duration::from_millis(50);

/// What comes to the view.
pub(super) enum Update {
    /// An interval was decoded.
    Interval(Box<IntervalFigures>),
    /// A capture is there.
    Captured { name: String, capture: KnownCapture },
    /// Nothing more will be recorded; all calls, by function.
    Ended(Vec<FunctionFigures>),
    /// An opened call's text.
    Text { path: String, text: String },
    /// Something to be read.
    Message(String),
    /// Once the view was left the watch may still take long, and signals are to end it.
    LetGoWhenLeft(Arc<Interrupts>),
    /// The terminal is to be given back.
    Close,
}

/// The view, from the other side.
pub(super) struct Screen {
    updates: Sender<Update>,
    wishes: Receiver<Wish>,
    thread: Option<JoinHandle<()>>,
}

/// Whether there is a terminal that a view can have.
pub(super) fn is_possible() -> bool {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    // A shell's job in the background is stopped where it changes the terminal.
    let is_in_front = || tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
    stdin().is_terminal() && stdout().is_terminal() && !is_dumb && is_in_front()
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It cannot be switched to raw keys and another screen.
    pub(super) fn open() -> Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| _ = ratatui::try_restore());
        let terminal = terminal.context("cannot take the terminal; --lines does without")?;
        // A terminal may have no other screen: what was written before is in the way. (`Terminal::clear` asks
        // where the cursor is, and waits for an answer.)
        execute!(stdout(), Clear(ClearType::All)).inspect_err(|_| _ = ratatui::try_restore())?;
        let (updates, arrived) = mpsc::channel();
        let (sender, wishes) = mpsc::channel();
        let view = ScreenThread {
            state: State::default(),
            messages: HeldMessages::new(),
            said: 0,
            updates: updates.clone(),
            wishes: sender,
            interrupts: None,
        };
        let thread = Some(thread::spawn(move || view.run(terminal, &arrived)));
        Ok(Self { updates, wishes, thread })
    }

    /// Shows something; nothing, once the view was left.
    pub(super) fn show(&self, update: Update) {
        // The view was left: what is left of the watch goes on without it.
        let _ = self.updates.send(update);
    }

    /// What is wished since.
    pub(super) fn wishes(&self) -> impl Iterator<Item = Wish> {
        self.wishes.try_iter()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.show(Update::Close);
        if let Some(thread) = self.thread.take() {
            // A failure in it was said where it happened.
            let _ = thread.join();
        }
    }
}

/// The thread of the view, which has the terminal.
struct ScreenThread {
    state: State,
    messages: HeldMessages,
    /// Messages that were shown.
    said: usize,
    /// By which the output of commands that it runs comes back to it.
    updates: Sender<Update>,
    wishes: Sender<Wish>,
    /// Let go when the view was left.
    interrupts: Option<Arc<Interrupts>>,
}

/// How the view comes to its end.
enum Ended {
    /// By a key: the watch goes on.
    Left,
    /// The watch closes it.
    Closed,
}

impl ScreenThread {
    /// Shows the view until it is left.
    fn run(mut self, mut terminal: DefaultTerminal, arrived: &Receiver<Update>) {
        let left = self.follow(&mut terminal, arrived);
        if wait_for_input(Duration::ZERO).is_ok() {
            drop(terminal);
            // The rest of the program prints what it can.
            let _ = ratatui::try_restore();
        } else {
            // Where the terminal is gone, dropping it says so on stderr, which fails, and ends this process.
            std::mem::forget(terminal);
        }
        if let Err(error) = &left {
            messages::warn(format!("the terminal is gone: {error}; the watch ends"));
        }
        // Without the view no key can end the watch.
        self.wish(Wish::Leave);
        let Self { messages, interrupts, .. } = self;
        drop(messages);
        if let Some(interrupts) = interrupts.filter(|_| !matches!(left, Ok(Ended::Closed))) {
            // In this thread, which lives until the watch has heard of it.
            interrupts.let_go();
            while !matches!(arrived.recv(), Ok(Update::Close) | Err(_)) {}
        }
    }

    fn follow(&mut self, terminal: &mut DefaultTerminal, arrived: &Receiver<Update>) -> io::Result<Ended> {
        let has_colours = terminal::has_colours();
        let mut drawn = None;
        loop {
            let mut is_new = false;
            for update in arrived.try_iter() {
                is_new = true;
                if matches!(update, Update::Close) {
                    return Ok(Ended::Closed);
                }
                self.take(update);
            }
            for message in self.messages.since(self.said) {
                self.said += 1;
                self.state.say(&message);
                is_new = true;
            }
            while let Some(pressed) = pressed()? {
                is_new = true;
                match key(pressed).and_then(|key| self.state.press(key)) {
                    Some(Wish::Leave) => return Ok(Ended::Left),
                    Some(wish) => self.wish(wish),
                    None => (),
                }
            }
            let size = terminal.size()?;
            if is_new || drawn != Some(size) {
                terminal.draw(|frame| draw(frame, &self.state, has_colours))?;
                drawn = Some(size);
            }
            wait_for_input(TICK)?;
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Interval(figures) => self.state.add(*figures),
            Update::Captured { name, capture } => {
                if let Some(wish) = self.state.captured(&name, capture) {
                    self.wish(wish);
                }
            }
            Update::Ended(total) => self.state.end(total),
            Update::Text { path, text } => self.state.show(path, &text),
            Update::Message(message) => self.state.say(&message),
            Update::LetGoWhenLeft(interrupts) => self.interrupts = Some(interrupts),
            Update::Close => (),
        }
    }

    fn wish(&mut self, wish: Wish) {
        match wish {
            Wish::Show(path) | Wish::WritePage(path) if !Path::new(&path).exists() => {
                self.state.forget(&path);
                self.state.say("its capture was removed, as slower ones are kept; the key makes another one");
            }
            Wish::Show(path) if Path::new(&path).join(CALL_TEXT).exists() => {
                match fs::read_to_string(Path::new(&path).join(CALL_TEXT)) {
                    Ok(text) => self.state.show(path, &text),
                    Err(error) => self.state.say(&format!("{path}/{CALL_TEXT}: {error}")),
                }
            }
            Wish::WritePage(path) if Path::new(&path).join(CALL_TEXT).exists() => {
                self.state.say(
                    "a page needs a trace, and this call was seen by probes; enter opens what is known of it",
                );
            }
            Wish::Show(path) => {
                let words = ["show", "-i", &path].map(str::to_owned);
                self.run_beside(words.into(), |text| Update::Text { path, text });
            }
            Wish::WritePage(path) => {
                self.state.say("the page is being written");
                let page = Path::new(&path).join("page.html").display().to_string();
                let words = ["report", "-i", &path, "--html", &page].map(str::to_owned);
                self.run_beside(words.into(), move |_| Update::Message(format!("page: {page}")));
            }
            // A watch that has ended by itself takes no wishes any more.
            Wish::Capture(_) | Wish::Leave => _ = self.wishes.send(wish),
        }
    }

    /// Runs a command of this program while the watch goes on. `done` gets what it prints.
    fn run_beside(&self, words: Vec<String>, done: impl FnOnce(String) -> Update + Send + 'static) {
        let mut command = Command::new(env::current_exe().unwrap_or_else(|_| "func_latency".into()));
        command.args(words).stdin(Stdio::null());
        let updates = self.updates.clone();
        thread::spawn(move || {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let update = match command.output() {
                Err(error) => Update::Message(format!("cannot start func_latency: {error}")),
                Ok(output) if output.status.success() => done(text(&output.stdout)),
                Ok(output) => {
                    let said = text(&output.stderr);
                    Update::Message(said.lines().last().unwrap_or("func_latency failed").to_owned())
                }
            };
            // The view may have been left meanwhile.
            let _ = updates.send(update);
        });
    }
}

/// Waits for input, no longer than `timeout`. Fails where the terminal is gone: crossterm would read from it
/// for ever.
fn wait_for_input(timeout: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    let stdin = stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => (),
        Err(error) => return Err(error.into()),
    }
    let is_gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match polled.iter().any(|polled| polled.revents().intersects(is_gone)) {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(()),
    }
}

/// The next key, if one was pressed.
fn pressed() -> io::Result<Option<KeyEvent>> {
    wait_for_input(Duration::ZERO)?;
    while event::poll(Duration::ZERO)? {
        if let Event::Key(pressed) = event::read()? {
            return Ok(Some(pressed));
        }
    }
    Ok(None)
}

/// What a key of the terminal means.
fn key(event: KeyEvent) -> Option<ScreenKey> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => ScreenKey::Leave,
        KeyCode::Char('q') => ScreenKey::Leave,
        KeyCode::Char(' ') => ScreenKey::Pause,
        KeyCode::Char('a') => ScreenKey::ToggleSpan,
        KeyCode::Char('c') => ScreenKey::NextSide,
        KeyCode::Char('w') => ScreenKey::WritePage,
        KeyCode::Char('k') | KeyCode::Up => ScreenKey::Up,
        KeyCode::Char('j') | KeyCode::Down => ScreenKey::Down,
        KeyCode::PageUp => ScreenKey::PageUp,
        KeyCode::PageDown => ScreenKey::PageDown,
        KeyCode::Enter => ScreenKey::Open,
        KeyCode::Tab => ScreenKey::NextFunction,
        KeyCode::Esc | KeyCode::Backspace => ScreenKey::Back,
        _ => return None,
    })
}
