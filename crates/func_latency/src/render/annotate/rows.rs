//! The rows of a listing, in their order: what text and page have in common.

use std::cmp::Reverse;

use super::AnnotateView;
use crate::listing::lines::Line;
use crate::listing::{Callees, Spent};
use crate::render::names::{callee_name, file_name};

/// Callees that a row names.
const NAMED: usize = 2;

/// A row of the table.
pub(crate) enum AnnotateRow<'a> {
    /// The line of the instructions that follow.
    Heading(String),
    /// A line, or an instruction.
    Code(CodeRow<'a>),
    /// The number of lines or instructions that were never executed.
    LeftOut(u64),
}

/// A line or an instruction at which calls did something.
pub(crate) struct CodeRow<'a> {
    /// Lines that it is inlined into.
    pub(crate) depth: usize,
    /// What it is called.
    pub(crate) name: String,
    /// Text of the source line, if that is there.
    pub(crate) text: Option<String>,
    /// By group of calls.
    pub(crate) spent: &'a [Spent],
    /// The number of executions is known.
    pub(crate) is_own: bool,
    /// The callees with most time; empty: there are none.
    pub(crate) calls: String,
}

/// The rows of a listing.
pub(crate) fn rows<'a>(view: &AnnotateView<'a>) -> Vec<AnnotateRow<'a>> {
    let mut listed = ListedRows { view: *view, rows: Vec::new(), left_out: 0 };
    match view.lines {
        Some(lines) => lines.iter().for_each(|line| listed.line(line, 0)),
        None => listed.instructions(),
    }
    listed.rest();
    listed.rows
}

/// The rows so far.
struct ListedRows<'a> {
    view: AnnotateView<'a>,
    rows: Vec<AnnotateRow<'a>>,
    /// Rows that were never executed, since the last one that was.
    left_out: u64,
}

impl<'a> ListedRows<'a> {
    fn line(&mut self, line: &'a Line, depth: usize) {
        let name = match (&*line.key.file, line.key.line) {
            ("", _) => "(no line)".to_owned(),
            (file, 0) => format!("{}:?", file_name(file)),
            (file, number) => format!("{}:{number}", file_name(file)),
        };
        let mark = if depth > 0 { " (inlined)" } else { "" };
        let of_inlined = |callee: &_| line.inlined.iter().any(|inlined| inlined.callees.contains_key(callee));
        let callees = line.callees.iter().filter(|(callee, _)| !of_inlined(callee));
        let callees = callees.map(|(callee, times)| (*callee, times.clone())).collect();
        self.row(CodeRow {
            depth,
            name: format!("{name}{mark}"),
            text: self.view.text_of(&line.key),
            spent: &line.spent,
            is_own: line.is_own,
            calls: self.named(&callees),
        });
        if line.spent.iter().any(is_met) {
            line.inlined.iter().for_each(|inlined| self.line(inlined, depth + 1));
            self.rest();
        }
    }

    fn instructions(&mut self) {
        let view = self.view;
        let mut last_line = None;
        for instruction in &view.listing.instructions {
            let line = view.names.line(instruction.place);
            if line != last_line && instruction.spent.iter().any(is_met) {
                self.rest();
                let name = line.clone().unwrap_or_else(|| "(no line)".to_owned());
                self.rows.push(AnnotateRow::Heading(name));
                last_line = line;
            }
            let text = instruction.text.as_deref().unwrap_or("(outside of the function)");
            self.row(CodeRow {
                depth: 1,
                name: format!("{}  {text}", view.names.site(instruction.place)),
                text: None,
                spent: &instruction.spent,
                is_own: instruction.is_own(),
                calls: self.named(&instruction.callees),
            });
        }
    }

    /// Adds a row, unless nothing was done there.
    fn row(&mut self, code: CodeRow<'a>) {
        if !code.spent.iter().any(is_met) {
            self.left_out += 1;
            return;
        }
        self.rest();
        self.rows.push(AnnotateRow::Code(code));
    }

    /// The callees with most time.
    fn named(&self, callees: &Callees) -> String {
        let sum_ns = |times: &[(u64, u64)]| times.iter().map(|(_, ns)| *ns).fold(0, u64::saturating_add);
        let mut by_time: Vec<_> = callees.iter().map(|(callee, times)| (sum_ns(times), *callee)).collect();
        by_time.sort_by_key(|(ns, callee)| (Reverse(*ns), *callee));
        let names =
            by_time.iter().map(|(_, (kind, function))| callee_name(self.view.names, *kind, *function));
        let mut names: Vec<String> = names.collect();
        names.dedup();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        names.truncate(NAMED);
        format!("{}{more}", names.join(", "))
    }

    /// Adds a row for those that were left out.
    fn rest(&mut self) {
        if self.left_out > 0 {
            self.rows.push(AnnotateRow::LeftOut(self.left_out));
            self.left_out = 0;
        }
    }
}

/// Something was done there.
fn is_met(spent: &Spent) -> bool {
    spent.executions > 0 || spent.total_ns() > 0
}
