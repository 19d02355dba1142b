//! How a reduced chunk begins.
//!
//! ```text
//!   bytes  checksum of   ordinary   operations  dense      packed     codec of     codec of  empty
//!   u32    the bytes u64 bytes u32  bytes u32   bytes u32  bytes u32  ordinary u8  dense u8  u16
//! ```
//! Then the ordinary section with the operations at its end, as its codec packed both, and the dense section to the end
//! of the chunk.
//! All numbers are big-endian.

use crate::codec::Packing;
use crate::wrong::Wrong;

pub const HEADER_BYTES: usize = 32;

/// What stands in front of the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes that the chunk stands for.
    pub raw: u32,
    /// CRC-64/NVME of those.
    pub checksum: u64,
    /// Bytes of the ordinary section.
    pub ordinary: u32,
    /// Bytes of the operations.
    pub operations: u32,
    /// Bytes of the dense section.
    pub dense: u32,
    /// What the operations and the ordinary section take in the chunk.
    pub packed: u32,
    pub ordinary_packing: Packing,
    pub dense_packing: Packing,
}

pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

impl Header {
    pub fn write(&self, to: &mut [u8; HEADER_BYTES]) {
        let packings = [
            self.ordinary_packing.to_bits(),
            self.dense_packing.to_bits(),
        ];
        to[..4].copy_from_slice(&self.raw.to_be_bytes());
        to[4..12].copy_from_slice(&self.checksum.to_be_bytes());
        let lengths = [self.ordinary, self.operations, self.dense, self.packed];
        for (place, length) in to[12..28].chunks_exact_mut(4).zip(lengths) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        to[28..30].copy_from_slice(&packings);
        to[30..].fill(0);
    }

    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Wrong> {
        let u32_at = |at: usize| {
            let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_be_bytes(field)
        };
        let packing = |at: usize| Packing::from_bits(bytes[at]).ok_or(Wrong::Layout("a codec"));
        if bytes[30..] != [0; 2] {
            return Err(Wrong::Layout("a field that is always empty"));
        }
        Ok(Self {
            raw: u32_at(0),
            checksum: u64::from(u32_at(4)) << 32 | u64::from(u32_at(8)),
            ordinary: u32_at(12),
            operations: u32_at(16),
            dense: u32_at(20),
            packed: u32_at(24),
            ordinary_packing: packing(28)?,
            dense_packing: packing(29)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_fixed_and_read_as_it_was_written() {
        let header = Header {
            raw: 0x0102_0304,
            checksum: 0x1112_1314_1516_1718,
            ordinary: 5,
            operations: 6,
            dense: 7,
            packed: 8,
            ordinary_packing: Packing::ZstdBegins,
            dense_packing: Packing::None,
        };
        let mut bytes = [0xff; HEADER_BYTES];
        header.write(&mut bytes);
        let written = [
            1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 5, 0, 0, 0, 6, 0,
            0, 0, 7, 0, 0, 0, 8, 3, 0, 0, 0,
        ];
        assert_eq!(bytes, written);
        assert_eq!(Header::read(&bytes), Ok(header));
        bytes[31] = 1;
        assert!(Header::read(&bytes).is_err());
    }

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xae8b_1486_0a79_9888);
    }
}
