//! The destination's end of one channel.

use std::ops::Range;

use crate::class::Class;
use crate::codec::Unpacker;
use crate::delta;
use crate::kept::destination::Kept;
use crate::layout::{HEADER_BYTES, Header, checksum};
use crate::ops::{Op, Reader};
use crate::stored::Stored;
use crate::wrong::Wrong;
use crate::{SlotId, StoredId};

/// Reads the chunks of one channel, in the order in which they were packed.
#[derive(Debug)]
pub struct Decoder {
    raw_most: usize,
    unpacker: Unpacker,
    /// The ordinary section, and behind it the operations.
    ordinary: Vec<u8>,
    dense: Vec<u8>,
}

/// A chunk that went through its codecs.
#[derive(Debug)]
pub struct Unpacked<'d> {
    header: Header,
    operations: &'d [u8],
    ordinary: &'d [u8],
    dense: &'d [u8],
}

/// The bytes that a chunk gives, not yet compared with what was there at the source.
#[derive(Debug)]
#[must_use = "they may not be given to anybody before they are checked"]
pub struct Expanded<'r> {
    raw: &'r [u8],
    said: u64,
    crossed: Vec<Range<usize>>,
}

/// The bytes that were there at the source.
#[derive(Debug)]
pub struct Checked<'r> {
    /// All of them.
    pub raw: &'r [u8],
    /// Where in them pages are that crossed as they are: what the destination did not have.
    pub crossed: Vec<Range<usize>>,
}

impl Decoder {
    /// Of a channel of which a codec remembers 2^`window_log` bytes, and whose chunks stand for `raw_most` bytes at most.
    #[must_use]
    pub fn new(raw_most: usize, window_log: u32) -> Self {
        Self {
            raw_most,
            unpacker: Unpacker::new(window_log),
            ordinary: Vec::new(),
            dense: Vec::new(),
        }
    }

    /// Takes the next chunk through its codecs.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn unpack(&mut self, chunk: &[u8]) -> Result<Unpacked<'_>, Wrong> {
        let cut = Wrong::Layout("its header");
        let (header, body) = chunk.split_first_chunk::<HEADER_BYTES>().ok_or(cut)?;
        let header = Header::read(header)?;
        let sections = Wrong::Layout("the length of a section");
        let (packed, packed_dense) = body
            .split_at_checked(header.packed as usize)
            .ok_or(sections)?;
        self.check_lengths(&header)?;
        let pages = header.ordinary as usize;
        let count = pages + header.operations as usize;
        let packing = header.ordinary_packing;
        self.unpacker
            .unpack(packing, packed, count, &mut self.ordinary)?;
        let (packing, count) = (header.dense_packing, header.dense as usize);
        self.unpacker
            .unpack(packing, packed_dense, count, &mut self.dense)?;
        let (ordinary, operations) = self.ordinary.split_at(pages);
        Ok(Unpacked {
            header,
            operations,
            ordinary,
            dense: &self.dense,
        })
    }

    fn check_lengths(&self, header: &Header) -> Result<(), Wrong> {
        let most = self.raw_most;
        // Changes are in the operations, and are less than their pages: so none of them is longer than all.
        for (what, found) in [
            ("QEMU", header.raw),
            ("operations", header.operations),
            ("ordinary pages", header.ordinary),
            ("dense pages", header.dense),
        ] {
            let found = found as usize;
            if found > most {
                return Err(Wrong::TooMuch { what, found, most });
            }
        }
        Ok(())
    }
}

impl Unpacked<'_> {
    /// Replaces what is in `raw` with the bytes that the chunk gives.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn expand<'r>(
        self,
        kept: &mut Kept,
        stored: &mut impl Stored,
        raw: &'r mut Vec<u8>,
    ) -> Result<Expanded<'r>, Wrong> {
        raw.clear();
        let wanted = self.header.raw as usize;
        raw.reserve(wanted);
        let mut expansion = Expansion {
            kept,
            stored,
            ordinary: self.ordinary,
            dense: self.dense,
            wanted,
            raw,
            crossed: Vec::new(),
        };
        for op in Reader::new(self.operations) {
            expansion.perform(op?)?;
        }
        let crossed = expansion.crossed;
        if raw.len() != wanted {
            return Err(Wrong::Layout("fewer bytes than it says"));
        }
        Ok(Expanded {
            raw,
            said: self.header.checksum,
            crossed,
        })
    }
}

impl<'r> Expanded<'r> {
    /// The bytes, if they are those that were there at the source.
    ///
    /// # Errors
    /// [`Wrong::Content`].
    pub fn check(self) -> Result<Checked<'r>, Wrong> {
        let (found, said) = (checksum(self.raw), self.said);
        if found == said {
            Ok(Checked {
                raw: self.raw,
                crossed: self.crossed,
            })
        } else {
            Err(Wrong::Content { found, said })
        }
    }
}

