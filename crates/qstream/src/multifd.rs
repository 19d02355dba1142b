//! A multifd channel's beginning and its packets, as QEMU 7.2 to 10.2 send them.
//!
//! ```text
//!   beginning   magic, version, uuid[16], id u8, empty: 64 bytes
//!   packet      magic, version, flags            ─┐
//!               place, pages, following: 3 x u32  │ 320 bytes
//!               number u64                        │
//!               zero pages u32 (from 9.0), empty  │
//!               block: name[256]                 ─┘
//!               offset in the block: u64 x place, first of pages, then of zero pages
//!               then the pages themselves
//! ```
//! All numbers are big-endian. A header is as long in every packet, whatever is in it. 7.2 to 8.2 have zeros where the
//! number of zero pages is, and send those pages on the main channel: so both are read alike. Seen on both:
//! - 10.0 leaves everything but the flags empty in a packet that only ends a round, the place for pages included;
//! - 7.2 leaves there what followed the packet before, though nothing follows.

use crate::block::Block;
use crate::found::{Found, Page, is_place};
use crate::limits::{PACKET_BYTES, PAGE_BYTES_LEAST};
use crate::opaque::{Compression, Opaque};
use crate::reader::{Reader, Stop};

/// `MULTIFD_MAGIC`.
pub const MAGIC: u32 = 0x1122_3344;
/// `MULTIFD_VERSION`.
pub const VERSION: u32 = 1;
/// What a channel begins with.
const BEGINNING_BYTES: usize = 64;
/// A packet's header up to the pages' offsets.
pub const FIXED_BYTES: usize = 320;
/// Of it, up to what tells whether it is one that is understood.
const HEAD_BYTES: usize = 12;

const NAME_BYTES: usize = 256;

const SYNC: u32 = 1;
/// 0x7 in 7.2 and 8.x, of which the bits above were never set.
const COMPRESSION: u32 = 0x1f << 1;
const DEVICE_STATE: u32 = 32 << 1;

/// A multifd channel, item by item: its beginning, then packets.
#[derive(Debug, Clone)]
pub struct Multifd {
    page_bytes: u32,
    begun: bool,
}

impl Multifd {
    pub const fn new(page_bytes: u32) -> Self {
        Self {
            page_bytes,
            begun: false,
        }
    }

    /// Its beginning is as known.
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Bytes of the next item that tell how long it is.
    pub const fn least(&self) -> usize {
        if self.begun {
            HEAD_BYTES
        } else {
            BEGINNING_BYTES
        }
    }

    /// Reads an item, of which so much is there, up to the channel's byte `ends`: how many bytes follow that say nothing.
    pub fn read(
        &mut self,
        item: &[u8],
        ends: u64,
        found: &mut impl FnMut(Found),
    ) -> Result<u64, Stop> {
        let mut reader = Reader::new(item);
        reader.needs(self.least())?;
        if self.begun {
            let flags = head(&mut reader)?;
            reader.needs(FIXED_BYTES + 8 * place(self.page_bytes)? as usize)?;
            let header = Header::read(flags, reader)?;
            return header.pages(ends, self.page_bytes, found);
        }
        beginning(&mut reader)?;
        self.begun = true;
        Ok(0)
    }
}

/// The block of such a name in a field: printable, and followed by nothing but zeros.
fn block_of(field: &[u8; NAME_BYTES]) -> Option<Block> {
    let length = field.iter().position(|byte| *byte == 0)?;
    Block::checked(field.split_at(length).0)
}

/// Whether a channel that begins with [`MAGIC`] goes on as one of multifd.
fn beginning(reader: &mut Reader<'_>) -> Result<(), Stop> {
    let _magic = reader.u32()?;
    match reader.u32()? {
        VERSION => Ok(()),
        version => Err(Opaque::Version { version }.into()),
    }
}

/// Whether a guest has pages of that size.
pub fn check_page_bytes(page_bytes: u32) -> Result<(), Opaque> {
    let usable = PAGE_BYTES_LEAST..=PACKET_BYTES;
    if page_bytes.is_power_of_two() && usable.contains(&page_bytes) {
        Ok(())
    } else {
        Err(Opaque::PageSize { page_bytes })
    }
}

