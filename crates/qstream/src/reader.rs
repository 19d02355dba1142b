//! Big-endian numbers, one after the other.

use crate::opaque::Opaque;

/// An item cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// So many of its bytes are needed to read on.
    Short(usize),
    /// It is not as known.
    Opaque(Opaque),
}

impl From<Opaque> for Stop {
    fn from(why: Opaque) -> Self {
        Self::Opaque(why)
    }
}

/// An item of which the first bytes are there.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'b> {
    all: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    pub const fn new(item: &'b [u8]) -> Self {
        Self { all: item, at: 0 }
    }

    /// The item has so many bytes at the least.
    pub const fn needs(&self, bytes: usize) -> Result<(), Stop> {
        if self.all.len() < bytes {
            Err(Stop::Short(bytes))
        } else {
            Ok(())
        }
    }

    pub fn take<const N: usize>(&mut self) -> Result<&'b [u8; N], Stop> {
        let end = self.at + N;
        let taken = self.all.get(self.at..end).and_then(<[u8]>::first_chunk);
        self.at = end;
        taken.ok_or(Stop::Short(end))
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'b [u8], Stop> {
        let end = self.at + count;
        let taken = self.all.get(self.at..end);
        self.at = end;
        taken.ok_or(Stop::Short(end))
    }

    /// A name, after its length in one byte.
    pub fn name(&mut self) -> Result<&'b [u8], Stop> {
        let count = self.u8()?;
        self.bytes(usize::from(count))
    }

    pub fn u8(&mut self) -> Result<u8, Stop> {
        self.take::<1>().map(|[byte]| *byte)
    }

    pub fn u16(&mut self) -> Result<u16, Stop> {
        self.take().copied().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Stop> {
        self.take().copied().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Stop> {
        self.take().copied().map(u64::from_be_bytes)
    }
}
