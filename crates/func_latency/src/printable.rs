//! Text that came from the traced program, on its way to a terminal.
//!
//! Names of symbols, files and threads are whatever their makers wrote there: with line ends they would
//! forge lines of a report or messages of ours, with control characters move the cursor, change colours or
//! answer for the user; with marks for the direction of writing they would turn what stands beside them, on
//! a page in a browser, too.
//!
//! ```text
//! names      printable where they are formatted: NamesFor, with_printable, Table, messages
//! streams    Printable, for what a name that was forgotten could do; lines end as we end them
//! machines   (JSON, CSV, pprof, traces) have the names as they are, and quote them by their own rules
//! ```

use std::io::{self, Write};

/// Writes `\u{1b}` for the character with that number, and likewise for each control character but line ends
/// and tabs, and each mark for the direction of writing.
///
/// Each write must hold whole characters, as `write!` has it.
pub(crate) struct Printable<W>(pub(crate) W);

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut rest = text;
        while let Some(at) = rest.iter().position(|byte| may_control(*byte)) {
            let (plain, from) = rest.split_at(at);
            self.0.write_all(plain)?;
            let (character, len) = match from {
                // The controls of U+0080 to U+009F; what else begins with this byte is a letter or sign.
                [0xc2, low, ..] => (u32::from(*low), 2),
                [0xd8, 0x9c, ..] => (0x61c, 2),
                [0xe2, high @ 0x80..=0x81, low, ..] => (u32::from(*high) << 6 | u32::from(*low & 0x3f), 3),
                [byte, ..] => (u32::from(*byte), 1),
                [] => break,
            };
            let (character_text, behind) = from.split_at(len);
            match char::from_u32(character) {
                Some(harmful) if harmful.is_control() || is_direction(harmful) => {
                    write!(self.0, "{}", harmful.escape_unicode())?;
                }
                _ => self.0.write_all(character_text)?,
            }
            rest = behind;
        }
        self.0.write_all(rest)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A control character, or the first byte of one or of a mark for the direction of writing.
fn may_control(byte: u8) -> bool {
    byte < b' ' && byte != b'\n' && byte != b'\t' || matches!(byte, 0x7f | 0xc2 | 0xd8 | 0xe2)
}

/// Unicode's Bidi_Control.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text without characters that act: as [`Printable`] writes it, line ends and tabs escaped, too.
pub(crate) fn printable(text: &str) -> String {
    let mut out = Printable(Vec::with_capacity(text.len()));
    // A vector takes everything.
    let _ = out.write_all(text.as_bytes());
    let text = String::from_utf8_lossy(&out.0).into_owned();
    // Of each control character the escape begins with a backslash, as these do.
    if text.contains(['\n', '\t']) { text.replace('\n', "\\u{a}").replace('\t', "\\u{9}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_and_marks_for_the_direction_are_changed() {
        let check = |text: &str, expect: &str| assert_eq!(printable(text), expect);
        check("a\tb\nc", "a\\u{9}b\\u{a}c");
        let mut lines = Printable(Vec::new());
        writeln!(lines, "a\tb\x07").unwrap();
        assert_eq!(lines.0, b"a\tb\\u{7}\n", "lines end as we end them");
        check(
            "red \x1b[31m, bell \x07, back \r, gone \x7f",
            "red \\u{1b}[31m, bell \\u{7}, back \\u{d}, gone \\u{7f}",
        );
        check("CSI \u{9b}1m, \u{85}", "CSI \\u{9b}1m, \\u{85}");
        check("\u{a0}£ é µ 日本 \u{10ffff}", "\u{a0}£ é µ 日本 \u{10ffff}");
        check("a\u{202e}b\u{200f}c\u{2066}\u{61c}d", "a\\u{202e}b\\u{200f}c\\u{2066}\\u{61c}d");
        check("שלום ؛ \u{2013}\u{2026}\u{2070}\u{20ac}", "שלום ؛ \u{2013}\u{2026}\u{2070}\u{20ac}");
        check("", "");
    }
}
