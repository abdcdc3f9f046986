//! Stubs of the procedure linkage table: which function each jumps to.
//!
//! Linkers lay stubs out in several ways, so each is read: it jumps through a slot of the global offset
//! table, and the slot's relocation names the function.
//!
//! ```text
//! .plt       jmp *slot(%rip); push $index; jmp .plt
//! .plt, IBT  endbr64; push $index; bnd jmp .plt            (with the jump in .plt.sec)
//! .plt.sec   endbr64; bnd jmp *slot(%rip)
//! .plt.got   jmp *slot(%rip); xchg %ax,%ax                 (8 bytes)
//! mold       endbr64; mov $index,%r11d; jmp *slot(%rip)
//! ```

use crate::elf::{SlotTarget, Slots};

/// Bytes per stub of a section.  Its header does not say it reliably: 0 in static programs.
pub(crate) fn stub_bytes(section: &[u8]) -> u64 {
    const JUMP: &[u8] = &[0xff, 0x25];
    let second = section.get(8..).unwrap_or_default();
    let short = section.starts_with(JUMP) && (second.is_empty() || second.starts_with(JUMP));
    if short { 8 } else { 16 }
}

/// What a stub says of where it goes.
pub(crate) fn stub_target<'s>(stub: &[u8], svma: u64, slots: &'s Slots) -> Option<&'s SlotTarget> {
    slots.by_address.get(&stub_slot(stub, svma, slots)?)
}

/// The address of the slot that a stub jumps through, now or when it has been resolved.
fn stub_slot(stub: &[u8], svma: u64, slots: &Slots) -> Option<u64> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const BND: &[u8] = &[0xf2];
    let mut at = svma;
    let mut rest = stub;
    loop {
        let skip = match rest {
            [0xff, 0x25, a, b, c, d, ..] => {
                let displacement = i64::from(i32::from_le_bytes([*a, *b, *c, *d]));
                return Some(at.wrapping_add(6).wrapping_add(displacement as u64));
            }
            [0x68, a, b, c, d, ..] => {
                let index = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
                return slots.lazy.get(index).copied();
            }
            // mov $index, %r11d
            [0x41, 0xbb, _, _, _, _, ..] => 6,
            _ if rest.starts_with(ENDBR64) => ENDBR64.len(),
            _ if rest.starts_with(BND) => BND.len(),
            _ => return None,
        };
        rest = rest.get(skip..)?;
        at = at.wrapping_add(skip as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u64 = 0x4018;

    fn check(stub: &[u8]) {
        let mut slots = Slots { lazy: vec![0x4010, SLOT], ..Slots::default() };
        slots.by_address.insert(SLOT, SlotTarget::Symbol("puts".into()));
        let expect = SlotTarget::Symbol("puts".into());
        assert_eq!(stub_target(stub, 0x1020, &slots), Some(&expect), "{stub:02x?}");
    }

    #[test]
    fn stubs_of_all_linkers() {
        check(b"\xff\x25\xf2\x2f\0\0\x68\x01\0\0\0\xe9\xe0\xff\xff\xff");
        check(b"\xf3\x0f\x1e\xfa\x68\x01\0\0\0\xf2\xe9\xe1\xff\xff\xff\x90");
        check(b"\xf3\x0f\x1e\xfa\xf2\xff\x25\xed\x2f\0\0\x0f\x1f\x44\0\0");
        check(b"\xff\x25\xf2\x2f\0\0\x66\x90");
        check(b"\xf3\x0f\x1e\xfa\x41\xbb\x01\0\0\0\xff\x25\xe8\x2f\0\0");
    }

    #[test]
    fn short_stubs_are_told_from_long_ones() {
        let short = b"\xff\x25\xf2\x2f\0\0\x66\x90";
        assert_eq!(stub_bytes(short), 8);
        assert_eq!(stub_bytes(&[*short, *short].concat()), 8);
        assert_eq!(stub_bytes(b"\xff\x25\xf2\x2f\0\0\x68\x01\0\0\0\xe9\xe0\xff\xff\xff"), 16);
        assert_eq!(stub_bytes(b""), 16);
    }

    #[test]
    fn the_head_of_the_table_has_no_target() {
        let head = b"\xff\x35\xe2\x2f\0\0\xff\x25\xe4\x2f\0\0\x0f\x1f\x40\0";
        assert_eq!(stub_target(head, 0x1020, &Slots::default()), None);
        assert_eq!(stub_target(b"\xff\x25\xf2", 0x1020, &Slots::default()), None);
    }
}
