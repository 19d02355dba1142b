//! The source's end of one channel.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::{Class, filled_with};
use crate::codec::{Codec, Packer, ZstdFailed};
use crate::codecs::PackingTook;
use crate::counts::{Counts, Section};
use crate::kept::source::{Found, Kept, hash};
use crate::layout::{HEADER_BYTES, Header, checksum};
use crate::ops::{Op, Writer};
use crate::stored::Told;
use crate::{PageId, SlotId, delta, limits};

/// What the next bytes of a channel are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// So many bytes that are no pages.
    Plain(usize),
    /// A page.
    Page(PageId),
}

/// What the sections go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Everything but dense pages.
    pub ordinary: Codec,
    /// Dense pages.
    pub dense: Codec,
}

/// Describes and packs the chunks of one channel.
#[derive(Debug)]
pub struct Encoder {
    page_bytes: usize,
    channel: u16,
    packer: Packer,
    ops: Writer,
    /// The ordinary section, and behind it the operations once they are all known.
    ordinary: Vec<u8>,
    /// Where those begin.
    pages_end: usize,
    dense: Vec<u8>,
    /// The pages of the chunk that is described, and where they begin.
    pages: Vec<(usize, PageId, Page)>,
    /// What changed of kept ones, one behind the other.
    changes: Vec<u8>,
    /// The same of a stored one.
    change: Vec<u8>,
    counts: Counts,
}

/// What is known of a page by now.
#[derive(Debug)]
enum Page {
    /// It is this word, again and again.
    Filled([u8; 8]),
    /// It is not.
    Hashed(u64),
    /// This is kept of it, with what changed, if that is it.
    Found(Found, Range<usize>),
}

