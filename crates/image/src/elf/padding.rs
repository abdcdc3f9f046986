//! The bytes that assemblers and linkers put between functions to align them.

/// True if `bytes` are nothing but padding: zeros, `int3`, `nop` of any length.
pub(crate) fn is_padding(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = padding_len(rest);
        if len == 0 {
            return false;
        }
        // The last nop may be cut where the next symbol starts.
        rest = rest.get(len..).unwrap_or_default();
    }
    true
}

/// Length of the padding instruction that `bytes` begin with; 0 if it is none.
fn padding_len(bytes: &[u8]) -> usize {
    if matches!(bytes.first(), Some(0x00 | 0x90 | 0xcc)) {
        return 1;
    }
    // Prefixes: operand size, as often as the assembler likes; CS segment.
    let prefixes = bytes.iter().take_while(|b| matches!(b, 0x66 | 0x2e)).count();
    match bytes.get(prefixes..).unwrap_or_default() {
        [0x90, ..] => prefixes + 1,
        // nop r/m: ModRM, then SIB and displacement.
        [0x0f, 0x1f, modrm, ..] => match modrm {
            0x00 => prefixes + 3,
            0x40 => prefixes + 4,
            0x44 => prefixes + 5,
            0x80 => prefixes + 7,
            0x84 => prefixes + 8,
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nops_of_every_length() {
        let nops: [&[u8]; 9] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        ];
        for (i, nop) in nops.iter().enumerate() {
            assert!(is_padding(nop), "nop {i}");
            assert!(!is_padding(&[nop, &[0xc3][..]].concat()), "nop {i} and ret");
        }
        assert!(is_padding(&[0xcc; 40]));
        assert!(!is_padding(&[0xf3, 0x0f, 0x1e, 0xfa]), "endbr64 starts a function");
        assert!(!is_padding(&[0x66]));
    }
}
