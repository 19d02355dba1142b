//! A file of pages, as those see it who read it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::at_once::read_at_once;
use crate::digest::{DIGEST_BYTES, Digest};
use crate::layout::{BY_DIGEST, NoSegment, Shape};
use crate::seal::{SEAL_BYTES, Seal, SealKey};

/// Sealed pages that are read at once: 64 KiB of the usual ones.
const SEALED_AT_ONCE: usize = 16;

/// A file of pages.
#[derive(Debug)]
pub struct Segment {
    file: File,
    shape: Shape,
    seal: Option<Seal>,
}

impl Segment {
    /// Makes an empty one in memory, which takes as much of it as it has pages.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn in_memory(shape: Shape) -> Result<Self, NoSegment> {
        let memory = memfd_create("drover-pages", MemfdFlags::CLOEXEC);
        let file = File::from(memory.map_err(io::Error::from)?);
        Self::make(file, shape, None)
    }

    /// Makes this file, of which nothing is kept, an empty one whose pages are sealed.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn sealed(file: File, shape: Shape, key: &SealKey) -> Result<Self, NoSegment> {
        file.set_len(0)?;
        Self::make(file, shape, Some(key))
    }

    fn make(file: File, shape: Shape, key: Option<&SealKey>) -> Result<Self, NoSegment> {
        let shape = shape.write(&file, BY_DIGEST, key.is_some())?;
        let seal = key.map(Seal::new).transpose()?;
        Ok(Self { file, shape, seal })
    }

    /// Opens one that was made, by whomever; with the key where its pages are sealed.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn open(file: File, key: Option<&SealKey>) -> Result<Self, NoSegment> {
        let shape = Shape::read(&file, BY_DIGEST, key.is_some())?;
        let seal = key.map(Seal::new).transpose()?;
        Ok(Self { file, shape, seal })
    }

    /// The file, to be given to another process.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// How large it is.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether its pages are sealed.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Pages that are there by now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn count(&self) -> io::Result<u32> {
        self.shape.count(&self.file)
    }

    /// Where a page is.
    pub(crate) fn page_at(&self, number: u32) -> u64 {
        self.shape.page_at(number, BY_DIGEST, self.seal.is_some())
    }

    /// The digests of these pages, of which there are so many.
    ///
    /// # Errors
    /// The kernel's.
    pub fn digests(&self, pages: Range<u32>) -> io::Result<Vec<Digest>> {
        let pages = pages.start..pages.end.min(self.shape.places);
        let mut bytes = vec![0; pages.len() * DIGEST_BYTES];
        let at = Shape::known_at(pages.start, BY_DIGEST);
        self.file.read_exact_at(&mut bytes, at)?;
        let (digests, _) = bytes.as_chunks();
        Ok(digests.iter().copied().map(Digest).collect())
    }

    /// Appends what stands in the file for the page of that number.
    pub(crate) fn append(&self, number: u32, page: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
        if let Some(seal) = &self.seal {
            return seal.seal(number, page, to);
        }
        to.extend(page);
        Ok(())
    }

    /// Fills `pages`, which are whole ones, with the page of that number and those that follow it.
    ///
    /// # Errors
    /// The kernel's, or one is not what was sealed.
    pub fn read(&self, first: u32, pages: &mut [u8]) -> io::Result<()> {
        let read = |to: &mut [u8], at| self.file.read_exact_at(to, at).map(|()| true);
        self.read_by(read, first, pages).map(drop)
    }

    /// The same without waiting for a disk; `false` where one would have to, with anything in `pages`. Pages that are not sealed are in
    /// memory.
    ///
    /// # Errors
    /// As [`Segment::read`].
    pub fn read_at_once(&self, first: u32, pages: &mut [u8]) -> io::Result<bool> {
        if self.seal.is_none() {
            return self.read(first, pages).map(|()| true);
        }
        let read = |to: &mut [u8], at| read_at_once(&self.file, to, at);
        self.read_by(read, first, pages)
    }

    fn read_by(
        &self,
        read: impl Fn(&mut [u8], u64) -> io::Result<bool>,
        first: u32,
        pages: &mut [u8],
    ) -> io::Result<bool> {
        let each = self.shape.page_bytes as usize;
        let room = self.shape.places.saturating_sub(first) as usize;
        if !pages.len().is_multiple_of(each) || pages.len() / each > room {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let Some(seal) = &self.seal else {
            return read(pages, self.page_at(first));
        };
        let record = each + SEAL_BYTES;
        let at_once = (pages.len() / each).min(SEALED_AT_ONCE);
        let mut memory = vec![0; at_once * record];
        let numbers = (first..).step_by(SEALED_AT_ONCE);
        for (some, number) in pages.chunks_mut(SEALED_AT_ONCE * each).zip(numbers) {
            let sealed = &mut memory[..some.len() / each * record];
            if !read(sealed, self.page_at(number))? {
                return Ok(false);
            }
            let records = sealed.chunks_exact_mut(record);
            for ((page, sealed), number) in some.chunks_exact_mut(each).zip(records).zip(number..) {
                seal.open(number, sealed, page)?;
            }
        }
        Ok(true)
    }
}