impl Encoder {
    /// Of a channel whose pages have that size and of which a codec remembers 2^`window_log` bytes.
    #[must_use]
    pub fn new(channel: u16, page_bytes: usize, window_log: u32) -> Self {
        Self {
            page_bytes: page_bytes.clamp(limits::PAGE_BYTES_LEAST, limits::PAGE_BYTES_MOST),
            channel,
            packer: Packer::new(window_log),
            ops: Writer::default(),
            ordinary: Vec::new(),
            pages_end: 0,
            dense: Vec::new(),
            pages: Vec::new(),
            changes: Vec::new(),
            change: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Describes the channel's chunk of that number: `raw`, which is what the spans say. A span that goes beyond its end
    /// counts as plain. `told` is what the destination has told of pages that its host has stored.
    pub fn describe(
        &mut self,
        chunk: u64,
        raw: &[u8],
        spans: &[Span],
        kept: &mut Kept,
        told: &mut impl Told,
    ) {
        self.look(raw, spans);
        self.find(chunk, raw, kept);
        self.write(raw, told);
    }

    /// The first of three parts of [`Encoder::describe`], of which only the second needs what channels share: looks at the pages alone.
    pub fn look(&mut self, raw: &[u8], spans: &[Span]) {
        self.pages.clear();
        let mut at = 0_usize;
        for span in spans {
            match *span {
                Span::Plain(bytes) => at = raw.len().min(at.saturating_add(bytes)),
                Span::Page(id) => {
                    let Some(page) = raw.get(at..at + self.page_bytes) else {
                        break;
                    };
                    let found = match filled_with(page) {
                        Some(word) => Page::Filled(word),
                        None => Page::Hashed(hash(page)),
                    };
                    self.pages.push((at, id, found));
                    at += self.page_bytes;
                }
            }
        }
    }

    /// The second part: finds what the destination keeps of them, and has them kept.
    pub fn find(&mut self, chunk: u64, raw: &[u8], kept: &mut Kept) {
        self.changes.clear();
        let turn = kept.begin(self.channel, chunk);
        for (at, id, found) in &mut self.pages {
            let Page::Hashed(hash) = *found else {
                continue;
            };
            let begin = self.changes.len();
            let page = &raw[*at..*at + self.page_bytes];
            let kept = kept.put((turn, *id), (page, hash), &mut self.changes);
            *found = Page::Found(kept, begin..self.changes.len());
        }
    }

    /// The third part: writes what the destination is to do, and looks for stored pages. Without the second one nothing is kept.
    pub fn write(&mut self, raw: &[u8], told: &mut impl Told) {
        self.ops.clear();
        self.ordinary.clear();
        self.dense.clear();
        self.counts = Counts {
            chunks: 1,
            raw: raw.len() as u64,
            ..Counts::default()
        };
        let pages = std::mem::take(&mut self.pages);
        let mut done = 0;
        for (at, id, found) in &pages {
            self.plain(&raw[done..*at]);
            done = at + self.page_bytes;
            self.page(*id, &raw[*at..done], found, told);
        }
        self.pages = pages;
        self.plain(&raw[done..]);
        self.pages_end = self.ordinary.len();
        self.ordinary.extend_from_slice(self.ops.finish());
    }

    fn plain(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.ordinary.extend_from_slice(bytes);
        self.counts.plain += bytes.len() as u64;
        self.ops.put(Op::Plain {
            bytes: bytes.len() as u32,
        });
    }

    fn page(&mut self, id: PageId, page: &[u8], found: &Page, told: &mut impl Told) {
        let (found, change) = match found {
            Page::Filled(word) => {
                self.counts.filled += 1;
                return self.ops.put(Op::Fill {
                    pages: 1,
                    word: *word,
                });
            }
            Page::Hashed(_) => (Found::New { keep: None }, 0..0),
            Page::Found(found, change) => (*found, change.clone()),
        };
        match found {
            Found::Same(slot) => {
                self.counts.same += 1;
                self.ops.put(Op::Same { pages: 1, slot });
            }
            Found::Changed { slot, keep } => {
                self.counts.changed += 1;
                self.counts.change_bytes += change.len() as u64;
                self.ops.put_changed(slot, keep, &self.changes[change]);
            }
            Found::New { keep } => {
                let pages = 1;
                if let Some(id) = told.find(page) {
                    self.counts.stored += 1;
                    self.ops.put(Op::Stored { pages, id, keep });
                } else if !self.stored_changed(id, page, keep, told) {
                    let class = self.literal(page);
                    self.ops.put(Op::Literal { class, pages, keep });
                }
            }
        }
    }

    /// The page as what changed of a stored one; `false` where it is too much, or there is none.
    fn stored_changed(
        &mut self,
        page: PageId,
        content: &[u8],
        keep: Option<SlotId>,
        told: &mut impl Told,
    ) -> bool {
        let Some((id, base)) = told.base(page) else {
            return false;
        };
        self.change.clear();
        let most = content.len() / limits::DELTA_PART;
        let fits = base.len() == content.len() && delta::put(base, content, most, &mut self.change);
        if fits {
            self.counts.stored_changed += 1;
            self.counts.change_bytes += self.change.len() as u64;
            self.ops.put_stored_changed(id, keep, &self.change);
        }
        fits
    }

    fn literal(&mut self, page: &[u8]) -> Class {
        let class = Class::of(page);
        match class {
            Class::Ordinary => {
                self.counts.ordinary += 1;
                self.ordinary.extend_from_slice(page);
            }
            Class::Dense => {
                self.counts.dense += 1;
                self.dense.extend_from_slice(page);
            }
        }
        class
    }

    /// What goes through the codec of that class in the chunk that was described: its pages, and with the ordinary ones what says what
    /// became of all others.
    #[must_use]
    pub fn section(&self, class: Class) -> &[u8] {
        match class {
            Class::Ordinary => &self.ordinary,
            Class::Dense => &self.dense,
        }
    }

    /// Replaces what is in `to` with the chunk that was described, and says what became of its bytes.
    ///
    /// # Errors
    /// The codec has no memory. The chunk is lost, and with it the session.
    pub fn pack(
        &mut self,
        raw: &[u8],
        choice: Choice,
        to: &mut Vec<u8>,
    ) -> Result<Counts, ZstdFailed> {
        let packed = self.pack_timed(raw, choice, to, || Duration::ZERO);
        packed.map(|(counts, _)| counts)
    }

    /// The same, and what each codec took; `clock` says what the thread took of processors so far.
    ///
    /// # Errors
    /// As [`Encoder::pack`].
    pub fn pack_timed(
        &mut self,
        raw: &[u8],
        choice: Choice,
        to: &mut Vec<u8>,
        clock: impl Fn() -> Duration,
    ) -> Result<(Counts, PackingTook), ZstdFailed> {
        to.clear();
        to.resize(HEADER_BYTES, 0);
        let pages = self.pages_end;
        let began = clock();
        let ordinary_packing = self.packer.pack(choice.ordinary, &self.ordinary, to)?;
        let packed = to.len() - HEADER_BYTES;
        let between = clock();
        let dense_packing = self.packer.pack(choice.dense, &self.dense, to)?;
        let took = PackingTook {
            ordinary: between.saturating_sub(began),
            dense: clock().saturating_sub(between),
        };
        let header = Header {
            raw: raw.len() as u32,
            checksum: checksum(raw),
            ordinary: pages as u32,
            operations: (self.ordinary.len() - pages) as u32,
            dense: self.dense.len() as u32,
            packed: packed as u32,
            ordinary_packing,
            dense_packing,
        };
        if let Some(place) = to.first_chunk_mut() {
            header.write(place);
        }
        self.counts.wire = to.len() as u64;
        self.counts.ordinary_section = Section {
            bytes: self.ordinary.len() as u64,
            packed: packed as u64,
        };
        self.counts.dense_section = Section {
            bytes: self.dense.len() as u64,
            packed: (to.len() - HEADER_BYTES - packed) as u64,
        };
        Ok((self.counts, took))
    }
}
