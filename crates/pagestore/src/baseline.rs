//! The pages of one guest by their address: the last version that was recorded of each.
//!
//! Unlike those of a [`Segment`](crate::Segment), a page is written anew where it is when its address is recorded again, so that nobody
//! may read while somebody records. Each is sealed for its place: one that was half written when a process or a host died is not taken
//! for another, but for none.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::at_once::{is_read_at_once, read_at_once};
use crate::known::{Known, Mixed};
use crate::layout::{BY_ADDRESS, NoSegment, Shape, within};
use crate::seal::{SEAL_BYTES, Seal, SealKey};

/// Addresses that are read at once: 64 KiB.
const ADDRESSES_AT_ONCE: u32 = 8192;

/// Bytes that are read at once to have them in memory.
const WARMED_AT_ONCE: usize = 1 << 20;

const ADDRESS_BYTES: usize = size_of::<u64>();

/// What was recorded, to be read.
#[derive(Debug)]
pub struct Baseline {
    file: File,
    shape: Shape,
    seal: Seal,
    /// Of each address, in their order, its place.
    places: Vec<(u64, u32)>,
}

/// Records pages.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    shape: Shape,
    seal: Seal,
    /// Of each address, by its number, its place: 14 bytes of memory for each when all are there.
    places: Known<Mixed>,
    /// Written at once.
    records: Vec<u8>,
    addresses: Vec<u8>,
}

impl Baseline {
    /// What fits into so many bytes; `None` where that is not one page.
    #[must_use]
    pub fn shape_within(bytes: u64, page_bytes: u32) -> Option<Shape> {
        within(bytes, page_bytes, true, BY_ADDRESS)
    }

    /// Makes this file, of which nothing is kept, an empty one, to be recorded to with the same key.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn make(file: &File, shape: Shape) -> Result<(), NoSegment> {
        file.set_len(0)?;
        shape.write(file, BY_ADDRESS, true)?;
        Ok(())
    }

    /// How large one is that was made.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn shape_of(file: &File) -> Result<Shape, NoSegment> {
        Shape::read(file, BY_ADDRESS, true)
    }

    /// Opens one, and learns of which addresses it has a page: 16 bytes of memory for each.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn open(file: File, key: &SealKey) -> Result<Self, NoSegment> {
        let shape = Self::shape_of(&file)?;
        let count = shape.count(&file)?;
        // As far as there are addresses: a count may lie.
        let mut places = Vec::new();
        let mut bytes = vec![0; ADDRESSES_AT_ONCE.min(count) as usize * ADDRESS_BYTES];
        let mut seen = 0;
        while seen < count {
            let some = &mut bytes[..(count - seen).min(ADDRESSES_AT_ONCE) as usize * ADDRESS_BYTES];
            file.read_exact_at(some, Shape::known_at(seen, BY_ADDRESS))?;
            let (addresses, _) = some.as_chunks();
            for (address, place) in addresses.iter().zip(seen..) {
                places.push((u64::from_be_bytes(*address), place));
            }
            seen += addresses.len() as u32;
        }
        places.sort_unstable();
        let seal = Seal::new(key)?;
        Ok(Self {
            file,
            shape,
            seal,
            places,
        })
    }

    /// How large it is.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Pages that it has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Has the kernel read all of it ahead, as far as it has memory for that. Blocks as long as the disk takes.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::Unsupported`] where no page is ever read without waiting for a disk.
    pub fn warm(&self) -> io::Result<()> {
        if !is_read_at_once(&self.file)? {
            let why = "its file system has no reads that wait for no disk (RWF_NOWAIT)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut memory = vec![0; WARMED_AT_ONCE];
        let end = self.page_at(self.places.len() as u32);
        let mut at = self.page_at(0);
        while at < end {
            let count = memory.len().min((end - at) as usize);
            self.file.read_exact_at(&mut memory[..count], at)?;
            at += count as u64;
        }
        Ok(())
    }

    fn page_at(&self, place: u32) -> u64 {
        self.shape.page_at(place, BY_ADDRESS, true)
    }

    /// Fills `page` with the page of that address; `false` where it has none, one that was half written, or one for which one would have to
    /// wait for the disk. `memory` is for what is sealed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, address: u64, page: &mut [u8], memory: &mut Vec<u8>) -> io::Result<bool> {
        let found = self
            .places
            .binary_search_by_key(&address, |(known, _)| *known);
        let Some((_, place)) = found.ok().and_then(|at| self.places.get(at)) else {
            return Ok(false);
        };
        if page.len() != self.shape.page_bytes as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        memory.resize(page.len() + SEAL_BYTES, 0);
        if !read_at_once(&self.file, memory, self.page_at(*place))? {
            return Ok(false);
        }
        Ok(self.seal.open(*place, memory, page).is_ok())
    }
}

impl Recorder {
    /// To a file that was [made](Baseline::make) and in which nothing is recorded yet.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn new(file: File, key: &SealKey) -> Result<Self, NoSegment> {
        let shape = Baseline::shape_of(&file)?;
        let seal = Seal::new(key)?;
        Ok(Self {
            file,
            shape,
            seal,
            places: Known::new(shape.places),
            records: Vec::new(),
            addresses: Vec::new(),
        })
    }

    /// How large the file is.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Records the pages, which stand one behind the other, for these addresses: how many found no room.
    ///
    /// # Errors
    /// The kernel's; what was recorded before may be half there, which is noticed where it is read.
    pub fn record(&mut self, addresses: &[u64], pages: &[u8]) -> io::Result<u32> {
        let first = self.places.count();
        let mut left_out = 0;
        self.records.clear();
        self.addresses.clear();
        let each = pages.chunks_exact(self.shape.page_bytes as usize);
        for (address, page) in addresses.iter().zip(each) {
            let known = Mixed::address(*address);
            match self.places.find(&known) {
                Some(place) if place < first => self.again(place, page)?,
                Some(place) => {
                    // Twice in what is written at once: the later one counts.
                    let record = self.record_bytes();
                    let at = (place - first) as usize * record;
                    let mut sealed = Vec::with_capacity(record);
                    self.seal.seal(place, page, &mut sealed)?;
                    self.records[at..at + record].copy_from_slice(&sealed);
                }
                None if self.places.is_full() => left_out += 1,
                None => {
                    let place = self.places.count();
                    self.seal.seal(place, page, &mut self.records)?;
                    self.addresses.extend(address.to_be_bytes());
                    self.places.add(known);
                }
            }
        }
        let count = self.places.count();
        if count > first {
            // In this order, so that what is counted is there whenever this process dies.
            self.file.write_all_at(&self.records, self.page_at(first))?;
            let at = Shape::known_at(first, BY_ADDRESS);
            self.file.write_all_at(&self.addresses, at)?;
            Shape::set_count(&self.file, count)?;
        }
        Ok(left_out)
    }

    fn again(&self, place: u32, page: &[u8]) -> io::Result<()> {
        let mut sealed = Vec::with_capacity(self.record_bytes());
        self.seal.seal(place, page, &mut sealed)?;
        self.file.write_all_at(&sealed, self.page_at(place))
    }

    fn page_at(&self, place: u32) -> u64 {
        self.shape.page_at(place, BY_ADDRESS, true)
    }

    const fn record_bytes(&self) -> usize {
        self.shape.page_bytes as usize + SEAL_BYTES
    }
}
