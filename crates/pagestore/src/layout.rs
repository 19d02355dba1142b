//! How a file of pages is laid out.
//!
//! ```text
//!   at 0       its kind, version u32, bytes of a page u32, places u32, whether pages are sealed u32    never changed
//!   at 64      pages that are there u32                     the last thing that is written
//!   at 4096    by what each page is known                   written before that
//!   behind     each page, from a multiple of 4096 on        written first
//! ```
//! A kind is 8 letters: `DROVERPG` where pages are known by a digest of 16 bytes, `DROVERBL` where by a number of 8.
//! All numbers are big-endian. A sealed page is a nonce of 12 bytes, the page encrypted, and a tag of 16 bytes, by AES-256-GCM
//! with the page's number, a u32, as what is authenticated beside it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::digest::DIGEST_BYTES;
use crate::seal::SEAL_BYTES;

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 24;
const COUNT_AT: u64 = 64;
const KNOWN_AT: u64 = 4096;
const ALIGN: u64 = 4096;

/// The smallest and the largest page.
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 1 << 10..=1 << 20;

/// Places of a file at most: with pages of 4 KiB 1 TiB. A number takes 28 bits, of which one with all of them set stands for none.
pub(crate) const PLACES_MOST: u32 = (1 << 28) - 1;

/// By what the pages of a file are known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    magic: &'static [u8; 8],
    /// Bytes of what one is known by.
    known_by: u64,
}

/// By their digest.
pub(crate) const BY_DIGEST: Kind = Kind {
    magic: b"DROVERPG",
    known_by: DIGEST_BYTES as u64,
};

/// By a number that stands for their address.
pub(crate) const BY_ADDRESS: Kind = Kind {
    magic: b"DROVERBL",
    known_by: size_of::<u64>() as u64,
};

/// How large a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Room for so many pages.
    pub places: u32,
}

/// A file that is none of pages, or cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NoSegment {
    /// It was not made as one.
    #[error("it is no file of pages, or one of another version")]
    Other,
    /// It says something that makes no sense.
    #[error("it says that it has {places} places for pages of {page_bytes} bytes")]
    Shape {
        /// Bytes of a page.
        page_bytes: u32,
        /// Places.
        places: u32,
    },
    /// It was made with a key, or without one.
    #[error("its pages are {}sealed, which they should {}be", if *sealed { "" } else { "not " }, if *sealed { "not " } else { "" })]
    Sealed {
        /// They are.
        sealed: bool,
    },
    /// The kernel says no.
    #[error("it cannot be read or written")]
    Io(#[from] io::Error),
}

/// What fits into so many bytes, with pages that are sealed or not, known by their digest; `None` where that is not one page.
#[must_use]
pub fn shape_within(bytes: u64, page_bytes: u32, sealed: bool) -> Option<Shape> {
    within(bytes, page_bytes, sealed, BY_DIGEST)
}

pub(crate) fn within(bytes: u64, page_bytes: u32, sealed: bool, kind: Kind) -> Option<Shape> {
    let each = record_bytes(page_bytes, sealed) + kind.known_by;
    let places = bytes.saturating_sub(KNOWN_AT + ALIGN) / each;
    let places = u32::try_from(places).unwrap_or(u32::MAX).min(PLACES_MOST);
    (places > 0).then_some(Shape { page_bytes, places })
}

/// What a page takes.
fn record_bytes(page_bytes: u32, sealed: bool) -> u64 {
    let seal = if sealed { SEAL_BYTES } else { 0 };
    u64::from(page_bytes) + seal as u64
}

impl Shape {
    fn checked(self) -> Result<Self, NoSegment> {
        let Self { page_bytes, places } = self;
        if PAGE_BYTES.contains(&page_bytes) && (1..=PLACES_MOST).contains(&places) {
            Ok(self)
        } else {
            Err(NoSegment::Shape { page_bytes, places })
        }
    }

    /// Makes an empty file of it.
    pub(crate) fn write(self, file: &File, kind: Kind, sealed: bool) -> Result<Self, NoSegment> {
        let shape = self.checked()?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(kind.magic);
        for (place, number) in header[8..].chunks_exact_mut(4).zip([
            VERSION,
            shape.page_bytes,
            shape.places,
            sealed.into(),
        ]) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        file.set_len(shape.page_at(shape.places, kind, sealed))?;
        file.write_all_at(&header, 0)?;
        Ok(shape)
    }

    pub(crate) fn read(file: &File, kind: Kind, sealed: bool) -> Result<Self, NoSegment> {
        let mut header = [0; HEADER_BYTES];
        match file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(NoSegment::Other);
            }
            other => other?,
        }
        let number = |at: usize| {
            let field = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_be_bytes(field)
        };
        if header[..8] != *kind.magic || number(8) != VERSION {
            return Err(NoSegment::Other);
        }
        let shape = Self {
            page_bytes: number(12),
            places: number(16),
        };
        let is_sealed = number(20) != 0;
        if is_sealed != sealed {
            return Err(NoSegment::Sealed { sealed: is_sealed });
        }
        shape.checked()
    }

    /// Pages that are there.
    pub(crate) fn count(self, file: &File) -> io::Result<u32> {
        let mut count = [0; 4];
        file.read_exact_at(&mut count, COUNT_AT)?;
        Ok(u32::from_be_bytes(count).min(self.places))
    }

    pub(crate) fn set_count(file: &File, count: u32) -> io::Result<()> {
        file.write_all_at(&count.to_be_bytes(), COUNT_AT)
    }

    /// Where it stands by what a page is known.
    pub(crate) const fn known_at(number: u32, kind: Kind) -> u64 {
        KNOWN_AT + number as u64 * kind.known_by
    }

    /// Where a page is; of the one behind the last, where the file ends.
    pub(crate) fn page_at(self, number: u32, kind: Kind, sealed: bool) -> u64 {
        let begin = Self::known_at(self.places, kind).next_multiple_of(ALIGN);
        begin + u64::from(number) * record_bytes(self.page_bytes, sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_within_so_many_bytes_takes_no_more() {
        for (kind, sealed) in [(BY_DIGEST, false), (BY_DIGEST, true), (BY_ADDRESS, true)] {
            assert_eq!(within(8192, 4096, sealed, kind), None);
            for bytes in [12332, 1 << 20, (1 << 20) + 1, 512 << 20] {
                let shape = within(bytes, 4096, sealed, kind).unwrap();
                let taken = shape.page_at(shape.places, kind, sealed);
                assert!(
                    taken <= bytes && bytes - taken < 3 * 4140,
                    "{taken} {bytes}"
                );
            }
        }
    }
}