/// A chunk being expanded: what is left of its sections, and what it gave so far.
struct Expansion<'e, S> {
    kept: &'e mut Kept,
    stored: &'e mut S,
    ordinary: &'e [u8],
    dense: &'e [u8],
    /// Bytes that it is to give.
    wanted: usize,
    raw: &'e mut Vec<u8>,
    crossed: Vec<Range<usize>>,
}

impl<S: Stored> Expansion<'_, S> {
    fn perform(&mut self, op: Op<'_>) -> Result<(), Wrong> {
        match op {
            Op::Plain { bytes } => {
                let bytes = take(&mut self.ordinary, bytes as usize)?;
                self.room(bytes.len())?;
                self.raw.extend_from_slice(bytes);
                Ok(())
            }
            Op::Fill { pages, word } => {
                let count = self.room_for(pages)?;
                let end = self.raw.len() + count;
                while self.raw.len() < end {
                    self.raw.extend_from_slice(&word);
                }
                Ok(())
            }
            Op::Literal { class, pages, keep } => self.literal(class, pages, keep),
            Op::Same { pages, slot } => {
                self.room_for(pages)?;
                for at in 0..pages {
                    let page = self.kept.get(behind(slot, at)?)?;
                    self.raw.extend_from_slice(page);
                }
                Ok(())
            }
            Op::Stored { pages, id, keep } => self.stored(pages, id, keep),
            Op::Changed { slot, keep, change } => self.changed(slot, keep, change),
        }
    }

    fn literal(&mut self, class: Class, pages: u32, keep: Option<SlotId>) -> Result<(), Wrong> {
        let count = self.room_for(pages)?;
        let section = match class {
            Class::Ordinary => &mut self.ordinary,
            Class::Dense => &mut self.dense,
        };
        let bytes = take(section, count)?;
        let begin = self.raw.len();
        self.raw.extend_from_slice(bytes);
        match self.crossed.last_mut() {
            Some(last) if last.end == begin => last.end += count,
            _ => self.crossed.push(begin..begin + count),
        }
        if let Some(first) = keep {
            let each = bytes.chunks_exact(self.kept.page_bytes());
            for (page, at) in each.zip(0..) {
                self.kept.put(behind(first, at)?, page)?;
            }
        }
        Ok(())
    }

    fn stored(&mut self, pages: u32, id: StoredId, keep: Option<SlotId>) -> Result<(), Wrong> {
        self.room_for(pages)?;
        for at in 0..pages {
            let number = id.0.checked_add(at);
            let id = number.map(StoredId);
            let id = id.ok_or(Wrong::Layout("a stored page beyond all"))?;
            let begin = self.raw.len();
            self.raw.resize(begin + self.kept.page_bytes(), 0);
            let page = &mut self.raw[begin..];
            self.stored.read(id, page)?;
            if let Some(first) = keep {
                self.kept.put(behind(first, at)?, page)?;
            }
        }
        Ok(())
    }

    fn changed(&mut self, slot: SlotId, keep: bool, change: &[u8]) -> Result<(), Wrong> {
        self.room_for(1)?;
        let begin = self.raw.len();
        self.raw.extend_from_slice(self.kept.get(slot)?);
        let page = &mut self.raw[begin..];
        delta::apply(change, page).ok_or(Wrong::Change)?;
        if keep {
            self.kept.put(slot, page)?;
        }
        Ok(())
    }

    /// The bytes of so many pages, if there is room for them.
    fn room_for(&self, pages: u32) -> Result<usize, Wrong> {
        let bytes = (pages as usize).saturating_mul(self.kept.page_bytes());
        self.room(bytes)?;
        Ok(bytes)
    }

    fn room(&self, bytes: usize) -> Result<(), Wrong> {
        if bytes <= self.wanted - self.raw.len() {
            Ok(())
        } else {
            Err(Wrong::Layout("more bytes than it says"))
        }
    }
}

fn behind(slot: SlotId, at: u32) -> Result<SlotId, Wrong> {
    let number = slot.0.checked_add(at);
    number.map(SlotId).ok_or(Wrong::Layout("a slot beyond all"))
}

fn take<'b>(section: &mut &'b [u8], count: usize) -> Result<&'b [u8], Wrong> {
    let missing = Wrong::Layout("more pages than it has");
    let (bytes, rest) = section.split_at_checked(count).ok_or(missing)?;
    *section = rest;
    Ok(bytes)
}
