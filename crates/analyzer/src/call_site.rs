//! The call instruction in front of a return address.
//!
//! With an IP filter a caller outside the filter is known by the address that its callee returns to, and by
//! nothing else.  x86 cannot be decoded backwards, so each length that a call can have is tried.

use model::Avma;

/// Bytes of the longest call that is looked for.
pub(crate) const CALL_LEN_MAX: u64 = 8;

/// Length of the near call at the start of `code`; `None` if there is another instruction.
///
/// SDM Vol. 2A, CALL: `E8 cd`, `FF /2`, with legacy prefixes and REX.
pub(crate) fn call_len(code: &[u8]) -> Option<u64> {
    let is_prefix = |b: &u8| matches!(b, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65);
    let mut at = code.iter().take(4).take_while(|b| is_prefix(b)).count();
    if code.get(at)? & 0xf0 == 0x40 {
        at += 1;
    }
    match *code.get(at)? {
        0xe8 => Some(at as u64 + 5),
        0xff => Some(at as u64 + 1 + modrm_len(code.get(at + 1..)?)?),
        _ => None,
    }
}

/// Length of the ModRM byte with reg field 2 and what belongs to it (SDM Vol. 2A, table 2-2).
fn modrm_len(code: &[u8]) -> Option<u64> {
    let modrm = *code.first()?;
    if modrm >> 3 & 7 != 2 {
        return None;
    }
    let (mode, mut base, mut len) = (modrm >> 6, modrm & 7, 1);
    if mode != 3 && base == 4 {
        base = *code.get(1)? & 7;
        len += 1;
    }
    len += match mode {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(len)
}

/// Lengths of calls by how common they are: `call rel32`, `call *disp32(%rip)`, `call *disp8(%reg)` or `call
/// *%r8..15`, ...
const LENGTHS: [u64; 7] = [5, 6, 3, 7, 4, 2, CALL_LEN_MAX];

/// A call ends where `code(len)` are the bytes `len` in front of.
pub(crate) fn is_after_call<'c>(code: impl Fn(u64) -> Option<&'c [u8]>) -> bool {
    LENGTHS.into_iter().any(|len| code(len).and_then(call_len) == Some(len))
}

/// The call that ends at `ret` and can have entered `entry`.
///
/// `code(len)` are the bytes from `ret - len` on. A direct call is certain when it leads to `entry`;
/// otherwise an indirect call is the better guess (a direct one would have to go through a stub: `is_stub` of
/// its target).
pub(crate) fn call_before<'c>(
    ret: Avma,
    entry: Option<Avma>,
    code: impl Fn(u64) -> Option<&'c [u8]>,
    is_stub: impl Fn(Avma) -> bool,
) -> Option<Avma> {
    let ends_here = |len: u64| code(len).and_then(call_len) == Some(len);
    let direct = |len: u64| {
        let bytes = code(len)?;
        let displacement = bytes.get(len as usize - 4..len as usize)?;
        let is_direct = bytes.get(len as usize - 5) == Some(&0xe8);
        let displacement = i32::from_le_bytes(displacement.try_into().ok()?);
        is_direct.then(|| ret.plus(displacement as i64 as u64))
    };
    let site = |len: u64| Avma(ret.0.wrapping_sub(len));
    if ends_here(5) && direct(5).is_some_and(|to| Some(to) == entry || is_stub(to)) {
        return Some(site(5));
    }
    // A byte that may be a prefix in front of a direct call is none, unless it fills up a call of
    // `__tls_get_addr`.
    let is_prefixed = |len: u64| matches!(len, 6 | 7) && ends_here(5);
    let (direct, indirect) = LENGTHS.split_at(1);
    let lengths = indirect.iter().chain(direct).copied();
    lengths.filter(|&len| !is_prefixed(len)).find(|&len| ends_here(len)).map(site)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_calls() {
        let check = |code: &[u8], expect: Option<u64>| assert_eq!(call_len(code), expect, "{code:02x?}");
        check(&[0xe8, 0, 0, 0, 0], Some(5));
        check(&[0xff, 0xd0], Some(2)); // call *%rax
        check(&[0x41, 0xff, 0xd4], Some(3)); // call *%r12
        check(&[0x3e, 0xff, 0xd0], Some(3)); // notrack call *%rax
        check(&[0xff, 0x15, 1, 2, 3, 4], Some(6)); // call *disp32(%rip)
        check(&[0xff, 0x50, 8], Some(3)); // call *8(%rax)
        check(&[0xff, 0x54, 0x24, 8], Some(4)); // call *8(%rsp)
        check(&[0xff, 0x14, 0xc5, 1, 2, 3, 4], Some(7)); // call *disp32(,%rax,8)
        check(&[0x41, 0xff, 0x94, 0x24, 1, 2, 3, 4], Some(8)); // call *disp32(%r12)
        check(&[0xff, 0xe0], None); // jmp *%rax
        check(&[0x90], None);
        check(&[0xff], None);
        check(&[], None);
    }

    fn before(code: &[u8], entry: u64) -> Option<u64> {
        let ret = Avma(0x1000 + code.len() as u64);
        let at = |len: u64| code.get(code.len().checked_sub(len as usize)?..);
        call_before(ret, Some(Avma(entry)), at, |_| false).map(|site| site.0)
    }

    #[test]
    fn a_direct_call_must_lead_to_the_entry_to_be_preferred() {
        // call 0x2000, and the same bytes read as "... ; call *%rax" when the target does not fit
        let code = [0x90, 0xe8, 0xfa, 0x0f, 0x00, 0x00];
        assert_eq!(before(&code, 0x2000), Some(0x1001));
        let both = [0xe8, 0x00, 0x00, 0xff, 0xd0];
        assert_eq!(before(&both, 0x2000), Some(0x1003));
        assert_eq!(before(&[0xe8, 0, 0, 0, 0], 0x2000), Some(0x1000));
    }

    #[test]
    fn the_byte_in_front_of_a_direct_call_is_no_prefix_of_it() {
        // js +0x48 (its last byte is a REX prefix); call
        assert_eq!(before(&[0x78, 0x48, 0xe8, 0, 0, 0, 0], 0x2000), Some(0x1002));
        // data16 data16 rex.W call __tls_get_addr
        assert_eq!(before(&[0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0], 0x2000), Some(0x1000));
    }

    #[test]
    fn a_return_address_without_a_call_has_no_site() {
        assert_eq!(before(&[0x90; 8], 0x2000), None);
        assert_eq!(before(&[], 0x2000), None);
    }
}
