//! Finding the next PSB.

/// A PSB: `02 82` eight times.
pub const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];

/// The offset of the first PSB in `bytes` at or after `from`.
///
/// No packet's payload can hold a PSB (SDM "PSB Packet"), but packets before one may end in `02 82`: a CYC of
/// 63 cycles and a TNT `NNNNNT`, for one. Nothing after a PSB starts with these bytes, so the last sixteen
/// of a run are it.
#[must_use]
pub fn find_psb(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = find_run(bytes, from)?;
    while bytes.get(at + PSB.len()..at + PSB.len() + 2) == Some(&PSB[..2]) {
        at += 2;
    }
    Some(at)
}

/// The offset of the first run of sixteen bytes that look like a PSB.
fn find_run(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(window) = bytes.get(at..at.checked_add(PSB.len())?) {
        if window == PSB {
            return Some(at);
        }
        // The last byte of the window tells how far a PSB can at least be.
        at += match window[PSB.len() - 1] {
            0x82 if window[PSB.len() - 2] == 2 => next_start(window),
            2 => 1,
            0x82 => PSB.len(),
            _ => PSB.len(),
        };
    }
    None
}

/// Where in `window`, which ends in `02 82` but is no PSB, a PSB may start: its trailing run.
fn next_start(window: &[u8]) -> usize {
    let run = window.rchunks_exact(2).take_while(|pair| *pair == [2, 0x82]).count();
    PSB.len() - 2 * run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(bytes: &[u8], from: usize) -> Option<usize> {
        (from..bytes.len()).find(|&at| bytes[at..].starts_with(&PSB) && !bytes[at + 2..].starts_with(&PSB))
    }

    #[test]
    fn packets_that_end_like_a_psb_are_not_part_of_it() {
        let mut bytes = vec![];
        crate::encode(&crate::Packet::Cyc(63), &mut bytes);
        crate::encode(&crate::Packet::Tnt(crate::Tnt::new(1, 6)), &mut bytes);
        assert_eq!(bytes, [0xff, 0x02, 0x82]);
        bytes.extend_from_slice(&PSB);
        bytes.extend_from_slice(&[2, 0x23]);
        assert_eq!(find_psb(&bytes, 0), Some(3));
    }

    #[test]
    fn every_position_and_prefix() {
        for lead in 0..40 {
            for noise in [&[][..], &[2], &[2, 0x82], &[0x82], &[2, 0x82, 2, 0x82, 2], &[0x19, 2]] {
                let mut bytes = vec![0x55; lead];
                bytes.extend_from_slice(noise);
                bytes.extend_from_slice(&PSB);
                bytes.extend_from_slice(&[2, 0x23, 0]);
                for from in [0, 1, lead] {
                    assert_eq!(find_psb(&bytes, from), naive(&bytes, from), "{lead} {noise:?} {from}");
                }
                let cut = &bytes[..bytes.len() - 4];
                assert_eq!(find_psb(cut, 0), naive(cut, 0));
            }
        }
    }
}
