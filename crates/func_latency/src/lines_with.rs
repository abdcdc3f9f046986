//! The lines of a large file that have some text in them, without looking at the others one by one.

use std::io::Read;
use std::ops::ControlFlow;

use anyhow::{Context, Result};
use memchr::{memchr, memchr_iter, memmem, memrchr};

/// What is read at a time; a longer line takes more.
const BLOCK: usize = 1 << 20;

/// Gives each line of `input` that has `text` to `take`, until it breaks off.
///
/// # Errors
/// `input` cannot be read, or `take` fails: at which line is said.
pub(crate) fn lines_with(
    mut input: impl Read,
    text: &[u8],
    take: &mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let finder = memmem::Finder::new(text);
    let mut block = Vec::new();
    let mut lines_before = 0;
    loop {
        let read = input.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
        let whole = match memrchr(b'\n', &block) {
            _ if read == 0 => block.len(),
            Some(end) => end + 1,
            None => continue,
        };
        let mut rest = block.get(..whole).unwrap_or_default();
        while let Some(at) = finder.find(rest) {
            let (before, behind) = rest.split_at(at);
            let start = memrchr(b'\n', before).map_or(0, |end| end + 1);
            let end = at + memchr(b'\n', behind).unwrap_or(behind.len());
            let taken = take(rest.get(start..end).unwrap_or_default()).with_context(|| {
                let line_start = whole - rest.len() + start;
                format!("line {}", 1 + lines_before + lines(block.get(..line_start)))
            });
            if taken?.is_break() {
                return Ok(());
            }
            rest = rest.get(end..).unwrap_or_default();
        }
        if read == 0 {
            return Ok(());
        }
        lines_before += lines(block.get(..whole));
        block.drain(..whole);
    }
}

fn lines(text: Option<&[u8]>) -> usize {
    text.map_or(0, |text| memchr_iter(b'\n', text).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_whole_wherever_blocks_end() {
        let long = "x".repeat(BLOCK + 7);
        let text = format!("a1\nb\n{long}1{long}\n\nc1 and 1\n1 at the end");
        let mut found = Vec::new();
        lines_with(text.as_bytes(), b"1", &mut |line| {
            found.push(line.len());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(found, [2, 2 * long.len() + 1, 8, 12]);
    }

    #[test]
    fn an_error_has_the_number_of_its_line() {
        let text = format!("{}here\n", "123456\n".repeat(BLOCK / 3));
        let error = lines_with(text.as_bytes(), b"here", &mut |_| anyhow::bail!("wrong")).unwrap_err();
        assert_eq!(format!("{error:#}"), format!("line {}: wrong", BLOCK / 3 + 1));
    }

    #[test]
    fn it_ends_where_it_is_broken_off() {
        let mut found = Vec::new();
        lines_with(&b"1 2\n3 2\n4 2\n"[..], b" 2", &mut |line| {
            found.push(line[0]);
            Ok(if line[0] == b'3' { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
        assert_eq!(found, b"13");
    }
}
