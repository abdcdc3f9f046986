//! Lengths of call instructions: all that the oracle needs of the machine code.

/// Length of the near call at the start of `code`; `None` if there is none.
pub(super) fn call_len(code: &[u8]) -> Option<u64> {
    const PREFIXES: [u8; 10] = [0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65];
    let mut at = code.iter().take_while(|b| PREFIXES.contains(b)).count();
    if *code.get(at)? & 0xf0 == 0x40 {
        at += 1; // REX
    }
    match *code.get(at)? {
        0xe8 => Some(at as u64 + 5),
        0xff => indirect_call_len(code, at),
        _ => None,
    }
}

/// Length of an `ff /2` with its opcode at `opcode`.
fn indirect_call_len(code: &[u8], opcode: usize) -> Option<u64> {
    let modrm = *code.get(opcode + 1)?;
    if modrm >> 3 & 7 != 2 {
        return None;
    }
    let mode = modrm >> 6;
    let mut base = modrm & 7;
    let mut len = opcode + 2;
    if mode != 3 && base == 4 {
        base = *code.get(len)? & 7; // SIB
        len += 1;
    }
    len += match mode {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(len as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_calls() {
        let check = |code: &[u8], len| assert_eq!(call_len(code), len, "{code:x?}");
        check(&[0xe8, 1, 2, 3, 4], Some(5));
        check(&[0x66, 0x48, 0xe8, 1, 2, 3, 4], Some(7)); // call __tls_get_addr, padded
        check(&[0xff, 0xd0], Some(2)); // call rax
        check(&[0x41, 0xff, 0xd4], Some(3)); // call r12
        check(&[0xff, 0x15, 0, 0, 0, 0], Some(6)); // call [rip+x]
        check(&[0xff, 0x50, 8], Some(3)); // call [rax+8]
        check(&[0xff, 0x90, 0, 1, 0, 0], Some(6)); // call [rax+256]
        check(&[0x41, 0xff, 0x14, 0xc7], Some(4)); // call [r15+rax*8]
        check(&[0xff, 0x14, 0xc5, 0, 0, 0, 0], Some(7)); // call [rax*8+x]
        check(&[0xff, 0xe0], None); // jmp rax
        check(&[0xe9, 0, 0, 0, 0], None);
        check(&[0xff], None);
        check(&[], None);
    }
}
