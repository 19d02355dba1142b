//! A file of pages, as those see it who read it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::digest::{DIGEST_BYTES, Digest};
use crate::layout::{NoSegment, Shape};

/// A file of pages.
#[derive(Debug)]
pub struct Segment {
    file: File,
    shape: Shape,
}

impl Segment {
    /// Makes an empty one in memory, which takes as much of it as it has pages.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn in_memory(shape: Shape) -> Result<Self, NoSegment> {
        let memory = memfd_create("drover-pages", MemfdFlags::CLOEXEC);
        let file = File::from(memory.map_err(io::Error::from)?);
        let shape = shape.write(&file)?;
        Ok(Self { file, shape })
    }

    /// Opens one that was made, by whomever.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn open(file: File) -> Result<Self, NoSegment> {
        let shape = Shape::read(&file)?;
        Ok(Self { file, shape })
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

    /// Pages that are there by now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn count(&self) -> io::Result<u32> {
        self.shape.count(&self.file)
    }

    /// The digests of these pages, of which there are so many.
    ///
    /// # Errors
    /// The kernel's.
    pub fn digests(&self, pages: Range<u32>) -> io::Result<Vec<Digest>> {
        let pages = pages.start..pages.end.min(self.shape.places);
        let mut bytes = vec![0; pages.len() * DIGEST_BYTES];
        let at = Shape::digest_at(pages.start);
        self.file.read_exact_at(&mut bytes, at)?;
        let (digests, _) = bytes.as_chunks();
        Ok(digests.iter().copied().map(Digest).collect())
    }

    /// Fills `page`, of the right size, with the page of that number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, number: u32, page: &mut [u8]) -> io::Result<()> {
        if number >= self.shape.places || page.len() != self.shape.page_bytes as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.read_exact_at(page, self.shape.page_at(number))
    }
}
