//! `.gnu_debugdata`: an ELF file with the symbols that stripping would have lost, packed with xz (Fedora's
//! "MiniDebugInfo").

use std::io::Read;

use lzma_rust2::XzReader;

/// The largest that is unpacked: Fedora's libraries have some hundred KB.
const MAX_BYTES: u64 = 64 << 20;
/// The largest dictionary that is made room for.  A file says how much it wants before it has given a byte.
const MAX_DICTIONARY_KB: u32 = 65 << 10;

/// The ELF file; `None` if it is damaged or too large.
pub(crate) fn unpack(section: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut reader = XzReader::new_mem_limit(section, false, MAX_DICTIONARY_KB).take(MAX_BYTES + 1);
    reader.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'symbols\n' | xz | xxd -p`
    const PACKED: &[u8] =
        b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46\x02\0\x21\x01\x16\0\0\0\x74\x2f\xe5\xa3\x01\0\x07symbols\n\0\x01\x59\
          \x77\x0b\xc9\x79\x8a\x7a\0\x01\x20\x08\xbb\x19\xd9\xbb\x1f\xb6\xf3\x7d\x01\0\0\0\0\x04YZ";

    #[test]
    fn damage_is_no_table() {
        assert_eq!(unpack(PACKED).as_deref(), Some(&b"symbols\n"[..]));
        for at in 0..PACKED.len() {
            let mut damaged = PACKED.to_vec();
            damaged[at] ^= 0x40;
            assert_ne!(unpack(&damaged).as_deref(), Some(&b"symbolz\n"[..]));
            let _ = unpack(&PACKED[..at]);
        }
    }
}
