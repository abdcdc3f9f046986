//! IP compression (SDM "IP Compression"): an address is stored as the bytes that differ from the last one.

/// The compressed address of a TIP, TIP.PGE, TIP.PGD or FUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPayload {
    /// The `IPBytes` field: 0 none, 1 two bytes, 2 four, 3 six sign-extended, 4 six, 6 eight; 5 and 7 are
    /// reserved.
    pub ip_bytes: u8,
    /// The stored bytes, zero-extended.
    pub value: u64,
}

impl IpPayload {
    /// No address: out of context.
    pub const NONE: Self = Self { ip_bytes: 0, value: 0 };

    /// How many bytes are stored; `None` for the reserved encodings.
    #[inline]
    #[must_use]
    pub const fn stored_len(ip_bytes: u8) -> Option<usize> {
        match STORED_BITS[(ip_bytes & 7) as usize] {
            0 if ip_bytes != 0 => None,
            bits => Some(bits.count_ones() as usize / 8),
        }
    }

    /// The bits of the address that are stored, if any are.
    #[inline]
    pub(crate) const fn stored_bits(ip_bytes: u8) -> u64 {
        STORED_BITS[(ip_bytes & 7) as usize]
    }
}

const LOW_48: u64 = (1 << 48) - 1;
/// By `IPBytes`.
const STORED_BITS: [u64; 8] = [0, 0xffff, 0xffff_ffff, LOW_48, LOW_48, 0, u64::MAX, 0];

#[inline]
const fn sign_extend_48(value: u64) -> u64 {
    ((value << 16) as i64 >> 16) as u64
}

/// The last address that was sent or received; 0 after PSB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIp(u64);

impl LastIp {
    /// Forgets the last address, as PSB does.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// The address that `payload` stands for; `None` if it has none.
    #[inline]
    pub fn expand(&mut self, payload: IpPayload) -> Option<u64> {
        let IpPayload { ip_bytes, value } = payload;
        let bits = IpPayload::stored_bits(ip_bytes);
        if bits == 0 {
            return None;
        }
        let (extended, replaced) = (sign_extend_48(value), self.0 & !bits | value & bits);
        self.0 = if ip_bytes == 3 { extended } else { replaced };
        Some(self.0)
    }

    /// The shortest payload for `ip`, which becomes the last address.
    pub fn compress(&mut self, ip: u64) -> IpPayload {
        let changed = ip ^ self.0;
        self.0 = ip;
        let (ip_bytes, value) = if changed >> 16 == 0 {
            (1, ip & 0xffff)
        } else if changed >> 32 == 0 {
            (2, ip & 0xffff_ffff)
        } else if sign_extend_48(ip) == ip {
            (3, ip & LOW_48)
        } else if changed >> 48 == 0 {
            (4, ip & LOW_48)
        } else {
            (6, ip)
        };
        IpPayload { ip_bytes, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_undone() {
        let addresses = [
            0x40_1000,
            0x40_1fff,
            0x7fff_1234_5678,
            0xffff_ffff_8100_0000,
            0xffff_ffff_8100_0002,
            0x0081_0000_0000_0000,
        ];
        let (mut out, mut back) = (LastIp::default(), LastIp::default());
        let sizes: Vec<u8> = addresses
            .iter()
            .map(|&ip| {
                let payload = out.compress(ip);
                assert_eq!(back.expand(payload), Some(ip));
                payload.ip_bytes
            })
            .collect();
        assert_eq!(sizes, [2, 1, 3, 3, 1, 6]);
    }

    #[test]
    fn no_address_keeps_the_last() {
        let mut last = LastIp::default();
        last.expand(IpPayload { ip_bytes: 3, value: 0x1234_5678 });
        assert_eq!(last.expand(IpPayload::NONE), None);
        assert_eq!(last.expand(IpPayload { ip_bytes: 1, value: 0x9999 }), Some(0x1234_9999));
    }
}
