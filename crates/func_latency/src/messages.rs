//! What is said on stderr.

use std::io::{Write, stderr};
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};

use analyzer::Violation;

use crate::exit::Failure;
use crate::printable::printable;

/// Something that the user should know before trusting the result.
pub(crate) fn warn(message: impl std::fmt::Display) {
    say("warning", &message.to_string());
}

/// Something that is good to know.
pub(crate) fn note(message: impl std::fmt::Display) {
    say("note", &message.to_string());
}

/// The program that was traced has not ended well.
pub(crate) fn program_failed(status: ExitStatus) {
    warn(format!("the program failed: {status}"));
}

/// The report contradicts itself, which is a defect of this program. `name`: of the function that this is of.
pub(crate) fn inconsistent(violation: &Violation, name: Option<String>) {
    let function = name.map_or_else(String::new, |name| format!("{name}: "));
    say("error", &format!("--check: {function}{violation}"));
}

/// An error, with all its causes on one line.
pub(crate) fn error(error: &anyhow::Error) {
    // A cause that its own error repeats is said once.
    let mut said = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if said.is_empty() {
            said = text;
        } else if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
    }
    say("error", &said);
    let choices =
        error.chain().filter_map(|cause| cause.downcast_ref::<Failure>()).flat_map(Failure::choices);
    for choice in choices {
        let _ = writeln!(stderr(), "  {}", printable(choice));
    }
}

/// Says it on one line: a name in it begins no other.
fn say(kind: &str, message: &str) {
    let line = format!("func_latency: {kind}: {}", printable(message));
    match &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(held) => held.push(line),
        None => write(&line),
    }
}

fn write(line: &str) {
    // The reader may have gone, which is no reason to stop.
    let _ = writeln!(stderr(), "{line}");
}

/// Messages that wait while a full screen has the terminal; `None`: none wait.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// A full screen has the terminal.
pub(crate) fn are_held() -> bool {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// While it lives messages wait. Then they are written.
pub(crate) struct HeldMessages(());

impl HeldMessages {
    pub(crate) fn new() -> Self {
        *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        Self(())
    }

    /// The messages from the `from`-th on.
    pub(crate) fn since(&self, from: usize) -> Vec<String> {
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().and_then(|held| held.get(from..)).unwrap_or_default().to_vec()
    }
}

impl Drop for HeldMessages {
    fn drop(&mut self) {
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
        held.into_iter().flatten().for_each(|line| write(&line));
    }
}

/// `a, b, c and 7 more`.
pub(crate) fn list(items: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = items.get(..SHOWN).unwrap_or(items).join(", ");
    match items.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let items: Vec<String> = (0..7).map(|i| i.to_string()).collect();
        assert_eq!(list(&items[..5]), "0, 1, 2, 3, 4");
        assert_eq!(list(&items), "0, 1, 2, 3, 4 and 2 more");
    }
}
