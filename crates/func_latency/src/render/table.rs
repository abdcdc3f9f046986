//! Aligned columns.

use std::io::{self, Write};
use std::iter::{once, repeat};

use crate::printable::printable;

/// On which side a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
    /// Bars: where the line has no room for them, they are left out.
    Bar,
}

/// A table that is as wide as its cells need.
///
/// The first column is the one with long names: where one does not fit, it gets a line of its own, so that no
/// name is ever cut.
#[derive(Debug)]
pub struct Table {
    titles: Vec<(&'static str, Align)>,
    rows: Vec<TableRow>,
}

#[derive(Debug)]
struct TableRow {
    cells: Vec<String>,
    /// Lines below the cells.
    notes: Vec<String>,
}

/// The least columns that names get.
const NAMES_AT_LEAST: usize = 20;

/// How far a note is indented.
const NOTE_INDENT: usize = 6;

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(titles: &[(&'static str, Align)]) -> Self {
        Self { titles: titles.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; its cells may be names, so they are made printable.
    pub fn row(&mut self, cells: Vec<String>) {
        self.row_with_notes(cells, &[]);
    }

    /// Adds a row with lines below it: what there may be no room for in a column.
    pub fn row_with_notes(&mut self, cells: Vec<String>, notes: &[String]) {
        let printables = |texts: &[String]| texts.iter().map(|text| printable(text)).collect();
        self.rows.push(TableRow { cells: printables(&cells), notes: printables(notes) });
    }

    /// Writes the table, indented by two, into `width` columns if it can.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let widths = self.widths(width);
        let titles: Vec<&str> = self.titles.iter().map(|(title, _)| *title).collect();
        self.line(out, &widths, &titles)?;
        for TableRow { cells, notes } in &self.rows {
            let mut cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            if let (Some(name), Some(&Some(limit))) = (cells.first_mut(), widths.first())
                && chars(name) > limit
            {
                writeln!(out, "  {name}")?;
                *name = "";
            }
            self.line(out, &widths, &cells)?;
            for note in notes {
                wrapped(note, width.saturating_sub(NOTE_INDENT))
                    .try_for_each(|line| writeln!(out, "{:NOTE_INDENT$}{line}", ""))?;
            }
        }
        Ok(())
    }

    /// Width of each column; the first is limited to what the others leave. `None`: it is left out.
    fn widths(&self, width: usize) -> Vec<Option<usize>> {
        let cell = |row: &TableRow, i: usize| row.cells.get(i).map_or(0, |cell| chars(cell));
        let widest = |(i, (title, _)): (usize, &(&str, Align))| {
            Some(self.rows.iter().map(|row| cell(row, i)).max().unwrap_or(0).max(chars(title)))
        };
        let mut widths: Vec<Option<usize>> = self.titles.iter().enumerate().map(widest).collect();
        let left_of = |widths: &[Option<usize>]| {
            let others = widths.iter().skip(1).flatten();
            width.saturating_sub(2 + others.map(|column| column + 2).sum::<usize>())
        };
        let names = widths.first().copied().flatten().unwrap_or_default().min(NAMES_AT_LEAST);
        let bar = self.titles.iter().position(|(_, align)| *align == Align::Bar);
        let has_room = left_of(&widths) >= names;
        if let Some(bar) = bar.filter(|_| !has_room).and_then(|bar| widths.get_mut(bar)) {
            *bar = None;
        }
        let limit = left_of(&widths).max(NAMES_AT_LEAST);
        if let Some(Some(first)) = widths.first_mut().filter(|first| **first > Some(limit)) {
            // What does not fit has a line of its own and needs no room here.
            *first = self.rows.iter().map(|row| cell(row, 0)).filter(|w| *w <= limit).max().unwrap_or(0);
            *first = (*first).max(self.titles.first().map_or(0, |(title, _)| chars(title)));
        }
        widths
    }

    fn line(&self, out: &mut dyn Write, widths: &[Option<usize>], cells: &[&str]) -> io::Result<()> {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.titles) {
            let Some(width) = width else { continue };
            let padding = " ".repeat(width.saturating_sub(chars(cell)));
            line.push_str("  ");
            match align {
                Align::Left | Align::Bar => line.extend([*cell, &padding]),
                Align::Right => line.extend([&padding, *cell]),
            }
        }
        writeln!(out, "{}", line.trim_end())
    }
}

/// Writes a sentence into `width` columns. `indents`: of its first line, and of the others.
pub(in crate::render) fn write_sentence(
    out: &mut dyn Write,
    sentence: &str,
    indents: (usize, usize),
    width: usize,
) -> io::Result<()> {
    let lines = wrapped(sentence, width.saturating_sub(indents.0.max(indents.1)));
    let indents = once(indents.0).chain(repeat(indents.1));
    lines.zip(indents).try_for_each(|(line, indent)| writeln!(out, "{:indent$}{line}", ""))
}

/// Lines of words, each of at most `width` columns if its words are.
fn wrapped(text: &str, width: usize) -> impl Iterator<Item = String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| chars(line) + 1 + chars(word) <= width) {
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines.into_iter()
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// A bar of stars between bars: `|***   |`; something that is not nothing is at least a dot.
#[must_use]
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    let stars = (u128::from(part) * width as u128).checked_div(u128::from(whole)).unwrap_or(0) as usize;
    let stars = stars.min(width);
    let filled = if stars == 0 && part > 0 { ".".to_owned() } else { "*".repeat(stars) };
    format!("|{filled:width$}|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_get_their_own_line() {
        let mut table = Table::new(&[("name", Align::Left), ("count", Align::Right)]);
        table.row(vec!["short".into(), "1".into()]);
        table.row(vec!["a name that is longer than there is room".into(), "22".into()]);
        let mut out = Vec::new();
        table.write(&mut out, 20).unwrap();
        let expected = "  name   count
  short      1
  a name that is longer than there is room
            22
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// Rows with source lines were 225 columns wide.
    #[test]
    fn notes_and_bars_keep_to_the_width() {
        let mut table = Table::new(&[("name", Align::Left), ("total", Align::Right), ("share", Align::Bar)]);
        let line = "a.c:1 inlined at b.c:22 inlined at c.c:333 +2";
        table.row_with_notes(vec!["getCellInfo".into(), "1".into(), bar(1, 1, 10)], &[line.into()]);
        let text = |width| {
            let mut out = Vec::new();
            table.write(&mut out, width).unwrap();
            String::from_utf8(out).unwrap()
        };
        let narrow = "  name         total
  getCellInfo      1
      a.c:1 inlined at b.c:22
      inlined at c.c:333 +2
";
        assert_eq!(text(30), narrow);
        let wide = "  name         total  share
  getCellInfo      1  |**********|
      a.c:1 inlined at b.c:22 inlined at
      c.c:333 +2
";
        assert_eq!(text(40), wide);
    }

    #[test]
    fn bars() {
        assert_eq!(bar(0, 0, 4), "|    |");
        assert_eq!(bar(0, 9, 4), "|    |");
        assert_eq!(bar(1, 900, 4), "|.   |");
        assert_eq!(bar(9, 9, 4), "|****|");
        assert_eq!(bar(u64::MAX, u64::MAX, 4), "|****|");
    }
}
