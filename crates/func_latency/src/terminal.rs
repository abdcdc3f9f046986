//! The terminal that stdout is, if it is one.

use std::io::{IsTerminal, stdout};

/// Columns of text where there is no terminal that has some.
const TEXT_COLUMNS: usize = 120;

/// Columns of a plot where there is none.
const PLOT_COLUMNS: usize = 80;

/// Columns of text on stdout.
pub(crate) fn text_width() -> usize {
    width().unwrap_or(TEXT_COLUMNS)
}

/// Columns of a plot on stdout.
pub(crate) fn plot_width() -> usize {
    width().unwrap_or(PLOT_COLUMNS)
}

fn width() -> Option<usize> {
    let size = stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    size.map(|(width, _)| usize::from(width.0))
}

/// Whether stdout may have colours: <https://no-color.org> turns them off where it is set, and not empty.
pub(crate) fn has_colours() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
