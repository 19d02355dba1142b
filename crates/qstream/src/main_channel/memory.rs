//! The section of memory in the main channel (`migration/ram.c`).
//!
//! ```text
//!   START   MEM_SIZE word with the size of all blocks
//!           of each: u8 length and name, size u64, its pages' size u64 (with postcopy, if it is not the host's),
//!           its address u64 (with x-ignore-shared)
//!   then, as in PART and END, words:
//!     ZERO [name] fill byte              a page filled with it, usually with zero
//!     PAGE [name] page                   a page's content
//!     MULTIFD_FLUSH                      a round has ended on the multifd channels
//!     EOS                                the section ends
//! ```
//! A word is a u64: an offset in a block, and flags in the bits that are zero in any offset. The name of the block follows,
//! u8 length and name, unless it is that of the word before (CONTINUE), which may be of another section.

use crate::block::Block;
use crate::found::{Found, Page, is_place};
use crate::opaque::{Compression, Opaque};
use crate::reader::{Reader, Stop};

const ZERO: u64 = 0x02;
const MEM_SIZE: u64 = 0x04;
const PAGE: u64 = 0x08;
const EOS: u64 = 0x10;
const CONTINUE: u64 = 0x20;
const XBZRLE: u64 = 0x40;
const HOOK: u64 = 0x80;
const COMPRESS_PAGE: u64 = 0x100;
const MULTIFD_FLUSH: u64 = 0x200;

/// What a section of memory says.
#[derive(Debug, Clone)]
pub struct Memory {
    page_bytes: u32,
    /// Blocks may be listed with their pages' size.
    pub has_sizes: bool,
    /// Blocks are listed with their address.
    pub has_addresses: bool,
    expects: Expects,
    /// That of the page before.
    block: Option<Block>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    /// The size of all.
    Size,
    /// Blocks of so many bytes in all, after one of which so many numbers were listed.
    Blocks {
        left: u64,
        numbers: Option<u8>,
    },
    Word,
    /// It has ended.
    Nothing,
}

impl Memory {
    pub const fn new(page_bytes: u32) -> Self {
        Self {
            page_bytes,
            has_sizes: false,
            has_addresses: false,
            expects: Expects::Nothing,
            block: None,
        }
    }

    /// Its first part has begun.
    pub const fn begin(&mut self) {
        self.expects = Expects::Size;
    }

    /// Another part of it has begun.
    pub const fn go_on(&mut self) {
        self.expects = Expects::Word;
    }

    /// The part has ended.
    pub const fn is_over(&self) -> bool {
        matches!(self.expects, Expects::Nothing)
    }

    /// Bytes of the next item that tell how long it is.
    pub const fn least(&self) -> usize {
        match self.expects {
            Expects::Size | Expects::Word => 8,
            Expects::Blocks { .. } | Expects::Nothing => 1,
        }
    }

    /// Reads an item, up to the channel's byte `ends`: how many bytes follow that say nothing.
    pub fn read(
        &mut self,
        reader: &mut Reader<'_>,
        ends: u64,
        found: &mut impl FnMut(Found),
    ) -> Result<u64, Stop> {
        match self.expects {
            Expects::Size => {
                let word = reader.u64()?;
                let left = word & !self.flags();
                if word & self.flags() != MEM_SIZE || left == 0 {
                    return Err(Opaque::Word { word }.into());
                }
                let numbers = None;
                self.expects = Expects::Blocks { left, numbers };
                Ok(0)
            }
            Expects::Blocks { left, numbers } => {
                if self.lists(reader, left, numbers)? {
                    return Ok(0);
                }
                self.word(reader, ends, found)
            }
            Expects::Word => self.word(reader, ends, found),
            Expects::Nothing => Err(Opaque::Blocks.into()),
        }
    }

    /// Where a word has its flags.
    fn flags(&self) -> u64 {
        u64::from(self.page_bytes) - 1
    }

    /// Reads a block in the list, or a number that belongs to the last one; false before the word that ends the list. Names have a
    /// length, and the numbers and words here begin with a zero; numbers have no flags, and these words have some.
    fn lists(
        &mut self,
        reader: &mut Reader<'_>,
        left: u64,
        numbers: Option<u8>,
    ) -> Result<bool, Stop> {
        let least = u8::from(self.has_addresses);
        let most = least + u8::from(self.has_sizes);
        let complete = numbers.is_none_or(|numbers| (least..=most).contains(&numbers));
        let mut begins = *reader;
        if begins.u8()? > 0 {
            let (name, bytes) = (reader.name()?, reader.u64()?);
            let rest = left.checked_sub(bytes);
            let rest = rest.filter(|_| complete && left > 0);
            let (left, numbers) = (rest.ok_or(Opaque::Blocks)?, Some(0));
            Block::checked(name).ok_or(Opaque::Block)?;
            self.expects = Expects::Blocks { left, numbers };
            return Ok(true);
        }
        let mut begins = *reader;
        if begins.u64()? & self.flags() == 0 {
            let numbers = numbers.ok_or(Opaque::Blocks)? + 1;
            if numbers > most {
                return Err(Opaque::Blocks.into());
            }
            let numbers = Some(numbers);
            self.expects = Expects::Blocks { left, numbers };
            return Ok(true);
        }
        if left > 0 || !complete {
            return Err(Opaque::Blocks.into());
        }
        Ok(false)
    }

    fn word(
        &mut self,
        reader: &mut Reader<'_>,
        ends: u64,
        found: &mut impl FnMut(Found),
    ) -> Result<u64, Stop> {
        let word = reader.u64()?;
        let unknown = Opaque::Word { word };
        let (offset, flags) = (word & !self.flags(), word & self.flags());
        match flags & !CONTINUE {
            ZERO | PAGE => {}
            EOS | MULTIFD_FLUSH if offset == 0 && flags & CONTINUE == 0 => {
                self.expects = if flags == EOS {
                    Expects::Nothing
                } else {
                    Expects::Word
                };
                return Ok(0);
            }
            XBZRLE => return Err(Opaque::Xbzrle.into()),
            COMPRESS_PAGE => return Err(Opaque::Compressed(Compression::Zlib).into()),
            flags if flags & HOOK != 0 => return Err(Opaque::Hook.into()),
            _ => return Err(unknown.into()),
        }
        let block = if flags & CONTINUE == 0 {
            Block::checked(reader.name()?)
        } else {
            self.block
        };
        let block = block.ok_or(Opaque::Block)?;
        if !is_place(offset, self.page_bytes) {
            return Err(Opaque::Offset { offset }.into());
        }
        let ahead = if flags & PAGE == 0 {
            let _fill = reader.u8()?;
            found(Found::Filled { block, offset });
            0
        } else {
            found(Found::Page(Page {
                begins: ends,
                block,
                offset,
            }));
            u64::from(self.page_bytes)
        };
        self.expects = Expects::Word;
        self.block = Some(block);
        Ok(ahead)
    }
}
