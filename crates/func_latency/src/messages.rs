//! What is said on stderr besides errors.

/// Something that the user should know before trusting the result.
pub(crate) fn warn(message: impl std::fmt::Display) {
    eprintln!("func_latency: warning: {message}");
}

/// Something that is good to know.
pub(crate) fn note(message: impl std::fmt::Display) {
    eprintln!("func_latency: note: {message}");
}

/// An error, with all its causes on one line.
pub(crate) fn error(error: &anyhow::Error) {
    // A cause whose text its own error repeats is said once.
    let mut said = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if said.is_empty() {
            said = text;
        } else if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
    }
    eprintln!("func_latency: error: {said}");
}
