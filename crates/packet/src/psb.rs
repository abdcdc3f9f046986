//! Finding the next PSB.

/// A PSB: `02 82` eight times.
pub const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];

/// The offset of the first PSB in `bytes` at or behind `from`.
///
/// No packet payload can contain a PSB (SDM "PSB Packet"), but behind damage a run may be longer than one: its
/// first sixteen bytes count.
#[must_use]
pub fn find_psb(bytes: &[u8], from: usize) -> Option<usize> {
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
        (from..bytes.len()).find(|&at| bytes[at..].starts_with(&PSB))
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
