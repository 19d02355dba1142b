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

use crate::limits::{PACKET_BYTES, PAGE_BYTES_LEAST};
use crate::opaque::{Compression, Opaque};
use crate::reader::Reader;

/// `MULTIFD_MAGIC`.
pub const MAGIC: u32 = 0x1122_3344;
/// `MULTIFD_VERSION`.
pub const VERSION: u32 = 1;
/// What a channel begins with.
pub const BEGINNING_BYTES: usize = 64;
/// A packet's header up to the pages' offsets.
pub const FIXED_BYTES: usize = 320;
/// Of it, up to what tells whether it is one that is understood.
pub const HEAD_BYTES: usize = 12;

const NAME_BYTES: usize = 256;

const SYNC: u32 = 1;
/// 0x7 in 7.2 and 8.x, of which the bits above were never set.
const COMPRESSION: u32 = 0x1f << 1;
const DEVICE_STATE: u32 = 32 << 1;

/// No block of memory is as large.
const OFFSET_MOST: u64 = 1 << 52;

/// The name of a block of guest memory, such as `pc.ram`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockName([u8; NAME_BYTES]);

impl BlockName {
    /// The name without what fills it up.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|byte| *byte == 0);
        self.0.split_at(length.unwrap_or(NAME_BYTES)).0
    }

    /// Printable, and followed by nothing but zeros.
    fn of(field: [u8; NAME_BYTES]) -> Option<Self> {
        let name = Self(field);
        let text = name.as_bytes();
        let (_, rest) = field.split_at(text.len());
        let usable =
            !text.is_empty() && text.iter().all(u8::is_ascii_graphic) && rest.first() == Some(&0);
        usable.then_some(name)
    }
}

/// A packet whose header has been seen: what follows it in the channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Where in the channel its pages begin, in bytes from the channel's first; they follow one after the other.
    pub begins: u64,
    /// The size of each, in bytes.
    pub page_bytes: u32,
    /// The block that all of them are in; none of a packet without pages.
    pub block: Option<BlockName>,
    /// Where in their block the pages are, in bytes, in the order in which they follow.
    pub pages: Vec<u64>,
    /// Pages of zeros, of which nothing follows (QEMU 9.0 and later).
    pub zeros: Vec<u64>,
    /// It ends a round: each channel has one.
    pub sync: bool,
}

impl Packet {
    /// What follows of it, in bytes.
    #[must_use]
    pub fn follows(&self) -> u64 {
        self.pages.len() as u64 * u64::from(self.page_bytes)
    }
}

/// Whether a channel that begins with [`MAGIC`] goes on as one of multifd.
pub fn check_beginning(bytes: &[u8]) -> Result<(), Opaque> {
    let mut reader = Reader::new(bytes);
    let _magic = reader.u32();
    match reader.u32().unwrap_or_default() {
        VERSION => Ok(()),
        version => Err(Opaque::Version { version }),
    }
}

/// How long each packet's header is with pages of that size.
///
/// # Errors
/// No page has that size.
pub fn header_bytes(page_bytes: u32) -> Result<usize, Opaque> {
    Ok(FIXED_BYTES + 8 * place(page_bytes)? as usize)
}

/// A packet has place for the same number of bytes whatever the size of pages.
fn place(page_bytes: u32) -> Result<u32, Opaque> {
    let usable = PAGE_BYTES_LEAST..=PACKET_BYTES;
    if page_bytes.is_power_of_two() && usable.contains(&page_bytes) {
        Ok(PACKET_BYTES / page_bytes)
    } else {
        Err(Opaque::PageSize { page_bytes })
    }
}

/// Whether a packet that begins so is understood.
pub fn check_head(head: &[u8]) -> Result<(), Opaque> {
    let mut reader = Reader::new(head);
    let magic = reader.u32().unwrap_or_default();
    if magic != MAGIC {
        return Err(Opaque::Packet { magic });
    }
    let version = reader.u32().unwrap_or_default();
    if version != VERSION {
        return Err(Opaque::Version { version });
    }
    check_flags(reader.u32().unwrap_or_default())
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

/// A packet, by its whole header, which ends at `begins`.
pub fn packet(header: &[u8], begins: u64, page_bytes: u32) -> Result<Packet, Opaque> {
    // It is as long as `header_bytes` says.
    let header = Header::read(Reader::new(header)).ok_or(Opaque::Reserved)?;
    let place = place(page_bytes)?;
    let only_sync = header.place == 0 && header.is_sync() && header.is_empty();
    if header.place != place && !only_sync {
        return Err(Opaque::Place {
            found: header.place,
            known: place,
        });
    }
    header.check(page_bytes)?;
    let Header { normal, zero, .. } = header;
    let block = if header.is_empty() {
        None
    } else {
        Some(BlockName::of(*header.name).ok_or(Opaque::Block)?)
    };
    let (pages, zeros) = offsets(header.rest, normal, zero).ok_or(Opaque::Reserved)?;
    let misplaced =
        |offset: &&u64| !offset.is_multiple_of(u64::from(page_bytes)) || **offset >= OFFSET_MOST;
    if let Some(offset) = pages.iter().chain(&zeros).find(misplaced) {
        return Err(Opaque::Offset { offset: *offset });
    }
    Ok(Packet {
        begins,
        page_bytes,
        block,
        pages,
        zeros,
        sync: header.is_sync(),
    })
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
    fn read(mut reader: Reader<'b>) -> Option<Self> {
        let _magic_and_version = reader.u64()?;
        let flags = reader.u32()?;
        let (place, normal, following) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let _number = reader.u64()?;
        Some(Self {
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

fn offsets(mut reader: Reader<'_>, normal: u32, zero: u32) -> Option<(Vec<u64>, Vec<u64>)> {
    let mut next = |count: u32| -> Option<Vec<u64>> { (0..count).map(|_| reader.u64()).collect() };
    Some((next(normal)?, next(zero)?))
}
