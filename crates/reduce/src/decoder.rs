//! The destination's end of one channel.

use std::ops::Range;

use crate::SlotId;
use crate::class::Class;
use crate::codec::Unpacker;
use crate::delta;
use crate::kept::destination::Kept;
use crate::layout::{HEADER_BYTES, Header, checksum};
use crate::ops::{Op, Reader};
use crate::stored::{Stored, StoredId};
use crate::wrong::Wrong;

/// Reads the chunks of one channel, in the order in which they were packed.
#[derive(Debug)]
pub struct Decoder {
    raw_most: usize,
    page_bytes: usize,
    unpacker: Unpacker,
    /// The ordinary section, and behind it the operations.
    ordinary: Vec<u8>,
    dense: Vec<u8>,
    /// The stored pages that a chunk refers to, as it does.
    stored: Vec<u8>,
}

/// A chunk that went through its codecs.
#[derive(Debug)]
pub struct Unpacked<'d> {
    raw_bytes: usize,
    page_bytes: usize,
    /// Empty.
    stored: &'d mut Vec<u8>,
    sections: Sections<'d>,
}

/// A chunk of which all is there but the kept pages.
#[derive(Debug)]
pub struct Fetched<'d> {
    stored: &'d [u8],
    sections: Sections<'d>,
}

#[derive(Debug)]
struct Sections<'d> {
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
    /// Of a channel of which a codec remembers 2^`window_log` bytes, and whose chunks stand for `raw_most` bytes at most, in
    /// pages of `page_bytes`.
    #[must_use]
    pub fn new(raw_most: usize, page_bytes: usize, window_log: u32) -> Self {
        Self {
            raw_most,
            page_bytes,
            unpacker: Unpacker::new(window_log),
            ordinary: Vec::new(),
            dense: Vec::new(),
            stored: Vec::new(),
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
        self.stored.clear();
        Ok(Unpacked {
            raw_bytes: header.raw as usize,
            page_bytes: self.page_bytes,
            stored: &mut self.stored,
            sections: Sections {
                header,
                operations,
                ordinary,
                dense: &self.dense,
            },
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

impl<'d> Unpacked<'d> {
    /// Reads the stored pages that the chunk refers to: before the kept ones are needed, for which channels wait for each
    /// other. Those that follow each other are read at once, whatever else the chunk has between them.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn fetch(self, from: &impl Stored) -> Result<Fetched<'d>, Wrong> {
        let stored = self.stored;
        // The first of those that follow each other, and where it goes.
        let mut run: Option<(StoredId, usize)> = None;
        for op in Reader::new(self.sections.operations) {
            let (pages, id) = match op? {
                Op::Stored { pages, id, .. } => (pages, id),
                Op::StoredChanged { id, .. } => (1, id),
                _ => continue,
            };
            let begin = stored.len();
            let count = (pages as usize).saturating_mul(self.page_bytes);
            if count > self.raw_bytes - begin {
                return Err(Wrong::MORE_BYTES);
            }
            if let Some((first, place)) = run {
                let pages = (begin - place) / self.page_bytes;
                if first.0 as usize + pages != id.0 as usize {
                    from.read(first, &mut stored[place..])?;
                    run = Some((id, begin));
                }
            } else {
                run = Some((id, begin));
            }
            stored.resize(begin + count, 0);
        }
        if let Some((first, place)) = run {
            from.read(first, &mut stored[place..])?;
        }
        Ok(Fetched {
            stored,
            sections: self.sections,
        })
    }
}

impl Fetched<'_> {
    /// Replaces what is in `raw` with the bytes that the chunk gives.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn expand<'r>(self, kept: &mut Kept, raw: &'r mut Vec<u8>) -> Result<Expanded<'r>, Wrong> {
        let Sections {
            header,
            operations,
            ordinary,
            dense,
        } = self.sections;
        raw.clear();
        let wanted = header.raw as usize;
        raw.reserve(wanted);
        let mut expansion = Expansion {
            kept,
            stored: self.stored,
            ordinary,
            dense,
            wanted,
            raw,
            crossed: Vec::new(),
        };
        for op in Reader::new(operations) {
            expansion.perform(op?)?;
        }
        let crossed = expansion.crossed;
        if raw.len() != wanted {
            return Err(Wrong::Layout("fewer bytes than it says"));
        }
        Ok(Expanded {
            raw,
            said: header.checksum,
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
struct Expansion<'e> {
    kept: &'e mut Kept,
    stored: &'e [u8],
    ordinary: &'e [u8],
    dense: &'e [u8],
    /// Bytes that it is to give.
    wanted: usize,
    raw: &'e mut Vec<u8>,
    crossed: Vec<Range<usize>>,
}

impl Expansion<'_> {
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
            Op::Stored { pages, keep, .. } => self.stored(pages, keep),
            Op::Changed { slot, keep, change } => self.changed(slot, keep, change),
            Op::StoredChanged { keep, change, .. } => self.stored_changed(keep, change),
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
        self.keep(bytes, keep)
    }

    fn stored(&mut self, pages: u32, keep: Option<SlotId>) -> Result<(), Wrong> {
        let count = self.room_for(pages)?;
        let bytes = take(&mut self.stored, count)?;
        self.raw.extend_from_slice(bytes);
        self.keep(bytes, keep)
    }

    /// Keeps these pages from the first place on, where they are to be kept.
    fn keep(&mut self, pages: &[u8], first: Option<SlotId>) -> Result<(), Wrong> {
        let Some(first) = first else {
            return Ok(());
        };
        let each = pages.chunks_exact(self.kept.page_bytes());
        for (page, at) in each.zip(0..) {
            self.kept.put(behind(first, at)?, page)?;
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

    fn stored_changed(&mut self, keep: Option<SlotId>, change: &[u8]) -> Result<(), Wrong> {
        let count = self.room_for(1)?;
        let base = take(&mut self.stored, count)?;
        let begin = self.raw.len();
        self.raw.extend_from_slice(base);
        let page = &mut self.raw[begin..];
        delta::apply(change, page).ok_or(Wrong::Change)?;
        match keep {
            Some(slot) => self.kept.put(slot, page),
            None => Ok(()),
        }
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
            Err(Wrong::MORE_BYTES)
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

#[cfg(test)]
mod tests;
