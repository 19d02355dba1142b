//! Blocks of guest memory.

/// Bits of a block's number.
pub const BLOCK_BITS: u32 = 24;

/// A block of guest memory, such as `pc.ram`, by a number that follows from its name: the same on every channel, whichever
/// comes first there.
///
/// Two blocks of a guest have the same number once in 370,000 guests with ten blocks. Whoever refers to pages by it
/// has to compare what is in them: what was sent of another block's page is just less like this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u32);

impl Block {
    /// That of this name: FNV-1a of 32 bits, folded to [`BLOCK_BITS`] by the exclusive or, as its authors advise.
    #[must_use]
    pub fn named(name: &[u8]) -> Self {
        let hash = name.iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        Self((hash >> BLOCK_BITS) ^ (hash & ((1 << BLOCK_BITS) - 1)))
    }

    /// The same, if that is a name such as QEMU gives them.
    pub(crate) fn checked(name: &[u8]) -> Option<Self> {
        let usable = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        usable.then(|| Self::named(name))
    }

    /// Its number, of [`BLOCK_BITS`].
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_follows_from_the_name_alone_and_has_its_bits() {
        // FNV-1a of "foobar" is 0xbf9cf968.
        assert_eq!(Block::named(b"foobar").number(), 0x9c_f968 ^ 0xbf);
        let names = [
            "pc.ram",
            "vga.vram",
            "pc.bios",
            "pc.rom",
            "/rom@etc/acpi/tables",
        ];
        let blocks = names.map(|name| Block::named(name.as_bytes()).number());
        for (at, block) in blocks.iter().enumerate() {
            assert!(block >> BLOCK_BITS == 0 && !blocks[..at].contains(block));
        }
    }
}
