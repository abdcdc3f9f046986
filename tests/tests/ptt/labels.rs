//! References to labels in expected outputs.
//!
//! ```text
//! %l1  %0l1       the address of a label, or the offset of a packet; with leading zeros
//! %l1.2  %?l1.2   the lowest two bytes of the address; with `?` for the others
//! ```

use crate::program::Program;
use crate::trace::Trace;

/// `line` with numbers for its references.
pub(crate) fn resolve(line: &str, program: &Program, trace: &Trace) -> Result<String, String> {
    let mut parts = line.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (padding, rest) = match part.strip_prefix(['0', '?']) {
            Some(rest) => (part.chars().next(), rest),
            None => (None, part),
        };
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (label, mut behind) = rest.split_at(end);
        let mut bytes = 8;
        let value = if let Some(&address) = program.labels.get(label) {
            if let Some(masked) = behind.strip_prefix('.') {
                let digits = masked.find(|c: char| !c.is_ascii_digit()).unwrap_or(masked.len());
                let (count, after) = masked.split_at(digits);
                bytes = count.parse().map_err(|_| format!("bad reference in {line:?}"))?;
                behind = after;
            }
            address & u64::MAX.checked_shr(64 - 8 * bytes).unwrap_or(0)
        } else {
            *trace.labels.get(label).ok_or_else(|| format!("no label {label}"))?
        };
        let digits = format!("{value:016x}");
        text += &match padding {
            Some('?') => "??".repeat(8 - bytes as usize) + &digits[16 - 2 * bytes as usize..],
            Some(_) => digits,
            None => format!("{value:x}"),
        };
        text += behind;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_numbers() {
        let program = Program { start: 0, bytes: vec![], labels: [("l1".to_owned(), 0xff_0000_004c)].into() };
        let trace = Trace { bytes: vec![], labels: [("p1".to_owned(), 0x1b)].into() };
        let resolved = |line| resolve(line, &program, &trace);
        assert_eq!(resolved("%l1 %l1.2, %0l1"), Ok("ff0000004c 4c, 000000ff0000004c".to_owned()));
        assert_eq!(resolved("%?l1.2 %?l1.0"), Ok("????????????004c ????????????????".to_owned()));
        assert_eq!(resolved("%0p1  psb [%p1]"), Ok("000000000000001b  psb [1b]".to_owned()));
        assert_eq!(resolved("%no"), Err("no label no".to_owned()));
    }
}
