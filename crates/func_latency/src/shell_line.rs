//! A line of a shell as the words of a program.

use std::ffi::OsString;

/// The program that a line runs: itself, where a shell would do nothing but split it into words, and else the
/// shell. Without a shell nothing runs beside the program, and uprobes find its functions before it starts.
pub(crate) fn program_of(line: &str) -> Vec<OsString> {
    match words(line) {
        Some(words) if !words.is_empty() => words.into_iter().map(OsString::from).collect(),
        _ => ["sh", "-c", line].map(OsString::from).to_vec(),
    }
}

/// Words between blanks, with quotes taken off; `None`: the line needs a shell.
fn words(line: &str) -> Option<Vec<String>> {
    /// What a shell acts on outside of quotes.
    const ACTIVE: &str = "|&;<>()$`\\*?[]{}#~!\n=%";
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        end if end == character => break,
                        '$' | '`' | '\\' if character == '"' => return None,
                        quoted => word.push(quoted),
                    }
                }
            }
            // `a=b` is a setting only before the program's name; `=` and `%` further on are plain.
            '=' | '%' if !words.is_empty() => word.get_or_insert_default().push(character),
            active if ACTIVE.contains(active) => return None,
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_need_no_shell_are_split() {
        let check = |line: &str, expect: &[&str]| assert_eq!(program_of(line), expect, "{line}");
        check("./work 3  --of=a", &["./work", "3", "--of=a"]);
        check("a 'b  c'd \"e'f\" ''", &["a", "b  cd", "e'f", ""]);
        for line in ["a | b", "a > b", "A=1 b", "a $B", "a \"$B\"", "a 'b", "a *.c", "", "a; b", "~/a"] {
            check(line, &["sh", "-c", line]);
        }
    }
}