/// A packet has place for the same number of bytes whatever the size of pages.
fn place(page_bytes: u32) -> Result<u32, Opaque> {
    check_page_bytes(page_bytes)?;
    Ok(PACKET_BYTES / page_bytes)
}

/// The flags of a packet, if it is one that is understood.
fn head(reader: &mut Reader<'_>) -> Result<u32, Stop> {
    let magic = reader.u32()?;
    if magic != MAGIC {
        return Err(Opaque::Packet { magic }.into());
    }
    let version = reader.u32()?;
    if version != VERSION {
        return Err(Opaque::Version { version }.into());
    }
    let flags = reader.u32()?;
    check_flags(flags)?;
    Ok(flags)
}

fn check_flags(flags: u32) -> Result<(), Opaque> {
    if flags & DEVICE_STATE != 0 {
        return Err(Opaque::DeviceState);
    }
    if flags & !(SYNC | COMPRESSION) != 0 {
        return Err(Opaque::Flags { flags });
    }
    match (flags & COMPRESSION) >> 1 {
        0 => Ok(()),
        1 => Err(Opaque::Compressed(Compression::Zlib)),
        2 => Err(Opaque::Compressed(Compression::Zstd)),
        4 | 8 | 16 => Err(Opaque::Compressed(Compression::Accelerator)),
        _ => Err(Opaque::Flags { flags }),
    }
}

/// A packet's fields, as they stand there.
#[derive(Clone, Copy)]
struct Header<'b> {
    flags: u32,
    place: u32,
    normal: u32,
    following: u32,
    zero: u32,
    empty: &'b [u8; 28],
    name: &'b [u8; NAME_BYTES],
    rest: Reader<'b>,
}

impl<'b> Header<'b> {
    /// What follows the flags.
    fn read(flags: u32, mut reader: Reader<'b>) -> Result<Self, Stop> {
        let (place, normal, following) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let _number = reader.u64()?;
        Ok(Self {
            flags,
            place,
            normal,
            following,
            zero: reader.u32()?,
            empty: reader.take()?,
            name: reader.take()?,
            rest: reader,
        })
    }

    /// Its pages, if all of it is as known: their content begins at `ends`. How many bytes that is.
    fn pages(
        &self,
        ends: u64,
        page_bytes: u32,
        found: &mut impl FnMut(Found),
    ) -> Result<u64, Stop> {
        let place = place(page_bytes)?;
        let only_sync = self.place == 0 && self.is_sync() && self.is_empty();
        if self.place != place && !only_sync {
            let (found, known) = (self.place, place);
            return Err(Opaque::Place { found, known }.into());
        }
        self.check(page_bytes)?;
        if self.is_empty() {
            return Ok(0);
        }
        let block = block_of(self.name).ok_or(Opaque::Block)?;
        let mut offsets = self.rest;
        for _ in 0..self.normal + self.zero {
            let offset = offsets.u64()?;
            if !is_place(offset, page_bytes) {
                return Err(Opaque::Offset { offset }.into());
            }
        }
        let (mut offsets, mut begins) = (self.rest, ends);
        for _ in 0..self.normal {
            let offset = offsets.u64()?;
            found(Found::Page(Page {
                begins,
                block,
                offset,
            }));
            begins += u64::from(page_bytes);
        }
        for _ in 0..self.zero {
            let offset = offsets.u64()?;
            found(Found::Filled { block, offset });
        }
        Ok(begins - ends)
    }

    fn is_sync(&self) -> bool {
        self.flags & SYNC != 0
    }

    fn is_empty(&self) -> bool {
        self.normal == 0 && self.zero == 0
    }

    fn check(&self, page_bytes: u32) -> Result<(), Opaque> {
        let &Self {
            place,
            normal,
            zero,
            following,
            ..
        } = self;
        if self.empty.iter().any(|byte| *byte != 0) {
            return Err(Opaque::Reserved);
        }
        if u64::from(normal) + u64::from(zero) > u64::from(place) {
            return Err(Opaque::TooManyPages {
                normal,
                zero,
                place,
            });
        }
        let wanted = u64::from(normal) * u64::from(page_bytes);
        if normal > 0 && wanted != u64::from(following) {
            let said = following;
            return Err(Opaque::Size { wanted, said });
        }
        Ok(())
    }
}
