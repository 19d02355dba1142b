//! Big-endian numbers, one after the other.

/// What is left of a header.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The next bytes; none where there are not as many.
    pub fn take<const N: usize>(&mut self) -> Option<&'b [u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(first)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().copied().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().copied().map(u64::from_be_bytes)
    }
}
