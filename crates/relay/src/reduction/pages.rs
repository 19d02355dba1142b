//! Which bytes of a channel are which pages.

use std::collections::VecDeque;
use std::ops::Range;

use drover_qstream::{BlockName, Packet};
use drover_reduce::{PageId, Span};

/// Blocks of memory that are told apart: guests have some ten. Pages of further ones share a number with others, which
/// costs time and nothing else.
const BLOCKS_MOST: usize = 255;

/// Pages are numbered within their block below this: a block of 4 PiB.
const PAGE_BITS: u32 = 40;

/// The pages of one channel that have not been sent.
#[derive(Debug, Default)]
pub(super) struct Pages {
    blocks: Vec<BlockName>,
    packets: VecDeque<Packet>,
}

impl Pages {
    pub(super) fn add(&mut self, packet: Packet) {
        if packet.pages.is_empty() {
            return;
        }
        self.packets.push_back(packet);
    }

    /// How far the bytes up to `end` go without cutting a page.
    pub(super) fn whole(&self, end: u64) -> u64 {
        let cut = |packet: &Packet| {
            let within = end.checked_sub(packet.begins)?;
            (within < packet.follows()).then(|| end - within % u64::from(packet.page_bytes))
        };
        self.packets.back().and_then(cut).unwrap_or(end)
    }

    /// Forgets the pages that end before that.
    pub(super) fn forget(&mut self, before: u64) {
        while let Some(packet) = self.packets.front()
            && packet.begins + packet.follows() <= before
        {
            self.packets.pop_front();
        }
    }

    /// What those bytes are, of which a page may only be cut at the beginning; what comes before them is forgotten.
    pub(super) fn spans(&mut self, bytes: Range<u64>) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut at = bytes.start;
        while let Some(packet) = self.packets.front() {
            let end = packet.begins + packet.follows();
            if packet.begins >= bytes.end {
                break;
            }
            let each = u64::from(packet.page_bytes);
            let block = block(&mut self.blocks, packet.block);
            for (begins, offset) in (packet.begins..).step_by(each as usize).zip(&packet.pages) {
                if begins < at {
                    continue;
                }
                if begins + each > bytes.end {
                    break;
                }
                if begins > at {
                    spans.push(Span::Plain((begins - at) as usize));
                }
                let number = (offset / each) & ((1 << PAGE_BITS) - 1);
                spans.push(Span::Page(PageId((block << PAGE_BITS) | number)));
                at = begins + each;
            }
            if end > bytes.end {
                break;
            }
            self.packets.pop_front();
        }
        if at < bytes.end {
            spans.push(Span::Plain((bytes.end - at) as usize));
        }
        spans
    }
}

/// The number of a block: the order in which they first came.
fn block(blocks: &mut Vec<BlockName>, name: Option<BlockName>) -> u64 {
    let Some(name) = name else {
        return BLOCKS_MOST as u64;
    };
    let known = blocks.iter().position(|block| *block == name);
    let number = known.unwrap_or_else(|| {
        if blocks.len() < BLOCKS_MOST {
            blocks.push(name);
        }
        blocks.len() - 1
    });
    number as u64
}
