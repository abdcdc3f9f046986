//! Prose of comments and documents: the words, openings and line widths that `CONTRIBUTING.md` asks for.

use super::Finding;
use super::tree::Tree;

/// Columns of a line of prose.
const WIDTH: usize = 110;

/// Columns of an example in the README: those of a terminal that shows nothing else.
const EXAMPLE_WIDTH: usize = 100;

/// Words of a paragraph, or of an item of a list: more is more than one thought.
const PARAGRAPH: usize = 120;

/// Code has workers, callers and threads, in halves so that this file does not have the words.
const PRONOUNS: [(&str, &str); 4] = [("no", "body"), ("some", "body"), ("who", "ever"), ("who", "m")];

/// A doc comment that begins so means nothing where it is shown alone.
const OPENINGS: [&str; 4] = ["The same ", "Nor ", "...", "As "];

/// The findings of every file of prose.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let code = tree.texts(".rs").flat_map(|(path, text)| of_code(path, text));
    code.chain(tree.texts(".md").flat_map(|(path, text)| of_document(path, text))).collect()
}

fn of_code(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut was_doc = false;
    for (number, line) in (1..).zip(text.lines()) {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
        let is_doc = ["///", "//!"].iter().any(|mark| line.trim_start().starts_with(mark));
        if let Some(comment) = comment {
            let opening = is_doc && !was_doc && is_opening(comment.trim_start());
            let message =
                opening.then(|| "a doc comment begins with a sentence that stands alone".to_owned());
            let messages = message.into_iter().chain(pronoun(comment)).chain(too_wide(line));
            findings.extend(messages.map(|message| Finding::new(path, number, message)));
        }
        was_doc = is_doc;
    }
    findings
}

fn of_document(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    let (mut begin, mut words) = (1, 0);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_table = line.starts_with('|');
        if in_code || is_table || begins_paragraph(line) {
            words = 0;
        }
        if in_code && path == "README.md" && columns(line) > EXAMPLE_WIDTH {
            let message = format!("{} columns of an example; {EXAMPLE_WIDTH} at most", columns(line));
            findings.push(Finding::new(path, number, message));
        }
        if in_code || is_table {
            continue;
        }
        let before = words;
        if before == 0 {
            begin = number;
        }
        words += line.split_whitespace().count();
        if before <= PARAGRAPH && words > PARAGRAPH {
            findings.push(Finding::new(path, begin, format!("a paragraph of more than {PARAGRAPH} words")));
        }
        let wide = too_wide(line).filter(|_| !line.contains("]("));
        let messages = pronoun(line).into_iter().chain(wide);
        findings.extend(messages.map(|message| Finding::new(path, number, message)));
    }
    findings
}

/// An empty line, a heading or an item of a list.
fn begins_paragraph(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    line.is_empty() || number || ["- ", "* ", "#"].iter().any(|mark| line.starts_with(mark))
}

fn is_opening(comment: &str) -> bool {
    OPENINGS.iter().any(|opening| comment.starts_with(opening))
}

fn pronoun(prose: &str) -> Option<String> {
    let mut words = prose.split(|c: char| !c.is_alphanumeric());
    let word = words.find(|word| {
        let word = word.to_lowercase();
        PRONOUNS.iter().any(|(first, second)| word.strip_prefix(first) == Some(second))
    })?;
    Some(format!("`{word}`: name the worker, caller, thread or user"))
}

fn columns(line: &str) -> usize {
    line.chars().count()
}

fn too_wide(line: &str) -> Option<String> {
    let columns = columns(line);
    (columns > WIDTH).then(|| format!("{columns} columns of prose; {WIDTH} at most"))
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    #[test]
    fn openings_pronouns_and_width() {
        let wide = "x".repeat(120);
        let code = [
            "/// The same for no",
            "body.\nfn f() {}\n//! Goes on\n//! As before.\nlet x = 1; // ",
            &wide,
            "\n// ",
            &wide,
        ];
        let found = check(&Tree::of(&[("a.rs", &code.concat())]));
        let word = ["no", "body"].concat();
        assert_eq!(
            shown(&found),
            [
                "a.rs:1: a doc comment begins with a sentence that stands alone".to_owned(),
                format!("a.rs:1: `{word}`: name the worker, caller, thread or user"),
                "a.rs:6: 123 columns of prose; 110 at most".to_owned(),
            ]
        );
    }

    #[test]
    fn paragraphs_and_items_have_a_length() {
        let words = "a word\n".repeat(40);
        let text = format!(
            "# Head\n{words}\n- {words}- {words}1. {words}\n{words}{words}\n```\n{words}{words}```\n"
        );
        let found = shown(&check(&Tree::of(&[("a.md", &text)])));
        assert_eq!(found, ["a.md:164: a paragraph of more than 120 words"]);
    }

    #[test]
    fn tables_links_and_programs_may_be_wide() {
        let wide = "x".repeat(120);
        let text = format!("| {wide} |\n[a](b) {wide}\n```\n{wide}\n```\n{wide}\n");
        assert_eq!(
            shown(&check(&Tree::of(&[("a.md", &text)]))),
            ["a.md:6: 120 columns of prose; 110 at most"]
        );
        let findings = check(&Tree::of(&[("README.md", &format!("```\n{wide}\n```\n"))]));
        assert_eq!(shown(&findings), ["README.md:2: 120 columns of an example; 100 at most"]);
    }
}
