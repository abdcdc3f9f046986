//! Compressed sections: how much they become is known before they are unpacked.

use object::{CompressionFormat, Object, ObjectSection};

/// A deflate stream has at least two bits for 258 bytes.  zstd can do better, but DWARF gives it no reason to.
const MAX_RATIO: u64 = 1032;

/// Unpacking all sections of a file takes memory in proportion to it, whatever its headers claim.
pub(crate) fn is_in_proportion(file: &[u8]) -> bool {
    let Ok(file) = object::File::parse(file) else { return false };
    let is_good = |section: object::Section<'_, '_>| {
        section.compressed_data().is_ok_and(|packed| {
            let most = (packed.data.len() as u64).saturating_mul(MAX_RATIO);
            packed.format == CompressionFormat::None || packed.uncompressed_size <= most
        })
    };
    file.sections().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_that_claims_to_be_large() {
        let of_corpus = |name: &str| {
            std::fs::read(format!("{}/../../fuzz/corpus/elf/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
        };
        assert!(is_in_proportion(&of_corpus("seed-compressed")));
        assert!(!is_in_proportion(&of_corpus("a-section-that-claims-to-be-large")));
    }
}
