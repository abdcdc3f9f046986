//! Little-endian numbers and perf's strings, appended to a byte vector.

/// What the records and sections of a perf.data file are made of.
pub(super) trait Append {
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    /// The bytes, at least one zero after them, zeros up to a multiple of `alignment`.
    fn padded_str(&mut self, text: &str, alignment: usize);
    /// A string of the header's feature sections (`do_write_string` in tools/perf/util/header.c).
    fn feature_str(&mut self, text: &str);
}

/// perf's NAME_ALIGN.
const FEATURE_STR_ALIGNMENT: usize = 64;

impl Append for Vec<u8> {
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn padded_str(&mut self, text: &str, alignment: usize) {
        let len = (text.len() + 1).next_multiple_of(alignment);
        self.extend_from_slice(text.as_bytes());
        self.extend(std::iter::repeat_n(0, len - text.len()));
    }

    fn feature_str(&mut self, text: &str) {
        self.u32((text.len() + 1).next_multiple_of(FEATURE_STR_ALIGNMENT) as u32);
        self.padded_str(text, FEATURE_STR_ALIGNMENT);
    }
}
