//! A plot of dots in braille characters: two dots across and four down in each.

use std::fmt::Write as _;

/// What is drawn.  In a character that has several, the last of this list decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ink {
    /// Nothing.
    #[default]
    None,
    /// A call, or the least and the most of several.
    Call,
    /// The median of several calls.
    Median,
    /// A call among the slowest.
    Outlier,
    /// A call that was not seen to end: an arrow, for it took longer.
    Open,
}

impl Ink {
    /// What a terminal is told before it (SGR), if anything. Told apart without seeing red, too: by
    /// brightness.
    const fn colour(self) -> Option<&'static str> {
        match self {
            Self::None | Self::Call => None,
            Self::Median => Some("\x1b[1;36m"),
            Self::Outlier => Some("\x1b[1;31m"),
            Self::Open => Some("\x1b[33m"),
        }
    }
}

const PLAIN: &str = "\x1b[0m";

/// Where in braille's bits the dots of a character are: by row from the top, left and right.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

const ACROSS: usize = 2;
const DOWN: usize = 4;

#[derive(Clone, Copy, Default)]
struct Cell {
    dots: u8,
    ink: Ink,
}

/// Lines of characters; the first is the topmost.
pub(super) struct Canvas {
    columns: usize,
    cells: Vec<Cell>,
}

impl Canvas {
    /// An empty one.
    pub(super) fn new(columns: usize, lines: usize) -> Self {
        Self { columns, cells: vec![Cell::default(); columns * lines] }
    }

    /// Dots across and dots down.
    pub(super) fn dots(columns: usize, lines: usize) -> (usize, usize) {
        (columns * ACROSS, lines * DOWN)
    }

    /// The line of characters that has this row of dots.
    pub(super) const fn line_of(y: usize) -> usize {
        y / DOWN
    }

    /// Sets a dot: `x` from the left, `y` from the top.  Outside, nothing is drawn.
    pub(super) fn draw(&mut self, x: usize, y: usize, ink: Ink) {
        let column = x / ACROSS;
        let index = y / DOWN * self.columns + column;
        if let Some(cell) = self.cells.get_mut(index).filter(|_| column < self.columns) {
            cell.dots |= DOTS[y % DOWN][x % ACROSS];
            cell.ink = cell.ink.max(ink);
        }
    }

    /// The text of each line, without blanks at its end.
    pub(super) fn lines(&self, colour: bool) -> impl Iterator<Item = String> + '_ {
        self.cells.chunks(self.columns.max(1)).map(move |cells| line(cells, colour))
    }
}

fn line(cells: &[Cell], colour: bool) -> String {
    let used = cells.iter().rposition(|cell| cell.ink != Ink::None).map_or(0, |last| last + 1);
    let mut text = String::new();
    for cell in cells.iter().take(used) {
        match cell.ink.colour().filter(|_| colour) {
            // A string takes everything.
            Some(code) => drop(write!(text, "{code}{}{PLAIN}", character(*cell))),
            None => text.push(character(*cell)),
        }
    }
    text
}

fn character(cell: Cell) -> char {
    match cell.ink {
        Ink::None => ' ',
        Ink::Open => '↑',
        _ => char::from_u32(0x2800 + u32::from(cell.dots)).unwrap_or(' '),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(dots: &[(usize, usize, Ink)], colour: bool) -> Vec<String> {
        let mut canvas = Canvas::new(3, 2);
        dots.iter().for_each(|(x, y, ink)| canvas.draw(*x, *y, *ink));
        canvas.lines(colour).collect()
    }

    #[test]
    fn each_dot_has_its_bit() {
        let call = |x, y| (x, y, Ink::Call);
        assert_eq!(drawn(&[call(0, 0), call(3, 3), call(5, 7)], false), ["⠁⢀", "  ⢀"]);
        let all: Vec<_> = (0..8).map(|i| call(i % 2, i / 2)).collect();
        assert_eq!(drawn(&all, false), ["⣿", ""]);
    }

    #[test]
    fn what_is_outside_is_not_drawn() {
        assert_eq!(drawn(&[(6, 0, Ink::Call), (0, 8, Ink::Call)], false), ["", ""]);
    }

    #[test]
    fn the_rarest_decides_the_character() {
        let both = [(0, 0, Ink::Outlier), (1, 0, Ink::Call), (2, 0, Ink::Open), (3, 0, Ink::Call)];
        assert_eq!(drawn(&both, false), ["⠉↑", ""]);
        assert_eq!(drawn(&both, true), ["\x1b[1;31m⠉\x1b[0m\x1b[33m↑\x1b[0m", ""]);
        assert_eq!(drawn(&[(0, 0, Ink::Call)], true), ["⠁", ""]);
    }
}
