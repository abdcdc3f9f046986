//! Running programs: every failure names the command line that failed.

use std::process::{Child, Command, Stdio};

/// What a chore comes to; the error is for a person to read.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// The command line as one would type it.
pub(crate) fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs to the end, with our own output.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|e| cannot_start(command, &e))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", command_line(command))) }
}

/// Runs to the end, with our own standard output; the last lines of its error output are the error.
pub(crate) fn run_check(command: &mut Command) -> Result {
    let child = command.stderr(Stdio::piped()).spawn();
    let output = child.and_then(Child::wait_with_output).map_err(|e| cannot_start(command, &e))?;
    match last_lines(&String::from_utf8_lossy(&output.stderr), 20) {
        _ if output.status.success() => Ok(()),
        said if said.is_empty() => Err(format!("`{}` failed: {}", command_line(command), output.status)),
        said => Err(said),
    }
}

/// Runs to the end and returns what it printed; its error output is in the error.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| cannot_start(command, &e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = command_line(command);
    Err(format!("`{line}` failed: {}\n{}", output.status, last_lines(&said, 20)))
}

/// The error for a command that did not even start.
pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot run `{}`: {error}", command_line(command))
}

/// Adds to a failure of something that fetches what to think of first.
pub(crate) fn perhaps_no_network(message: String) -> String {
    format!("{message}\nIf there is no network: crates.io and a Debian mirror must be reachable once.")
}

/// The last `count` lines.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The program is on the PATH.
pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let error = capture(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        assert!(error.starts_with("`sh -c echo no such thing"), "{error}");
        assert!(error.contains("exit status: 3\nno such thing"), "{error}");
    }

    #[test]
    fn a_check_that_fails_says_only_why() {
        let error = run_check(Command::new("sh").args(["-c", "echo a: 1 is not 2 >&2; exit 1"])).unwrap_err();
        assert_eq!(error, "a: 1 is not 2");
        let error = run_check(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error, "`sh -c exit 3` failed: exit status: 3");
        assert_eq!(run_check(Command::new("sh").args(["-c", "echo a warning >&2"])), Ok(()));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.starts_with("cannot run `no-such-program-here`"), "{error}");
    }

    #[test]
    fn the_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
